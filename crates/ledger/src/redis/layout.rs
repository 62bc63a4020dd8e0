//! How claims and marks are stored in Redis.
//!
//! A record is one string, so that every step of a claim is one read and one write. It starts with a head of fixed
//! width, which scripts read and rewrite by position. The fields that a grant fixes follow as JSON, and then the
//! tail: the outcome or the reason of the current state. Numbers are decimal and padded with zeros; times are
//! milliseconds since the epoch.
//!
//! ```text
//! a claim
//!   1 format = 2, or 3 with a caller │ 32 token │ 1 state │ 10 bytes of tail │ 16 since │ 16 over_at │ 16 claimed_at │ 16 renewed_at
//!   10 version │ 10 renewals │ 16 lease_ms │ 16 retention_ms │ 8 bytes of JSON │ JSON │ tail
//!     R        running; since = the end of the lease
//!     L, G, D  in doubt since then: the lease lapsed, the holder is gone, declared (tail = the reason)
//!     K, T     done since then: the outcome was kept (tail = the outcome), or not (tail = why)
//! a mark
//!   1 format = 2 │ 16 marked_at │ 16 expires_at │ JSON
//! ```
//!
//! `over_at` is when the record expires. With `since` and `over_at`, scripts can change a claim without knowing how
//! long a claim stays in doubt, which only the rules know. Everything up to `version` is the *revision* of a
//! record: no two states of a claim share it. The format is the first byte of all: a record of another format is
//! neither read nor changed.

use std::borrow::Cow;
use std::str::FromStr;

use ichido_core::{Caller, Fingerprint, Holder, Key, Metadata, Nonce};
use serde::{Deserialize, Deserializer, Serialize};

/// The first byte of a mark, and of a claim without a caller.
pub(super) const FORMAT: u8 = b'2';
/// The first byte of a claim with a caller. A version that does not know callers must not reveal its outcome to
/// others.
pub(super) const FORMAT_CALLER: u8 = b'3';
/// Bytes before the state of a claim: format and token.
pub(super) const STATE_AT: usize = 33;
/// Bytes before the times of a claim.
pub(super) const TIMES_AT: usize = 44;
/// Bytes up to and including the version of a claim.
pub(super) const REVISION: usize = 118;
/// Bytes of a claim's head.
pub(super) const HEAD: usize = 168;

/// Digits of a time or a duration.
pub(super) const TIME: usize = 16;
/// Digits of a count, and of the tail's length.
pub(super) const COUNT: usize = 10;
/// Digits of the JSON's length.
pub(super) const LENGTH: usize = 8;

pub(super) const RUNNING: u8 = b'R';
pub(super) const LAPSED: u8 = b'L';
pub(super) const GONE: u8 = b'G';
pub(super) const DECLARED: u8 = b'D';
pub(super) const KEPT: u8 = b'K';
pub(super) const TOMBSTONE: u8 = b'T';

/// The fields that a grant fixes.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fixed<'a> {
    #[serde(borrow)]
    pub(super) tenant: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) route: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) key: Cow<'a, str>,
    #[serde(deserialize_with = "parsed")]
    pub(super) fingerprint: Fingerprint,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    pub(super) caller: Option<Caller>,
    #[serde(deserialize_with = "parsed")]
    pub(super) nonce: Nonce,
    pub(super) attempt: u32,
    pub(super) holder: Holder,
    #[serde(default, skip_serializing_if = "Metadata::is_empty")]
    pub(super) metadata: Cow<'a, Metadata>,
}

impl Fixed<'_> {
    /// Whether the claim is for this key.
    pub(super) fn is_of(&self, key: &Key) -> bool {
        let scope = key.scope();
        self.key == key.text() && self.tenant == scope.tenant && self.route == scope.route
    }
}

/// The fields of a mark apart from its times.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Event<'a> {
    #[serde(borrow)]
    pub(super) key: Cow<'a, str>,
    #[serde(deserialize_with = "parsed")]
    pub(super) nonce: Nonce,
    #[serde(default, skip_serializing_if = "Metadata::is_empty")]
    pub(super) metadata: Cow<'a, Metadata>,
}

/// Parses hexadecimal digits, which JSON never escapes.
fn parsed<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: std::fmt::Display>,
{
    <&str>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
}

/// The same for an optional field.
fn given<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: std::fmt::Display>,
{
    parsed(deserializer).map(Some)
}
