//! The bytes on disk.
//!
//! Everything is big-endian and starts with a version byte. Decoding checks every length and never panics: bytes
//! that do not decode are [`crate::Kind::Corrupt`], never an absent record, because an absent record is a grant.
//!
//! ```text
//! a claim, in `open` and `done`, under its index (32 bytes), and in `grants`
//!   1 version = 1 │ 1 flags │ 4 attempt │ 4 renewals │ 8 epoch │ 8 claimed_at │ 8 renewed_at │ 8 lease_ms
//!   8 retention_ms │ 16 nonce │ 16 token │ [32 fingerprint] │ [32 caller] │ text tenant │ text route │ text key
//!   metadata │ state
//!     flags     bit 0: the holder is a remote caller; bit 1: a fingerprint follows (none: all zeros);
//!               bit 2: a caller follows (from format 3 on)
//!     text      2 length │ bytes of UTF-8
//!     metadata  2 count │ (text name │ text value)*
//!     state     0                                                     running
//!               1 │ 8 since │ 0 lapsed, 1 holder gone, 2 │ text       in doubt
//!               2 │ 8 completed_at │ 0 │ 4 length                     done; the outcome is in `outcomes`
//!               2 │ 8 completed_at │ 1 │ text                         done; a tombstone and its reason
//!               2 │ 8 completed_at │ 2 │ 4 length │ bytes             done, with its outcome
//! an outcome, in `outcomes`, under its index
//!   1 version = 1 │ bytes
//! what a commit granted, and which grants of earlier ones it ended, in `grants`, under 8 sequence
//!   1 version = 1 │ 4 count │ (4 length │ a claim)* │ (8 sequence │ 4 place)*
//! a mark, in `marks`, under its index
//!   1 version = 1 │ 16 nonce │ 8 marked_at │ 8 expires_at │ text key │ metadata
//! what ends when, in `ends`, under 8 end │ 8 sequence │ 2 part
//!   1 version = 1 │ (1 kind: 0 claim, 1 mark │ 32 index)*
//! ```

use bytes::Bytes;
use ichido_core::{
    Caller, DoubtReason, Fingerprint, Holder, Index, Key, MarkKey, Metadata, Nonce, Outcome, Record, Scope,
    State, Timestamp, Token, mark,
};

use super::fresh::Spot;
use super::reader::{Flaw, Reader};

/// The version byte of every value.
pub(super) const VERSION: u8 = 1;
const REMOTE: u8 = 1;
const FINGERPRINT: u8 = 2;
const CALLER: u8 = 4;
/// Outcomes up to this length lie in their record: one value is written and read faster than two.
const SMALL_BYTES: usize = 2 * 1024;

/// A claim as it lies on disk: a completed one has its outcome elsewhere.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) record: Record,
    /// The opening in which it was last granted or renewed.
    pub(super) epoch: u64,
    /// The length of the outcome in `outcomes`, if there is one.
    pub(super) outcome_bytes: Option<usize>,
}

/// The outcome of a record, if it lies in `outcomes`.
pub(super) fn outcome_apart(record: &Record) -> Option<&[u8]> {
    match &record.state {
        State::Done(done) => match &done.outcome {
            Outcome::Kept(bytes) if bytes.len() > SMALL_BYTES => Some(bytes),
            Outcome::Kept(_) | Outcome::Tombstone(_) => None,
        },
        State::Running | State::InDoubt(_) => None,
    }
}

/// Adds a claim to `out`.
pub(super) fn encode_claim(record: &Record, epoch: u64, out: &mut Vec<u8>) {
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
    put_state(out, &record.state);
}

fn put_state(out: &mut Vec<u8>, state: &State) {
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
            match &done.outcome {
                Outcome::Kept(bytes) => {
                    let is_small = bytes.len() <= SMALL_BYTES;
                    out.push(if is_small { 2 } else { 0 });
                    out.extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
                    if is_small {
                        out.extend(bytes);
                    }
                }
                Outcome::Tombstone(reason) => {
                    out.push(1);
                    put_text(out, reason);
                }
            }
        }
    }
}

/// Reads a claim that lies under `index`. An outcome that lies elsewhere is empty until [`Stored::with_outcome`].
pub(super) fn decode_claim(index: &[u8], bytes: &[u8]) -> Result<Stored, Flaw> {
    let stored = decode_unplaced(bytes)?;
    match stored.record.key.index().as_bytes() == index {
        true => Ok(stored),
        false => Err("it lies under another key's index"),
    }
}

fn decode_unplaced(bytes: &[u8]) -> Result<Stored, Flaw> {
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
    let (state, outcome_bytes) = reader.state()?;
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
    Ok(Stored { record, epoch, outcome_bytes })
}

impl Stored {
    /// The record with its outcome.
    pub(super) fn with_outcome(mut self, value: &[u8]) -> Result<Option<Record>, Flaw> {
        let bytes = Reader::versioned(value)?.0;
        if self.outcome_bytes != Some(bytes.len()) {
            return Ok(None);
        }
        if let State::Done(done) = &mut self.record.state {
            done.outcome = Outcome::Kept(Bytes::copy_from_slice(bytes));
        }
        Ok(Some(self.record))
    }
}

