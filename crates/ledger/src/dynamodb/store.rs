//! The ledger itself: its table, and what this process has seen of its leases.

use std::fmt;
use std::sync::Arc;

use ichido_core::Clock;

use super::lease_watch::LeaseWatch;
use super::settings::{Regions, Settings};
use super::sweep_cursor::SweepCursor;
use super::table::Table;
use crate::Result;

/// A ledger in DynamoDB.
///
/// # Cancel safety
///
/// A dropped call may have been applied, as after a lost reply: retry it with the same nonce or token.
pub struct Dynamo {
    pub(super) table: Table,
    pub(super) regions: Regions,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) watch: LeaseWatch,
    pub(super) sweep_cursor: SweepCursor,
}

impl Dynamo {
    /// Creates the client for a table. This does not contact the server.
    ///
    /// `dynamodb://TABLE?region=R&endpoint=URL`; `dynamodb:` alone uses the table of `DEDUP_TABLE_NAME`, or
    /// `slack-classify-bot-processed-events`, and the region of `AWS_REGION`, or us-east-1.
    pub async fn connect(url: &str, clock: Arc<dyn Clock>) -> Result<Self> {
        let settings = Settings::parse(url, |name| std::env::var(name).ok())?;
        let table = Table { client: settings.client().await, name: settings.table };
        Ok(Self {
            table,
            regions: settings.regions,
            clock,
            watch: LeaseWatch::default(),
            sweep_cursor: SweepCursor::default(),
        })
    }
}

impl fmt::Debug for Dynamo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dynamo").field("table", &self.table.name).finish_non_exhaustive()
    }
}
