//! What the console shows besides the ledger.

use std::sync::Arc;

use ichido_meter::Store;

use crate::delivery_control::DeliveryControl;

/// What the console shows besides the ledger.
#[derive(Debug, Default)]
pub struct ConsoleOptions {
    pub bodies: Bodies,
    /// The way to the daemon that delivers, if this process is one.
    pub delivery: Option<DeliveryControl>,
    /// What a meter counted, if this process has one.
    pub usage: Option<UsageSource>,
}

/// Whether pages show what callers stored and sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bodies {
    #[default]
    Masked,
    Shown,
}

/// What a meter counted, and for whom.
#[derive(Clone, Debug)]
pub struct UsageSource {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) tenants: Vec<String>,
}

impl UsageSource {
    pub fn new(store: Arc<dyn Store>, tenants: Vec<String>) -> Self {
        Self { store, tenants }
    }
}
