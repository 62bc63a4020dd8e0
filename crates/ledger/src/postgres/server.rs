//! The server, as all calls use it.

use std::sync::Arc;

use super::connections::Connections;
use super::statements::Statements;

/// Connections, and the statements for one schema.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) connections: Arc<Connections>,
    pub(super) sql: Arc<Statements>,
}
