//! The ledger itself: its connection, its scripts, and the names of its keys.

use std::fmt;
use std::sync::{Arc, Mutex};

use ichido_core::{Index, to_hex};
use tokio_util::task::AbortOnDropHandle;

use super::address::Address;
use super::connection::Connection;
use super::loss_detection::LossDetector;
use super::position::Position;
use super::scripts::Scripts;
use crate::Result;

/// A ledger in Redis.
pub struct Redis {
    pub(super) connection: Arc<Connection>,
    pub(super) scripts: Scripts,
    pub(super) prefix: String,
    /// Where the last sweep stopped.
    pub(super) swept_to: Mutex<Position>,
    pub(super) loss_detector: Arc<LossDetector>,
    /// Checks for lost data until the ledger is closed.
    pub(super) watch: Mutex<Option<AbortOnDropHandle<()>>>,
}

impl Redis {
    /// Connects to the server or cluster.
    pub async fn connect(url: &str) -> Result<Self> {
        let address = Address::parse(url)?;
        let connection = Arc::new(Connection::open(&address).await?);
        let loss_detector = Arc::new(LossDetector::new(connection.clone(), &address.prefix));
        if let Err(error) = loss_detector.check().await {
            // Calls report the reason; the task retries.
            tracing::debug!(%error, "cannot read the identity of the Redis ledger yet");
        }
        let watch = tokio::spawn({
            let loss_detector = loss_detector.clone();
            async move { loss_detector.watch().await }
        });
        Ok(Self {
            scripts: Scripts::new(&connection),
            connection,
            prefix: address.prefix,
            swept_to: Mutex::default(),
            loss_detector,
            watch: Mutex::new(Some(AbortOnDropHandle::new(watch))),
        })
    }

    pub(super) fn claim_name(&self, index: Index) -> String {
        self.name(Space::Claims, index)
    }

    pub(super) fn mark_name(&self, index: Index) -> String {
        self.name(Space::Marks, index)
    }

    fn name(&self, space: Space, index: Index) -> String {
        [&self.prefix, space.prefix(), &to_hex(index.as_bytes())].concat()
    }

    /// The index in the name of a record.
    pub(super) fn index(&self, space: Space, name: &str) -> Option<Index> {
        name.strip_prefix(&self.prefix)?.strip_prefix(space.prefix())?.parse().ok()
    }

    /// The SCAN pattern that matches the names of all records of a space.
    pub(super) fn pattern(&self, space: Space) -> String {
        let escape = |c: char| match c {
            '*' | '?' | '[' | ']' | '^' | '\\' => vec!['\\', c],
            c => vec![c],
        };
        let prefix: String = self.prefix.chars().flat_map(escape).collect();
        format!("{prefix}{}*", space.prefix())
    }
}

/// What a key in Redis is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Space {
    Claims,
    Marks,
}

impl Space {
    fn prefix(self) -> &'static str {
        match self {
            Space::Claims => "claim:",
            Space::Marks => "mark:",
        }
    }
}

/// Shows only the prefix of the URL: the rest may contain a password.
impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}