/// Adds an outcome to `out`.
pub(super) fn encode_outcome(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(VERSION);
    out.extend(bytes);
}

/// Adds a mark to `out`.
pub(super) fn encode_mark(record: &mark::Record, out: &mut Vec<u8>) {
    out.push(VERSION);
    out.extend(record.nonce.as_bytes());
    out.extend(record.marked_at.0.to_be_bytes());
    out.extend(record.expires_at.0.to_be_bytes());
    put_text(out, record.key.text());
    put_metadata(out, &record.metadata);
}

/// Reads a mark that lies under `index`.
pub(super) fn decode_mark(index: &[u8], bytes: &[u8]) -> Result<mark::Record, Flaw> {
    let mut reader = Reader::versioned(bytes)?;
    let nonce = Nonce::from_bytes(reader.array()?);
    let marked_at = Timestamp(reader.u64()?);
    let expires_at = Timestamp(reader.u64()?);
    let key = MarkKey::new(reader.text()?).map_err(|_| "its key is outside the limits")?;
    if key.index().as_bytes() != index {
        return Err("it lies under another key's index");
    }
    let metadata = reader.metadata()?;
    reader.end()?;
    Ok(mark::Record { key, nonce, marked_at, expires_at, metadata })
}

/// What a commit did with grants, as it is being written: claims that it granted, then grants that it ended.
#[derive(Debug, Default)]
pub(super) struct GrantsValue {
    claims: Vec<u8>,
    count: u32,
    ended: Vec<u8>,
}

impl GrantsValue {
    /// Adds a claim; its place.
    pub(super) fn grant(&mut self, record: &Record, epoch: u64) -> u32 {
        let at = self.claims.len();
        self.claims.extend([0; 4]);
        encode_claim(record, epoch, &mut self.claims);
        let length = u32::try_from(self.claims.len() - at - 4).unwrap_or(u32::MAX);
        self.claims[at..at + 4].copy_from_slice(&length.to_be_bytes());
        self.count += 1;
        self.count - 1
    }

    pub(super) fn end(&mut self, spot: Spot) {
        self.ended.extend(spot.sequence.to_be_bytes());
        self.ended.extend(spot.place.to_be_bytes());
    }

    /// The value, unless there is nothing to write.
    pub(super) fn finish(self) -> Option<Vec<u8>> {
        if self.claims.is_empty() && self.ended.is_empty() {
            return None;
        }
        Some([&[VERSION][..], &self.count.to_be_bytes(), &self.claims, &self.ended].concat())
    }
}

/// A value of `grants` as it was read.
pub(super) struct GrantsRead<'a> {
    /// In their places, with the bytes that a record in `open` would have.
    pub(super) granted: Vec<(Index, &'a [u8])>,
    pub(super) ended: Vec<Spot>,
}

/// Reads a value of `grants`.
pub(super) fn decode_grants(value: &[u8]) -> Result<GrantsRead<'_>, Flaw> {
    let mut reader = Reader::versioned(value)?;
    let count = reader.u32()?;
    let mut granted = Vec::new();
    for _ in 0..count {
        let length = usize::try_from(reader.u32()?).map_err(|_| "it is cut short")?;
        let bytes = reader.take(length)?;
        let stored = decode_unplaced(bytes)?;
        if stored.record.state != State::Running {
            return Err("what was granted is not running");
        }
        granted.push((stored.record.key.index(), bytes));
    }
    let mut ended = Vec::with_capacity(reader.0.len() / 12);
    while !reader.0.is_empty() {
        ended.push(Spot { sequence: reader.u64()?, place: reader.u32()? });
    }
    Ok(GrantsRead { granted, ended })
}

/// What kind of record ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Claim,
    Mark,
}

/// Bytes of one member of an `ends` value.
pub(super) const END_BYTES: usize = 33;

/// The key of an `ends` value.
pub(super) fn end_key(end: Timestamp, sequence: u64, part: u16) -> [u8; 18] {
    let mut key = [0; 18];
    key[..8].copy_from_slice(&end.0.to_be_bytes());
    key[8..16].copy_from_slice(&sequence.to_be_bytes());
    key[16..].copy_from_slice(&part.to_be_bytes());
    key
}

/// The time in the key of an `ends` value.
pub(super) fn end_of(key: &[u8]) -> Result<Timestamp, Flaw> {
    Ok(Timestamp(Reader(key).u64()?))
}

/// Starts an `ends` value, or adds to it.
pub(super) fn push_end(value: &mut Vec<u8>, kind: Kind, index: Index) {
    if value.is_empty() {
        value.push(VERSION);
    }
    value.push(match kind {
        Kind::Claim => 0,
        Kind::Mark => 1,
    });
    value.extend(index.as_bytes());
}

/// The members of an `ends` value.
pub(super) fn decode_ends(value: &[u8]) -> Result<Vec<(Kind, Index)>, Flaw> {
    let mut reader = Reader::versioned(value)?;
    let mut ends = Vec::with_capacity(reader.0.len() / END_BYTES);
    while !reader.0.is_empty() {
        let kind = match reader.byte()? {
            0 => Kind::Claim,
            1 => Kind::Mark,
            _ => return Err("it names an unknown kind"),
        };
        ends.push((kind, Index::from_bytes(reader.array()?)));
    }
    Ok(ends)
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
