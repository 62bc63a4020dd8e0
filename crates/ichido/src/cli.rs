//! The commands, one module each.

mod batch_files;
pub(crate) mod claims;
pub(crate) mod export;
pub(crate) mod failed;
pub(crate) mod gateway;
pub(crate) mod id;
pub(crate) mod ledger;
pub(crate) mod manual;
pub(crate) mod meter;
pub(crate) mod reconcile;
pub(crate) mod run;
pub(crate) mod send;
pub(crate) mod spool;
