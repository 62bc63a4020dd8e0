//! Reads values as records.
//!
//! Every length is checked, and nothing panics. A value that cannot be read is an error, never an absent record,
//! because an absent record would be granted.

use bytes::Bytes;
use ichido_core::mark;
use ichido_core::{Done, Doubt, DoubtReason, Key, MarkKey, Outcome, Record, Scope, State, Timestamp, Token};
use redis::{ParsingError, Value};

use super::layout::{
    COUNT, DECLARED, Event, FORMAT, FORMAT_CALLER, Fixed, GONE, HEAD, KEPT, LAPSED, LENGTH, REVISION,
    RUNNING, TIME, TOMBSTONE,
};
use crate::{BoxError, Error, Kind, Result};

const CLAIM_FORMATS: [u8; 2] = [FORMAT, FORMAT_CALLER];

/// What every script returns: the server's clock, a number, and a value or none.
pub(super) struct Reply {
    pub(super) now: Timestamp,
    number: u64,
    value: Option<Bytes>,
}

/// A claim as it was read, and the revision to compare when it is replaced.
pub(super) struct Found {
    pub(super) record: Record,
    pub(super) revision: Bytes,
    pub(super) version: u64,
    /// The length of the outcome or reason, even if it was not read.
    pub(super) tail_bytes: usize,
}

impl Reply {
    pub(super) fn read(value: Value) -> Result<Self, ParsingError> {
        let mut parts = redis::from_redis_value::<Vec<Value>>(value)?.into_iter();
        let mut next = || parts.next().unwrap_or(Value::Nil);
        Ok(Self {
            now: Timestamp(redis::from_redis_value(next())?),
            number: redis::from_redis_value(next())?,
            value: redis::from_redis_value(next())?,
        })
    }

    /// Whether the script wrote, or found a claim of a known format.
    pub(super) fn succeeded(&self) -> bool {
        self.number == 1
    }

    /// The claim, if there is one. `expected` is the key that it should have.
    pub(super) fn claim(&self, expected: Option<&Key>) -> Result<Option<Found>> {
        self.readable("claim", &CLAIM_FORMATS, |value| read_claim(value, true, expected))
    }

    /// The claim, if there is one, when its outcome was not read.
    pub(super) fn claim_without_outcome(&self) -> Result<Option<Found>> {
        self.readable("claim", &CLAIM_FORMATS, |value| read_claim(value, false, None))
    }

    /// The mark, if there is one.
    pub(super) fn mark(&self) -> Result<Option<mark::Record>> {
        self.readable("mark", &[FORMAT], |value| read_mark(value))
    }

    /// The value as it is stored.
    pub(super) fn value(&self) -> &[u8] {
        self.value.as_deref().unwrap_or_default()
    }

    fn readable<T>(
        &self,
        what: &str,
        formats: &[u8],
        read: impl Fn(&Bytes) -> Result<T, BoxError>,
    ) -> Result<Option<T>> {
        const DOING: &str = "reading a record from Redis";
        let Some(value) = &self.value else { return Ok(None) };
        if !value.first().is_some_and(|format| formats.contains(format)) {
            let known: Vec<_> = formats.iter().map(|format| char::from(*format).to_string()).collect();
            let text = format!(
                "a {what} was written in another format (this version supports {}); update this ichido, or choose \
                 another prefix with ?prefix=",
                known.join(" and ")
            );
            return Err(Error::new(Kind::Schema(text), DOING));
        }
        let corrupt = |cause| {
            let text = format!("a {what} is unreadable: it was not written by ichido, or is damaged");
            Error::new(Kind::Corrupt(text), DOING).caused_by(cause)
        };
        read(value).map(Some).map_err(corrupt)
    }
}

fn read_claim(value: &Bytes, whole: bool, expected: Option<&Key>) -> Result<Found, BoxError> {
    let mut head = Head(value.get(1..).unwrap_or_default());
    let token: Token = head.text(32)?.parse()?;
    let state = head.take(1)?[0];
    let tail = head.size(COUNT)?;
    let since = head.time()?;
    head.time()?;
    let (claimed_at, renewed_at) = (head.time()?, head.time()?);
    let version = head.number(COUNT)?;
    let renewals = u32::try_from(head.number(COUNT)?)?;
    let (lease_ms, retention_ms) = (head.number(TIME)?, head.number(TIME)?);
    let length = head.size(LENGTH)?;
    let fixed: Fixed<'_> = serde_json::from_slice(head.take(length)?)?;
    let left = head.0.len();
    let left_out = !whole && left == 0 && matches!(state, KEPT | TOMBSTONE);
    if left != tail && !left_out {
        return Err("its length does not match its head".into());
    }
    // A known key need not be hashed again.
    let key = match expected.filter(|key| fixed.is_of(key)) {
        Some(key) => key.clone(),
        None => Key::stored(Scope::new(fixed.tenant, fixed.route), fixed.key)?,
    };
    let record = Record {
        key,
        fingerprint: fixed.fingerprint,
        caller: fixed.caller,
        nonce: fixed.nonce,
        token,
        attempt: fixed.attempt,
        holder: fixed.holder,
        claimed_at,
        renewed_at,
        renewals,
        lease_ms,
        retention_ms,
        metadata: fixed.metadata.into_owned(),
        state: read_state(state, since, value.slice(HEAD + length..))?,
    };
    Ok(Found { record, revision: value.slice(..REVISION), version, tail_bytes: tail })
}

