//! Claims and marks as bytes.
//!
//! Decoding checks every length and never panics. Bytes that do not decode are an error, never an absent record, because an
//! absent record would be granted again.
//!
//! ```text
//! claim     1 version = 1 │ 1 flags │ number attempt, renewals, epoch, claimed_at, renewed after, lease_ms, retention_ms
//!           16 nonce │ 16 token │ [32 fingerprint] │ [32 caller] │ text tenant │ text route │ text key │ metadata │ state
//! flags     bit 0: the holder is a remote caller; bit 1: a fingerprint follows (without it: all zeros); bit 2: a caller follows
//! number    7 bits in each byte, the lowest first; the highest bit says that another byte follows
//! text      number length │ UTF-8
//! metadata  number count │ (text name │ text value)*
//! state     0                                                            running
//!           1 │ number since │ 0 lapsed, 1 holder gone, 2 │ text         in doubt
//!           2 │ number completed_at │ 0 │ number length │ bytes           done, with its outcome
//!           2 │ number completed_at │ 1 │ text                            done, with a tombstone and its reason
//!           2 │ number completed_at │ 2 │ 8 commit │ 4 number │ 4 length │ 4 checksum      done; the outcome has a file of its own
//!           2 │ number completed_at │ 3 │ number length │ number compressed │ LZ4        done, with its outcome, compressed
//! mark      1 version = 1 │ 16 nonce │ number marked_at, expires_at │ text key │ metadata
//! ```

use std::cell::RefCell;

use bytes::Bytes;
use ichido_core::{
    Caller, Done, Doubt, DoubtReason, Fingerprint, Holder, Key, MarkKey, Metadata, Nonce, Outcome, Record,
    Scope, State, Timestamp, Token, mark,
};
use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};

use super::reader::{Flaw, Reader, VERSION};

