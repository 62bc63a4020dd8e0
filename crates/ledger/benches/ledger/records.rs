//! The least that a log must write for a claim and its completion, which every ratio against the raw log is based on.

/// The frame around a record: its length, a checksum and what identifies the commit.
const FRAME_BYTES: usize = 21;
/// The hash of a key.
const INDEX_BYTES: usize = 32;

/// A claim with a key of 17 bytes and a fingerprint: the key, its hash, the token, the nonce and the times.
pub(crate) const CLAIM_BYTES: usize = INDEX_BYTES + 141 + FRAME_BYTES;

/// A completion: the hash of its key, its token, the time, the length of the outcome, and the outcome.
pub(crate) const fn completion_bytes(outcome: usize) -> usize {
    INDEX_BYTES + 16 + 8 + 4 + outcome + FRAME_BYTES
}
