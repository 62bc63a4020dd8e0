//! The ledger itself: its connection, its scripts, and the names of its keys.

use std::fmt;
use std::sync::{Arc, Mutex};

use ichido_core::{Index, hex_of};
use tokio_util::task::AbortOnDropHandle;

use super::address::Address;
use super::connection::Link;
use super::loss_detection::Identity;
use super::position::Position;
use super::scripts::Scripts;
use crate::Result;

/// Claims in Redis.
pub struct Redis {
    pub(super) link: Arc<Link>,
    pub(super) scripts: Scripts,
    pub(super) prefix: String,
    /// Where the last sweep stopped.
    pub(super) swept_to: Mutex<Position>,
    pub(super) identity: Arc<Identity>,
    /// Looks for lost data until the ledger is closed.
    pub(super) watch: Mutex<Option<AbortOnDropHandle<()>>>,
}

impl Redis {
    /// Connects.
    pub async fn connect(url: &str) -> Result<Self> {
        let address = Address::parse(url)?;
        let link = Arc::new(Link::open(&address).await?);
        let identity = Arc::new(Identity::new(link.clone(), &address.prefix));
        if let Err(error) = identity.look().await {
            // Whoever checks or claims is told why; the watch tries again.
            tracing::debug!(%error, "the identity of the Redis ledger could not be read yet");
        }
        let watch = tokio::spawn({
            let identity = identity.clone();
            async move { identity.watch().await }
        });
        Ok(Self {
            link,
            scripts: Scripts::new(),
            prefix: address.prefix,
            swept_to: Mutex::default(),
            identity,
            watch: Mutex::new(Some(AbortOnDropHandle::new(watch))),
        })
    }

    pub(super) fn claim_name(&self, index: Index) -> String {
        self.name("claim:", index)
    }

    pub(super) fn mark_name(&self, index: Index) -> String {
        self.name("mark:", index)
    }

    fn name(&self, space: &str, index: Index) -> String {
        [&self.prefix, space, &hex_of(index.as_bytes())].concat()
    }

    /// The index in a claim's name.
    pub(super) fn claim_index(&self, name: &str) -> Option<Index> {
        name.strip_prefix(&self.prefix)?.strip_prefix("claim:")?.parse().ok()
    }

    /// What the names of all claims look like, as SCAN wants it.
    pub(super) fn claim_pattern(&self) -> String {
        let escape = |c: char| match c {
            '*' | '?' | '[' | ']' | '^' | '\\' => vec!['\\', c],
            c => vec![c],
        };
        let prefix: String = self.prefix.chars().flat_map(escape).collect();
        format!("{prefix}claim:*")
    }
}

/// Nothing of the URL but the prefix: it may hold a password.
impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}