fn read_state(state: u8, since: Timestamp, tail: Bytes) -> Result<State, BoxError> {
    let text = || std::str::from_utf8(&tail).map(str::to_owned);
    let doubt = |reason| State::InDoubt(Doubt { since, reason });
    let done = |outcome| State::Done(Done { outcome, completed_at: since });
    Ok(match state {
        RUNNING => State::Running,
        LAPSED => doubt(DoubtReason::LeaseLapsed),
        GONE => doubt(DoubtReason::HolderGone),
        DECLARED => doubt(DoubtReason::Declared(text()?)),
        KEPT => done(Outcome::Kept(tail)),
        TOMBSTONE => done(Outcome::Tombstone(text()?)),
        _ => return Err("unknown state".into()),
    })
}

fn read_mark(value: &[u8]) -> Result<mark::Record, BoxError> {
    let mut head = Head(value.get(1..).unwrap_or_default());
    let (marked_at, expires_at) = (head.time()?, head.time()?);
    let event: Event<'_> = serde_json::from_slice(head.0)?;
    Ok(mark::Record {
        key: MarkKey::stored(event.key)?,
        nonce: event.nonce,
        marked_at,
        expires_at,
        metadata: event.metadata.into_owned(),
    })
}

/// The bytes that are left to read.
struct Head<'a>(&'a [u8]);

impl<'a> Head<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], BoxError> {
        let (taken, left) = self.0.split_at_checked(count).ok_or("it is truncated")?;
        self.0 = left;
        Ok(taken)
    }

    fn text(&mut self, width: usize) -> Result<&'a str, BoxError> {
        Ok(std::str::from_utf8(self.take(width)?)?)
    }

    fn number(&mut self, width: usize) -> Result<u64, BoxError> {
        self.take(width)?.iter().try_fold(0, |number, digit| match digit {
            b'0'..=b'9' => Ok(number * 10 + u64::from(digit - b'0')),
            _ => Err("a number contains other characters than digits".into()),
        })
    }

    fn size(&mut self, width: usize) -> Result<usize, BoxError> {
        Ok(usize::try_from(self.number(width)?)?)
    }

    fn time(&mut self) -> Result<Timestamp, BoxError> {
        self.number(TIME).map(Timestamp)
    }
}

#[cfg(test)]
mod tests {
    use ichido_core::{Caller, Fingerprint, Holder, Metadata, Nonce};

    use super::super::values;
    use super::*;

    fn record(state: State) -> Record {
        let metadata = Metadata::new([("na\"me".to_owned(), "vä\nlue\u{1}".to_owned())]).unwrap();
        Record {
            key: Key::new(Scope::new("ten\\ant", "POST /orders"), "k\"1 一度").unwrap(),
            fingerprint: Fingerprint::of(["asked"]),
            caller: Some(Caller::from_bytes([9; 32])),
            nonce: Nonce::from_bytes([1; 16]),
            token: Token::from_bytes([0xab; 16]),
            attempt: u32::MAX,
            holder: Holder::Remote,
            claimed_at: Timestamp(1_794_845_135_662),
            renewed_at: Timestamp(1_794_845_135_663),
            renewals: u32::MAX,
            lease_ms: 30_000,
            retention_ms: 86_400_000,
            metadata,
            state,
        }
    }

    #[test]
    fn every_state_is_read_as_it_was_written() {
        let since = Timestamp(1_794_845_140_000);
        let doubt = |reason| State::InDoubt(Doubt { since, reason });
        let done = |outcome| State::Done(Done { outcome, completed_at: since });
        for state in [
            State::Running,
            doubt(DoubtReason::LeaseLapsed),
            doubt(DoubtReason::HolderGone),
            doubt(DoubtReason::Declared("a timeout".to_owned())),
            doubt(DoubtReason::Declared(String::new())),
            done(Outcome::kept(vec![0, 1, 2, 255])),
            done(Outcome::kept("")),
            done(Outcome::Tombstone("too large".to_owned())),
        ] {
            let record = record(state);
            let value = Bytes::from(values::claim(&record, 9_999_999_999).unwrap());
            let found = read_claim(&value, true, None).unwrap();
            assert_eq!((&found.record, found.version), (&record, 9_999_999_999));
            assert_eq!(value[HEAD], b'{');
            assert_eq!(found.revision[REVISION - COUNT..], *b"9999999999");
            for cut in 1..value.len() {
                assert!(read_claim(&value.slice(..cut), true, None).is_err(), "{cut}");
            }
        }
    }

    /// Limits forbid such values, but a head must never overflow.
    #[test]
    fn times_in_the_far_future_fit_into_the_head() {
        let far = Record { lease_ms: u64::MAX, retention_ms: u64::MAX, ..record(State::Running) };
        let value = Bytes::from(values::claim(&far, 1).unwrap());
        let found = read_claim(&value, true, Some(&far.key)).unwrap().record;
        assert_eq!(found.lease_ms, 999_999_999_999_999);
        assert_eq!(value[HEAD], b'{');
    }
}
