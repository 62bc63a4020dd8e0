//! What an export recorded as sent. The export is a crate above this one, so it comes in through a trait.

use std::sync::Arc;

use ichido_core::Timestamp;
use serde_json::{Map, Value};

/// Finds records in the state of an export.
pub type ExportSearch = Arc<dyn ExportState>;

/// The state of an export.
pub trait ExportState: std::fmt::Debug + Send + Sync {
    /// Finds a record by its id. Blocks.
    fn find(&self, id: &str) -> Exported;
}

/// What the state of an export says about an id.
#[derive(Debug, Default)]
pub struct Exported {
    /// Each period in which the record was sent: when that was recorded, and the details.
    pub sent: Vec<(Timestamp, Map<String, Value>)>,
    /// What was searched.
    pub searched: String,
    /// What could not be searched, and why.
    pub problems: Vec<String>,
}
