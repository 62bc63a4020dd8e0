//! Claims and marks as bytes. All numbers are big-endian.
//!
//! Decoding checks every length and never panics. Bytes that do not decode are an error, never an absent record, because an
//! absent record would be granted again.
//!
//! ```text
//! claim     1 version = 1 │ 1 flags │ 4 attempt │ 4 renewals │ 8 epoch │ 8 claimed_at │ 8 renewed_at │ 8 lease_ms
//!           8 retention_ms │ 16 nonce │ 16 token │ [32 fingerprint] │ [32 caller] │ text tenant │ text route │ text key
//!           metadata │ state
//! flags     bit 0: the holder is a remote caller; bit 1: a fingerprint follows (without it: all zeros); bit 2: a caller follows
//! text      2 length │ UTF-8
//! metadata  2 count │ (text name │ text value)*
//! state     0                                                            running
//!           1 │ 8 since │ 0 lapsed, 1 holder gone, 2 │ text              in doubt
//!           2 │ 8 completed_at │ 0 │ 4 length │ bytes                    done, with its outcome
//!           2 │ 8 completed_at │ 1 │ text                                done, with a tombstone and its reason
//!           2 │ 8 completed_at │ 2 │ 8 commit │ 4 number │ 4 length │ 4 checksum      done; the outcome has a file of its own
//! mark      1 version = 1 │ 16 nonce │ 8 marked_at │ 8 expires_at │ text key │ metadata
//! ```

use bytes::Bytes;
use ichido_core::{
    Caller, DoubtReason, Fingerprint, Holder, Key, MarkKey, Metadata, Nonce, Outcome, Record, Scope, State,
    Timestamp, Token, mark,
};

use super::reader::{Flaw, Reader};

/// The version of claims and marks.
pub(crate) const VERSION: u8 = 1;
const REMOTE: u8 = 1;
const FINGERPRINT: u8 = 2;
const CALLER: u8 = 4;

/// A claim as it was read.
#[derive(Debug)]
pub(crate) struct StoredClaim {
    pub(crate) record: Record,
    /// The opening in which it was last granted or renewed.
    pub(crate) epoch: u64,
    /// The file of the outcome, if it has one. The record's outcome is empty then.
    pub(crate) outcome_file: Option<OutcomeFile>,
}

/// A file that holds one large outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OutcomeFile {
    pub(crate) commit: u64,
    /// Within the commit.
    pub(crate) number: u32,
    pub(crate) length: u32,
    pub(crate) checksum: u32,
}

impl OutcomeFile {
    /// Describes the file that will hold `outcome`.
    pub(crate) fn of(commit: u64, number: u32, outcome: &[u8]) -> Self {
        let length = u32::try_from(outcome.len()).unwrap_or(u32::MAX);
        Self { commit, number, length, checksum: crc32c::crc32c(outcome) }
    }

    pub(crate) fn name(self) -> String {
        format!("{OUTCOME_PREFIX}{:016x}-{:04x}", self.commit, self.number)
    }

    /// Checks what was read from the file.
    pub(crate) fn check(self, bytes: &[u8]) -> Result<(), Flaw> {
        match bytes.len() as u64 == u64::from(self.length) && crc32c::crc32c(bytes) == self.checksum {
            true => Ok(()),
            false => Err("its content does not match its record"),
        }
    }
}

/// Starts the names of outcome files.
pub(crate) const OUTCOME_PREFIX: &str = "outcome-";

/// Adds a claim to `out`. With a file, the outcome itself is left out.
pub(crate) fn encode_claim(record: &Record, epoch: u64, file: Option<OutcomeFile>, out: &mut Vec<u8>) {
    let has_fingerprint = record.fingerprint != Fingerprint::NONE;
    let remote = match record.holder {
        Holder::Process => 0,
        Holder::Remote => REMOTE,
    };
    let fingerprint = if has_fingerprint { FINGERPRINT } else { 0 };
    let caller = if record.caller.is_some() { CALLER } else { 0 };
    out.extend([VERSION, remote | fingerprint | caller]);
    out.extend(record.attempt.to_be_bytes());
    out.extend(record.renewals.to_be_bytes());
    for number in [epoch, record.claimed_at.0, record.renewed_at.0, record.lease_ms, record.retention_ms] {
        out.extend(number.to_be_bytes());
    }
    out.extend(record.nonce.as_bytes());
    out.extend(record.token.as_bytes());
    if has_fingerprint {
        out.extend(record.fingerprint.as_bytes());
    }
    if let Some(caller) = &record.caller {
        out.extend(caller.as_bytes());
    }
    put_text(out, &record.key.scope().tenant);
    put_text(out, &record.key.scope().route);
    put_text(out, record.key.text());
    put_metadata(out, &record.metadata);
    put_state(out, &record.state, file);
}

