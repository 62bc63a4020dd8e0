//! Reads rows as records.
//!
//! Texts are stored as `bytea`, because a caller's key may contain any character, and PostgreSQL's `text` cannot
//! hold NUL. Times are milliseconds since the epoch. `doubt_at` is when the claim became or will become in doubt
//! (the end of the lease), and `over_at` is when the record expires. With these two, statements can change a claim
//! without knowing how long a claim stays in doubt, which only the rules know.

use std::collections::BTreeMap;

use bytes::Bytes;
use ichido_core::{
    Caller, Done, Doubt, DoubtReason, Fingerprint, Holder, Index, Key, Metadata, Nonce, Outcome, Record,
    Scope, State, Timestamp, Token, to_hex,
};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Json};

use crate::{BoxError, Error, Kind, Result};

/// A record as it was read, and the version to compare when it is replaced.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) record: Record,
    pub(super) version: i64,
}

impl Found {
    /// The record in a row, if there is one.
    pub(super) fn read(row: &Row) -> Result<Option<Self>> {
        let index: Option<&[u8]> = column(row, "index")?;
        let Some(index) = index else { return Ok(None) };
        let found = read(row).map_err(|cause| {
            let text =
                format!("claim {} is unreadable: it was not written by ichido, or is damaged", to_hex(index));
            Error::new(Kind::Corrupt(text), "reading a claim from PostgreSQL").caused_by(cause)
        })?;
        Ok(Some(found))
    }
}

/// The server's clock when the row was produced.
pub(super) fn now(row: &Row) -> Result<Timestamp> {
    let now: i64 = column(row, "now")?;
    u64::try_from(now).map(Timestamp).map_err(|cause| corrupt_column("now", cause))
}

/// A column's value.
pub(super) fn column<'a, T: FromSql<'a>>(row: &'a Row, name: &'static str) -> Result<T> {
    row.try_get(name).map_err(|cause| corrupt_column(name, cause))
}

/// Metadata as it is stored.
pub(super) fn metadata(pairs: Json<BTreeMap<String, String>>) -> Result<Metadata, BoxError> {
    Ok(Metadata::new(pairs.0)?)
}

/// A column that does not hold what it should.
pub(super) fn corrupt_column(name: &'static str, cause: impl Into<BoxError>) -> Error {
    let text = format!("column {name} of a row is unreadable: it was not written by ichido, or is damaged");
    Error::new(Kind::Corrupt(text), "reading from PostgreSQL").caused_by(cause)
}

fn read(row: &Row) -> Result<Found, BoxError> {
    let text = |name| -> Result<String, BoxError> { Ok(String::from_utf8(row.try_get(name)?)?) };
    let number = |name| -> Result<u64, BoxError> { Ok(u64::try_from(row.try_get::<_, i64>(name)?)?) };
    let key = Key::stored(Scope::new(text("tenant")?, text("route")?), text("key")?)?;
    if key.index() != Index::from_bytes(fixed(row, "index")?) {
        return Err("the key does not match its index".into());
    }
    let record = Record {
        key,
        fingerprint: Fingerprint::from_bytes(fixed(row, "fingerprint")?),
        caller: caller(row)?,
        nonce: Nonce::from_bytes(fixed(row, "nonce")?),
        token: Token::from_bytes(fixed(row, "token")?),
        attempt: u32::try_from(number("attempt")?)?,
        holder: holder(row.try_get("holder")?)?,
        claimed_at: Timestamp(number("claimed_at")?),
        renewed_at: Timestamp(number("renewed_at")?),
        renewals: u32::try_from(number("renewals")?)?,
        lease_ms: number("lease_ms")?,
        retention_ms: number("retention_ms")?,
        metadata: metadata(row.try_get("metadata")?)?,
        state: state(row)?,
    };
    Ok(Found { record, version: row.try_get("version")? })
}

fn fixed<const N: usize>(row: &Row, name: &str) -> Result<[u8; N], BoxError> {
    Ok(row.try_get::<_, &[u8]>(name)?.try_into()?)
}

fn caller(row: &Row) -> Result<Option<Caller>, BoxError> {
    let bytes = row.try_get::<_, Option<&[u8]>>("caller")?;
    Ok(bytes.map(<[u8; 32]>::try_from).transpose()?.map(Caller::from_bytes))
}

fn holder(name: &str) -> Result<Holder, BoxError> {
    match name {
        "process" => Ok(Holder::Process),
        "remote" => Ok(Holder::Remote),
        _ => Err("unknown holder".into()),
    }
}

fn state(row: &Row) -> Result<State, BoxError> {
    match row.try_get("state")? {
        "running" => Ok(State::Running),
        "in-doubt" => {
            let since = Timestamp(u64::try_from(row.try_get::<_, i64>("doubt_at")?)?);
            let reason = match row.try_get("doubt_kind")? {
                "lease-lapsed" => DoubtReason::LeaseLapsed,
                "holder-gone" => DoubtReason::HolderGone,
                "declared" => DoubtReason::Declared(String::from_utf8(row.try_get("doubt_reason")?)?),
                _ => return Err("unknown kind of doubt".into()),
            };
            Ok(State::InDoubt(Doubt { since, reason }))
        }
        "done" => {
            let completed_at = Timestamp(u64::try_from(row.try_get::<_, i64>("completed_at")?)?);
            // Listings do not read the outcome.
            let bytes = row.try_get::<_, Option<&[u8]>>("outcome")?.unwrap_or_default();
            let outcome = match row.try_get("outcome_kept")? {
                true => Outcome::Kept(Bytes::copy_from_slice(bytes)),
                false => Outcome::Tombstone(std::str::from_utf8(bytes)?.to_owned()),
            };
            Ok(State::Done(Done { outcome, completed_at }))
        }
        _ => Err("unknown state".into()),
    }
}
