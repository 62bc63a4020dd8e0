//! Events that are known by their content as well as by their id.
//!
//! The id decides. A content key, such as the id of the file that an event is about, finds the same content under a second id.
//! A content key is a mark whose metadata names its *owner*: the id of the event that marked it. Such a hit is only reported
//! ([`ContentMode::Observe`]), or the event is not handled ([`ContentMode::Enforce`]).
//!
//! # No event is lost
//!
//! With two keys, two events could each own one and be refused because of the other: A owns k1, B owns k2, A is a hit on k2, and B
//! on k1. Nobody would handle the content. Three rules prevent that:
//!
//! 1. **Sorted order.** Every event marks its content keys in the order of their text, one after another.
//! 2. **Only a handled owner refuses.** An event is refused because of a key only if the owner of the key was new, so that its
//!    caller handles it. While the owner is undecided, others wait for it. A refused event removes its own content marks before it is
//!    answered, so that a key never refers to an event that nobody handled.
//! 3. **An owner that never decided is replaced.** Its mark is removed, exactly the one that was seen, and the key is marked
//!    again.
//!
//! If an event waits at key k, the owner of k is past k: it can only wait at a larger key. So a chain of waiting events has
//! strictly increasing keys. It is finite, and its last event does not wait: it is handled, or refused because of an event that was
//! handled. By induction, every event is handled, or shares a key with an event that was handled. This needs no operation on two
//! keys at once. So it holds on every backend, and on Redis Cluster with keys in different slots.
//!
//! # Crashes
//!
//! [`Ledger::check_events`] marks the content keys first and the id last: the mark of the id is the decision. If the process
//! dies in between, no id is marked. A retry finds its own content marks and continues; another event with the same content
//! waits for [`PATIENCE`], then replaces them. If the process was only stalled, both are new: a duplicate, but no loss.
//!
//! [`Ledger::check_content`] is for a claimed id, whose state is the decision: running, done, or anything else, which means
//! that the event was not handled as far as anyone knows.

mod claims;
mod events;

use std::time::Duration;

use ichido_core::mark::{self, CONTENT, Forgotten, Mark, OWNER};
use ichido_core::{Fingerprint, LimitError, Limits, MarkKey, Metadata, Timestamp};

pub use self::claims::ContentCheck;
pub use self::events::{CheckedEvent, Event, EventResult};
use crate::{Ledger, Result};

/// How long an undecided owner of a content key is waited for. Deciding takes a few calls to the ledger.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// The most content keys of an event.
pub const CONTENT_KEYS_MAX: usize = 8;

/// What a hit on a content key means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContentMode {
    /// It is reported.
    #[default]
    Observe,
    /// It is reported, and the event is not handled.
    Enforce,
}

/// A part of the content of an event, as a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentKey {
    name: String,
    key: MarkKey,
}

impl ContentKey {
    /// Creates a key of a name, such as `file`, and a value. Only keys with the same prefix, such as the operation they belong
    /// to, can be equal. A long value is replaced with its hash.
    pub fn new(prefix: &str, name: &str, value: &str) -> std::result::Result<Self, LimitError> {
        if name.is_empty() {
            return Err(LimitError::Empty { what: "content name" });
        }
        if value.is_empty() {
            return Err(LimitError::Empty { what: "content" });
        }
        let mut text = format!("{CONTENT}{prefix}{name}={value}");
        if text.len() > Limits::STANDARD.key_bytes {
            let digest = Fingerprint::of([prefix, name, value]);
            text = format!("{CONTENT}sha256:{}", ichido_core::to_hex(digest.as_bytes()));
        }
        Ok(Self { name: name.to_owned(), key: MarkKey::new(text)? })
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The key of its mark.
    pub fn mark_key(&self) -> &MarkKey {
        &self.key
    }
}

/// The content of an event was seen in another event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentHit {
    /// The name of the key that hit.
    pub name: String,
    /// The id of the other event.
    pub event: String,
    /// When it marked the content.
    pub first_seen: Timestamp,
}

/// Sorts the keys into the order in which every event marks them.
fn sorted(mut keys: Vec<ContentKey>) -> Vec<ContentKey> {
    keys.sort_unstable_by(|one, other| one.key.text().cmp(other.key.text()));
    keys.dedup_by(|one, other| one.key == other.key);
    keys
}

/// What a content mark says.
enum Ownership {
    /// This event owns it; `is_fresh` if it was marked just now.
    Own { is_fresh: bool },
    /// Another event owns it.
    Other(ContentHit),
}

impl Ownership {
    fn of(key: &ContentKey, event: &str, mark: Mark) -> Self {
        match mark {
            Mark::New => Self::Own { is_fresh: true },
            Mark::Seen { first_seen, metadata } => match metadata.get(OWNER) {
                Some(owner) if owner == event => Self::Own { is_fresh: false },
                owner => Self::Other(ContentHit {
                    name: key.name.clone(),
                    event: owner.unwrap_or_default().to_owned(),
                    first_seen,
                }),
            },
        }
    }
}

impl Ledger {
    /// The request that makes `event` the owner of a key.
    fn own_request(&self, key: &ContentKey, event: &str, retention_ms: u64) -> Result<mark::Request> {
        let metadata = Metadata::new([(OWNER.to_owned(), event.to_owned())])?;
        Ok(mark::Request { retention_ms, metadata, ..self.mark_request(key.key.clone()) })
    }

    /// Removes the mark of a key if `event` still owns it.
    async fn disown(&self, key: &ContentKey, event: &str) -> Result<()> {
        if let Some(record) = self.get_mark(&key.key).await?
            && record.metadata.get(OWNER).unwrap_or_default() == event
        {
            match self.forget_unobserved(&record).await? {
                Forgotten::Removed | Forgotten::Gone => {}
            }
        }
        Ok(())
    }
}
