//! Limits, which are checked before anything is written.

/// Limits on what a caller may send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest key, in bytes. DynamoDB allows a partition key of 2,048 bytes.
    pub key_bytes: usize,
    /// The longest tenant or route, in bytes.
    pub scope_bytes: usize,
    /// The names and values of the metadata of one record together, in bytes.
    pub metadata_bytes: usize,
    /// The largest outcome, in bytes.
    pub outcome_bytes: usize,
    /// The longest reason of a doubt or tombstone, in bytes.
    pub reason_bytes: usize,
    /// The longest lease, in milliseconds.
    pub lease_ms: u64,
    /// The longest retention, in milliseconds.
    pub retention_ms: u64,
    /// The largest batch of marks.
    pub batch: usize,
}

impl Limits {
    /// The limits of every ledger.
    pub const STANDARD: Limits = Limits {
        key_bytes: 1024,
        scope_bytes: 1024,
        metadata_bytes: 8 * 1024,
        outcome_bytes: 16 * 1024 * 1024,
        reason_bytes: 1024,
        lease_ms: 3_600_000,
        retention_ms: 3_660 * 86_400_000,
        batch: 10_000,
    };
}

/// A value is outside its limits. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// The value is empty or zero.
    #[error("{what} is empty")]
    Empty {
        /// Which value.
        what: &'static str,
    },
    /// The value is too long or too large.
    #[error("{what} is {size} {unit}; at most {limit} are allowed")]
    TooLarge {
        /// Which value.
        what: &'static str,
        /// Its size.
        size: u64,
        /// The limit.
        limit: u64,
        /// The unit of both.
        unit: &'static str,
    },
    /// The text is reserved for the ledger.
    #[error("{what} {name:?} is reserved")]
    Reserved {
        /// Which value.
        what: &'static str,
        /// The name.
        name: String,
    },
}

impl LimitError {
    /// Checks the size of a batch of marks.
    pub fn check_batch(size: usize, limits: &Limits) -> Result<(), LimitError> {
        Self::count("batch", size as u64, limits.batch as u64, "marks")
    }

    pub(crate) fn bytes(what: &'static str, size: usize, limit: usize) -> Result<(), LimitError> {
        Self::count(what, size as u64, limit as u64, "bytes")
    }

    pub(crate) fn count(
        what: &'static str,
        size: u64,
        limit: u64,
        unit: &'static str,
    ) -> Result<(), LimitError> {
        if size > limit { Err(LimitError::TooLarge { what, size, limit, unit }) } else { Ok(()) }
    }
}