fn put_state(out: &mut Vec<u8>, state: &State, file: Option<OutcomeFile>) {
    match state {
        State::Running => out.push(0),
        State::InDoubt(doubt) => {
            out.push(1);
            out.extend(doubt.since.0.to_be_bytes());
            match &doubt.reason {
                DoubtReason::LeaseLapsed => out.push(0),
                DoubtReason::HolderGone => out.push(1),
                DoubtReason::Declared(reason) => {
                    out.push(2);
                    put_text(out, reason);
                }
            }
        }
        State::Done(done) => {
            out.push(2);
            out.extend(done.completed_at.0.to_be_bytes());
            match (&done.outcome, file) {
                (Outcome::Kept(_), Some(file)) => {
                    out.push(2);
                    out.extend(file.commit.to_be_bytes());
                    for number in [file.number, file.length, file.checksum] {
                        out.extend(number.to_be_bytes());
                    }
                }
                (Outcome::Kept(bytes), None) => {
                    out.push(0);
                    out.extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
                    out.extend(bytes);
                }
                (Outcome::Tombstone(reason), _) => {
                    out.push(1);
                    put_text(out, reason);
                }
            }
        }
    }
}

/// Reads a claim.
pub(crate) fn decode_claim(bytes: &[u8]) -> Result<StoredClaim, Flaw> {
    let mut reader = Reader::versioned(bytes)?;
    let flags = reader.byte()?;
    if flags & !(REMOTE | FINGERPRINT | CALLER) != 0 {
        return Err("it was written by another version, or is damaged");
    }
    let attempt = reader.u32()?;
    let renewals = reader.u32()?;
    let epoch = reader.u64()?;
    let claimed_at = Timestamp(reader.u64()?);
    let renewed_at = Timestamp(reader.u64()?);
    let lease_ms = reader.u64()?;
    let retention_ms = reader.u64()?;
    let nonce = Nonce::from_bytes(reader.array()?);
    let token = Token::from_bytes(reader.array()?);
    let fingerprint = match flags & FINGERPRINT {
        0 => Fingerprint::NONE,
        _ => Fingerprint::from_bytes(reader.array()?),
    };
    let caller = match flags & CALLER {
        0 => None,
        _ => Some(Caller::from_bytes(reader.array()?)),
    };
    let scope = Scope::new(reader.text()?, reader.text()?);
    let key = Key::new(scope, reader.text()?).map_err(|_| "its key is outside the limits")?;
    let metadata = reader.metadata()?;
    let (state, outcome_file) = reader.state()?;
    reader.end()?;
    let holder = if flags & REMOTE == 0 { Holder::Process } else { Holder::Remote };
    let record = Record {
        key,
        fingerprint,
        caller,
        nonce,
        token,
        attempt,
        holder,
        claimed_at,
        renewed_at,
        renewals,
        lease_ms,
        retention_ms,
        metadata,
        state,
    };
    Ok(StoredClaim { record, epoch, outcome_file })
}

impl StoredClaim {
    /// The record with the outcome that was read from its file.
    pub(crate) fn with_outcome(mut self, bytes: Vec<u8>) -> Record {
        if let State::Done(done) = &mut self.record.state {
            done.outcome = Outcome::Kept(Bytes::from(bytes));
        }
        self.record
    }
}

/// Adds a mark to `out`.
pub(crate) fn encode_mark(record: &mark::Record, out: &mut Vec<u8>) {
    out.push(VERSION);
    out.extend(record.nonce.as_bytes());
    out.extend(record.marked_at.0.to_be_bytes());
    out.extend(record.expires_at.0.to_be_bytes());
    put_text(out, record.key.text());
    put_metadata(out, &record.metadata);
}

/// Reads a mark.
pub(crate) fn decode_mark(bytes: &[u8]) -> Result<mark::Record, Flaw> {
    let mut reader = Reader::versioned(bytes)?;
    let nonce = Nonce::from_bytes(reader.array()?);
    let marked_at = Timestamp(reader.u64()?);
    let expires_at = Timestamp(reader.u64()?);
    let key = MarkKey::new(reader.text()?).map_err(|_| "its key is outside the limits")?;
    let metadata = reader.metadata()?;
    reader.end()?;
    Ok(mark::Record { key, nonce, marked_at, expires_at, metadata })
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    // The limits of keys, metadata and reasons are far below 64 KiB.
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    out.extend(length.to_be_bytes());
    out.extend(&text.as_bytes()[..usize::from(length)]);
}

fn put_metadata(out: &mut Vec<u8>, metadata: &Metadata) {
    let pairs = metadata.iter();
    out.extend(u16::try_from(pairs.len()).unwrap_or(u16::MAX).to_be_bytes());
    for (name, value) in pairs {
        put_text(out, name);
        put_text(out, value);
    }
}
