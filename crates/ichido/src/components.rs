//! The components of a server process, and what they share: the admin port and the ledger.

pub(crate) mod admin_port;
pub(crate) mod anomalies;
pub(crate) mod budgets;
pub(crate) mod delivery;
pub(crate) mod doubt;
pub(crate) mod export_state;
pub(crate) mod gateway;
pub(crate) mod history;
pub(crate) mod ledger;
pub(crate) mod meter;
pub(crate) mod outbox;
pub(crate) mod reload;
pub(crate) mod telemetry;
