//! Hashes and records.
//!
//! A record is a hash with names that people can read; times are milliseconds since the epoch, ids and fingerprints
//! hexadecimal. `doubt_at` says when doubt began or will begin (the end of the lease), and `over_at` when the record is
//! forgotten: with the two, scripts can move a claim without knowing how long doubt is kept, which only the rules
//! know. `format` comes first of all: a record of another format is neither read nor changed.

use std::collections::{BTreeMap, HashMap};
use std::str::FromStr;

use bytes::Bytes;
use ichido_core::mark;
use ichido_core::{
    Done, Doubt, DoubtReason, Holder, Key, MarkKey, Metadata, Outcome, Record, Scope, State, Timestamp,
};
use redis::{ParsingError, Value};

use crate::{BoxError, Error, Kind, Result};

/// The version of the hashes.
pub(super) const FORMAT: &str = "1";

/// What every script returns: the server's clock, a number, and a hash.
pub(super) struct Reply {
    pub(super) now: Timestamp,
    pub(super) number: u64,
    pub(super) fields: Fields,
}

impl Reply {
    pub(super) fn read(value: Value) -> Result<Self, ParsingError> {
        let (now, number, fields): (u64, u64, HashMap<String, Bytes>) = redis::from_redis_value(value)?;
        Ok(Self { now: Timestamp(now), number, fields: Fields(fields) })
    }

    /// Whether the script wrote.
    pub(super) fn written(&self) -> bool {
        self.number == 1
    }
}

/// A claim as it was read, and what to compare when it is replaced.
pub(super) struct Found {
    pub(super) record: Record,
    pub(super) version: Vec<u8>,
}

/// The fields of a hash.
pub(super) struct Fields(HashMap<String, Bytes>);

impl Fields {
    /// The claim in the hash, if there is one.
    pub(super) fn claim(&self) -> Result<Option<Found>> {
        self.read("claim", Self::read_claim)
    }

    /// The mark in the hash, if there is one.
    pub(super) fn mark(&self) -> Result<Option<mark::Record>> {
        self.read("mark", Self::read_mark)
    }

    fn read<T>(&self, what: &str, read: impl Fn(&Self) -> Result<T, BoxError>) -> Result<Option<T>> {
        const DOING: &str = "reading a record from Redis";
        if self.0.is_empty() {
            return Ok(None);
        }
        if self.0.get("format").is_none_or(|format| format != FORMAT) {
            let text = format!(
                "a {what} was written in another format (this version knows {FORMAT}): update this ichido, or choose \
                 another prefix with ?prefix="
            );
            return Err(Error::new(Kind::Schema(text), DOING));
        }
        let corrupt = |cause| {
            let text = format!("a {what} cannot be read; it was not written by ichido");
            Error::new(Kind::Corrupt(text), DOING).caused_by(cause)
        };
        read(self).map(Some).map_err(corrupt)
    }

    fn read_claim(&self) -> Result<Found, BoxError> {
        let record = Record {
            key: Key::new(Scope::new(self.text("tenant")?, self.text("route")?), self.text("key")?)?,
            fingerprint: self.parse("fingerprint")?,
            nonce: self.parse("nonce")?,
            token: self.parse("token")?,
            attempt: self.parse("attempt")?,
            holder: match self.text("holder")? {
                "process" => Holder::Process,
                "remote" => Holder::Remote,
                _ => return Err("unknown holder".into()),
            },
            claimed_at: self.time("claimed_at")?,
            renewed_at: self.time("renewed_at")?,
            renewals: self.parse("renewals")?,
            lease_ms: self.parse("lease_ms")?,
            retention_ms: self.parse("retention_ms")?,
            metadata: self.metadata()?,
            state: self.state()?,
        };
        Ok(Found { record, version: self.bytes("version")?.to_vec() })
    }

    fn read_mark(&self) -> Result<mark::Record, BoxError> {
        Ok(mark::Record {
            key: MarkKey::new(self.text("key")?)?,
            nonce: self.parse("nonce")?,
            marked_at: self.time("marked_at")?,
            expires_at: self.time("expires_at")?,
            metadata: self.metadata()?,
        })
    }

    fn state(&self) -> Result<State, BoxError> {
        match self.text("state")? {
            "running" => Ok(State::Running),
            "in-doubt" => {
                let reason = match self.text("doubt_kind")? {
                    "lease-lapsed" => DoubtReason::LeaseLapsed,
                    "holder-gone" => DoubtReason::HolderGone,
                    "declared" => DoubtReason::Declared(self.text("doubt_reason")?.to_owned()),
                    _ => return Err("unknown kind of doubt".into()),
                };
                Ok(State::InDoubt(Doubt { since: self.time("doubt_at")?, reason }))
            }
            "done" => {
                // Listings leave the outcome where it is.
                let bytes = self.0.get("outcome").cloned().unwrap_or_default();
                let outcome = match self.text("outcome_kept")? {
                    "1" => Outcome::Kept(bytes),
                    _ => Outcome::Tombstone(std::str::from_utf8(&bytes)?.to_owned()),
                };
                Ok(State::Done(Done { outcome, completed_at: self.time("completed_at")? }))
            }
            _ => Err("unknown state".into()),
        }
    }

    fn metadata(&self) -> Result<Metadata, BoxError> {
        let pairs: BTreeMap<String, String> = serde_json::from_slice(self.bytes("metadata")?)?;
        Ok(Metadata::new(pairs)?)
    }

    fn time(&self, name: &str) -> Result<Timestamp, BoxError> {
        self.parse(name).map(Timestamp)
    }

    fn parse<T: FromStr<Err: Into<BoxError>>>(&self, name: &str) -> Result<T, BoxError> {
        self.text(name)?.parse().map_err(Into::into)
    }

    fn text(&self, name: &str) -> Result<&str, BoxError> {
        Ok(std::str::from_utf8(self.bytes(name)?)?)
    }

    fn bytes(&self, name: &str) -> Result<&Bytes, BoxError> {
        self.0.get(name).ok_or_else(|| format!("no field {name}").into())
    }
}