/// The state of a claim that runs.
pub(crate) const RUNNING: u8 = 0;
const REMOTE: u8 = 1;
const FINGERPRINT: u8 = 2;
const CALLER: u8 = 4;
/// Shorter outcomes are not compressed.
const COMPRESSED_MIN: usize = 128;

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
    put_number(out, u64::from(record.attempt));
    put_number(out, u64::from(record.renewals));
    let renewed_after = record.renewed_at.0.wrapping_sub(record.claimed_at.0);
    for number in [epoch, record.claimed_at.0, renewed_after, record.lease_ms, record.retention_ms] {
        put_number(out, number);
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

/// Adds the state of a claim to `out`.
pub(crate) fn put_state(out: &mut Vec<u8>, state: &State, file: Option<OutcomeFile>) {
    match state {
        State::Running => out.push(RUNNING),
        State::InDoubt(doubt) => {
            out.push(1);
            put_number(out, doubt.since.0);
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
            put_number(out, done.completed_at.0);
            match (&done.outcome, file) {
                (Outcome::Kept(_), Some(file)) => {
                    out.push(2);
                    out.extend(file.commit.to_be_bytes());
                    for number in [file.number, file.length, file.checksum] {
                        out.extend(number.to_be_bytes());
                    }
                }
                (Outcome::Kept(bytes), None) => put_outcome(out, bytes),
                (Outcome::Tombstone(reason), _) => {
                    out.push(1);
                    put_text(out, reason);
                }
            }
        }
    }
}

/// Compresses an outcome if that saves an eighth of it. Responses often repeat themselves.
fn put_outcome(out: &mut Vec<u8>, bytes: &[u8]) {
    let is_compressed = bytes.len() >= COMPRESSED_MIN
        && COMPRESSOR.with_borrow_mut(|compressor| {
            let compressed = compressor.compress(bytes);
            let is_smaller = compressed.len() * 8 <= bytes.len() * 7;
            if is_smaller {
                out.push(3);
                put_number(out, bytes.len() as u64);
                put_number(out, compressed.len() as u64);
                out.extend(compressed);
            }
            is_smaller
        });
    if !is_compressed {
        out.push(0);
        put_number(out, bytes.len() as u64);
        out.extend(bytes);
    }
}

thread_local! {
    /// Almost all outcomes are written by one thread, which keeps the memory that compression needs.
    static COMPRESSOR: RefCell<Compressor> = RefCell::default();
}

#[derive(Default)]
struct Compressor {
    table: CompressTable,
    buffer: Vec<u8>,
}

impl Compressor {
    fn compress(&mut self, bytes: &[u8]) -> &[u8] {
        self.buffer.resize(get_maximum_output_size(bytes.len()), 0);
        let written = compress_into_with_table(bytes, &mut self.buffer, &mut self.table);
        &self.buffer[..written.unwrap_or(bytes.len())]
    }
}

/// Reads a claim.
pub(crate) fn decode_claim(bytes: &[u8]) -> Result<StoredClaim, Flaw> {
    let mut reader = Reader::versioned(bytes)?;
    let flags = reader.byte()?;
    if flags & !(REMOTE | FINGERPRINT | CALLER) != 0 {
        return Err("it was written by another version, or is damaged");
    }
    let attempt = reader.small_number()?;
    let renewals = reader.small_number()?;
    let epoch = reader.number()?;
    let claimed_at = Timestamp(reader.number()?);
    let renewed_at = Timestamp(claimed_at.0.wrapping_add(reader.number()?));
    let lease_ms = reader.number()?;
    let retention_ms = reader.number()?;
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
    let key = Key::stored(scope, reader.text()?).map_err(|_| "its key is outside the limits")?;
    let metadata = reader.metadata()?;
    let (state, outcome_file) = read_state(&mut reader)?;
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

/// The state of a claim, and the file of its outcome if it has one. Such an outcome is empty here.
fn read_state(reader: &mut Reader<'_>) -> Result<(State, Option<OutcomeFile>), Flaw> {
    match reader.byte()? {
        RUNNING => Ok((State::Running, None)),
        1 => {
            let since = Timestamp(reader.number()?);
            let reason = match reader.byte()? {
                0 => DoubtReason::LeaseLapsed,
                1 => DoubtReason::HolderGone,
                2 => DoubtReason::Declared(reader.text()?.to_owned()),
                _ => return Err("its doubt has an unknown reason"),
            };
            Ok((State::InDoubt(Doubt { since, reason }), None))
        }
        2 => {
            let completed_at = Timestamp(reader.number()?);
            let (outcome, file) = match reader.byte()? {
                0 => {
                    let length = reader.length()?;
                    (Outcome::Kept(Bytes::copy_from_slice(reader.take(length)?)), None)
                }
                1 => (Outcome::Tombstone(reader.text()?.to_owned()), None),
                2 => (Outcome::Kept(Bytes::new()), Some(read_outcome_file(reader)?)),
                3 => (Outcome::Kept(read_compressed(reader)?), None),
                _ => return Err("its outcome is of an unknown kind"),
            };
            Ok((State::Done(Done { outcome, completed_at }), file))
        }
        _ => Err("it is in an unknown state"),
    }
}

fn read_compressed(reader: &mut Reader<'_>) -> Result<Bytes, Flaw> {
    let (length, compressed) = (reader.length()?, reader.length()?);
    let compressed = reader.take(compressed)?;
    // Nothing compresses better than this, so a damaged length does not take much memory.
    if length > compressed.len().saturating_mul(255) {
        return Err("a length is too large");
    }
    let bytes = lz4_flex::block::decompress(compressed, length);
    let bytes = bytes.map_err(|_| "its outcome cannot be decompressed")?;
    if bytes.len() == length { Ok(Bytes::from(bytes)) } else { Err("its outcome is cut short") }
}

fn read_outcome_file(reader: &mut Reader<'_>) -> Result<OutcomeFile, Flaw> {
    let (commit, number) = (reader.u64()?, reader.u32()?);
    let (length, checksum) = (reader.u32()?, reader.u32()?);
    Ok(OutcomeFile { commit, number, length, checksum })
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
    put_number(out, record.marked_at.0);
    put_number(out, record.expires_at.0);
    put_text(out, record.key.text());
    put_metadata(out, &record.metadata);
}

/// Reads a mark.
pub(crate) fn decode_mark(bytes: &[u8]) -> Result<mark::Record, Flaw> {
    let mut reader = Reader::versioned(bytes)?;
    let nonce = Nonce::from_bytes(reader.array()?);
    let marked_at = Timestamp(reader.number()?);
    let expires_at = Timestamp(reader.number()?);
    let key = MarkKey::stored(reader.text()?).map_err(|_| "its key is outside the limits")?;
    let metadata = reader.metadata()?;
    reader.end()?;
    Ok(mark::Record { key, nonce, marked_at, expires_at, metadata })
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_number(out, text.len() as u64);
    out.extend(text.as_bytes());
}

fn put_metadata(out: &mut Vec<u8>, metadata: &Metadata) {
    let pairs = metadata.iter();
    put_number(out, pairs.len() as u64);
    for (name, value) in pairs {
        put_text(out, name);
        put_text(out, value);
    }
}

fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

#[cfg(test)]
mod tests {
    use ichido_core::{Done, Doubt};

    use super::*;

    fn record(state: State) -> Record {
        Record {
            key: Key::new(Scope::new("tenant", "POST /orders"), "order-1").unwrap(),
            fingerprint: Fingerprint::of(["x"]),
            caller: Some(Caller::from_bytes([3; 32])),
            nonce: Nonce::from_bytes([1; 16]),
            token: Token::from_bytes([2; 16]),
            attempt: 300,
            holder: Holder::Remote,
            claimed_at: Timestamp(1_700_000_000_000),
            renewed_at: Timestamp(u64::MAX),
            renewals: u32::MAX,
            lease_ms: 30_000,
            retention_ms: 0,
            metadata: Metadata::new([("file_id".to_owned(), "F".repeat(200))]).unwrap(),
            state,
        }
    }

    fn states() -> Vec<State> {
        let doubt = |reason| State::InDoubt(Doubt { since: Timestamp(7), reason });
        let done = |outcome| State::Done(Done { outcome, completed_at: Timestamp(1_700_000_000_001) });
        let noise: Vec<u8> =
            (0..64_u32).flat_map(|number| *Fingerprint::of([number.to_be_bytes()]).as_bytes()).collect();
        vec![
            State::Running,
            doubt(DoubtReason::LeaseLapsed),
            doubt(DoubtReason::HolderGone),
            doubt(DoubtReason::Declared("timeout".to_owned())),
            done(Outcome::kept("")),
            done(Outcome::kept("short")),
            done(Outcome::kept("response ".repeat(100))),
            done(Outcome::kept(noise)),
            done(Outcome::Tombstone("too large".to_owned())),
        ]
    }

    #[test]
    fn claims_are_read_as_they_were_written() {
        for state in states() {
            let record = record(state);
            let mut bytes = Vec::new();
            encode_claim(&record, 9, None, &mut bytes);
            let stored = decode_claim(&bytes).unwrap();
            assert_eq!((stored.record, stored.epoch, stored.outcome_file), (record, 9, None));
            for length in 0..bytes.len() {
                assert!(decode_claim(&bytes[..length]).is_err(), "cut to {length} of {}", bytes.len());
            }
        }
    }

    #[test]
    fn repetitive_outcomes_are_compressed() {
        let outcome = Outcome::kept("response ".repeat(100));
        let mut bytes = Vec::new();
        encode_claim(&record(State::Done(Done { outcome, completed_at: Timestamp(1) })), 1, None, &mut bytes);
        assert!(bytes.len() < 500, "{} bytes", bytes.len());
    }

    /// Bytes that were changed never make decoding panic or take much memory.
    #[test]
    fn damaged_bytes_do_not_panic() {
        for state in states() {
            let mut bytes = Vec::new();
            encode_claim(&record(state), 9, None, &mut bytes);
            for at in 0..bytes.len() {
                for mask in [1, 0x80, 0xff] {
                    bytes[at] ^= mask;
                    drop(decode_claim(&bytes));
                    bytes[at] ^= mask;
                }
            }
        }
    }
}
