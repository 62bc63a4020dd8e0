//! What the console shows in addition to the ledger.

use std::sync::Arc;

use ichido_meter::{Budget, Store};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::delivery_control::DeliveryControl;
use crate::export_state::ExportSearch;

/// What the console shows in addition to the ledger.
#[derive(Debug, Default)]
pub struct ConsoleOptions {
    /// Whether pages show stored responses and records.
    pub bodies: Bodies,
    /// Controls the delivery of this process, if it delivers.
    pub delivery: Option<DeliveryControl>,
    /// The usage that this process's meter has counted, if it has one.
    pub usage: Option<UsageSource>,
    /// What the export of this data directory has sent.
    pub export: Option<ExportSearch>,
}

/// Whether pages show stored responses and records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Bodies {
    #[default]
    /// Hidden: they are the callers' data.
    Masked,
    /// Shown.
    Shown,
}

/// The usage that a meter has counted, and the tenants it may be shown for.
#[derive(Clone, Debug)]
pub struct UsageSource {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) tenants: Vec<String>,
    pub(crate) budgets: Vec<Budget>,
}

impl UsageSource {
    /// Creates the source from the meter's store.
    pub fn new(store: Arc<dyn Store>, tenants: Vec<String>, budgets: Vec<Budget>) -> Self {
        Self { store, tenants, budgets }
    }

    /// Closes the store, for a command that opened it.
    pub async fn close(&self) {
        self.store.close().await;
    }
}
