//! Converts claims to items and back.
//!
//! Every attribute of a claim starts with `ichido_` and is readable in any console: identifiers are hexadecimal,
//! times are milliseconds since the epoch. Only completed claims have a `ttl`, so DynamoDB never removes a claim
//! that is running or in doubt. An item of another format is refused: it is neither read nor granted.

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use bytes::Bytes;
use ichido_core::{
    Done, Doubt, DoubtReason, Holder, Index, Key, Metadata, Outcome, Record, Scope, State, Timestamp,
};

use super::table::{Condition, EVENT_KEY, Item, TTL, key_of, number, text};
use crate::{Error, Kind, Result};

/// The format of a claim without a caller.
pub(super) const FORMAT: u64 = 1;
/// The format of a claim with a caller. A version that does not know callers must not reveal its outcome to others.
pub(super) const FORMAT_CALLER: u64 = 2;
/// The prefix of claims' keys.
pub(super) const CLAIMS: &str = "ichido#";
/// Larger outcomes are replaced by a tombstone. DynamoDB allows 400 KB per item including names; key, scope,
/// metadata and the rest take at most 14 KB by the limits of the core.
pub(super) const OUTCOME_BYTES: usize = 350 * 1024;

pub(super) const RUNNING: &str = "running";
pub(super) const IN_DOUBT: &str = "in-doubt";
pub(super) const DONE: &str = "done";

/// What a listing needs: everything but the outcome.
pub(super) const WITHOUT_OUTCOME: &str = "event_key, #ttl, ichido_format, ichido_state, ichido_token, ichido_nonce, \
    ichido_fingerprint, ichido_caller, ichido_attempt, ichido_holder, ichido_renewals, ichido_lease_ms, ichido_retention_ms, \
    ichido_claimed_at, ichido_renewed_at, ichido_tenant, ichido_route, ichido_key, ichido_metadata, ichido_doubt, \
    ichido_doubt_since, ichido_doubt_text, ichido_completed_at, ichido_outcome_bytes";

/// The key of a claim's item.
pub(super) fn claim_key(index: Index) -> String {
    format!("{CLAIMS}{index}")
}

/// An outcome as it fits into an item.
pub(super) fn fitting(outcome: &Outcome) -> Outcome {
    match outcome {
        Outcome::Kept(bytes) if bytes.len() > OUTCOME_BYTES => Outcome::Tombstone(format!(
            "the outcome has {} bytes; a dynamodb: ledger keeps at most {OUTCOME_BYTES}",
            bytes.len()
        )),
        Outcome::Kept(_) | Outcome::Tombstone(_) => outcome.clone(),
    }
}

/// The item of a record.
pub(super) fn encode(record: &Record) -> Item {
    let scope = record.key.scope();
    let holder = match record.holder {
        Holder::Process => "process",
        Holder::Remote => "remote",
    };
    let metadata = record.metadata.iter().map(|(name, value)| (name.to_owned(), text(value))).collect();
    let mut attributes = vec![
        (EVENT_KEY, text(claim_key(record.key.index()))),
        ("ichido_format", number(if record.caller.is_some() { FORMAT_CALLER } else { FORMAT })),
        ("ichido_token", text(record.token.to_string())),
        ("ichido_nonce", text(record.nonce.to_string())),
        ("ichido_fingerprint", text(record.fingerprint.to_string())),
        ("ichido_attempt", number(record.attempt.into())),
        ("ichido_holder", text(holder)),
        ("ichido_renewals", number(record.renewals.into())),
        ("ichido_lease_ms", number(record.lease_ms)),
        ("ichido_retention_ms", number(record.retention_ms)),
        ("ichido_retention_seconds", number(record.retention_ms.div_ceil(1000))),
        ("ichido_claimed_at", number(record.claimed_at.0)),
        ("ichido_renewed_at", number(record.renewed_at.0)),
        ("ichido_over_at", number(record.expires_at().0)),
        ("ichido_tenant", text(&*scope.tenant)),
        ("ichido_route", text(&*scope.route)),
        ("ichido_key", text(record.key.text())),
        ("ichido_metadata", AttributeValue::M(metadata)),
    ];
    attributes.extend(record.caller.map(|caller| ("ichido_caller", text(caller.to_string()))));
    attributes.extend(encode_state(record));
    attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn encode_state(record: &Record) -> Vec<(&'static str, AttributeValue)> {
    match &record.state {
        State::Running => vec![("ichido_state", text(RUNNING))],
        State::InDoubt(doubt) => {
            let (reason, detail) = match &doubt.reason {
                DoubtReason::LeaseLapsed => ("lease-lapsed", ""),
                DoubtReason::HolderGone => ("holder-gone", ""),
                DoubtReason::Declared(text) => ("declared", text.as_str()),
            };
            vec![
                ("ichido_state", text(IN_DOUBT)),
                ("ichido_doubt", text(reason)),
                ("ichido_doubt_since", number(doubt.since.0)),
                ("ichido_doubt_text", text(detail)),
            ]
        }
        State::Done(done) => {
            let mut attributes = vec![
                ("ichido_state", text(DONE)),
                ("ichido_completed_at", number(done.completed_at.0)),
                (TTL, number(record.expires_at().ceil_seconds())),
            ];
            attributes.extend(match fitting(&done.outcome) {
                Outcome::Kept(bytes) => vec![
                    ("ichido_outcome_bytes", number(bytes.len() as u64)),
                    ("ichido_outcome", blob(&bytes)),
                ],
                Outcome::Tombstone(reason) => vec![("ichido_tombstone", text(reason))],
            });
            attributes
        }
    }
}

/// Bytes. Empty ones are `NULL`, as with texts.
pub(super) fn blob(bytes: &Bytes) -> AttributeValue {
    if bytes.is_empty() { AttributeValue::Null(true) } else { AttributeValue::B(Blob::new(&**bytes)) }
}

/// The complete record of an item.
pub(super) fn decode(item: &Item) -> Result<Record> {
    Reader(item).record(|reader| reader.outcome())
}

/// The record of an item that was read [`WITHOUT_OUTCOME`]. If it is completed, its outcome is empty.
pub(super) fn decode_without_outcome(item: &Item) -> Result<Record> {
    Reader(item).record(|_| Ok(Outcome::kept(Bytes::new())))
}

/// The size of an item's outcome, if it was kept.
pub(super) fn outcome_bytes(item: &Item) -> Option<usize> {
    item.get("ichido_outcome_bytes")?.as_n().ok()?.parse().ok()
}

/// How often a claim was renewed, from the result of an update.
pub(super) fn renewals(changed: &Item) -> Option<u32> {
    changed.get("ichido_renewals")?.as_n().ok()?.parse().ok()
}

struct Reader<'a>(&'a Item);

impl Reader<'_> {
    fn record(&self, outcome: impl FnOnce(&Self) -> Result<Outcome>) -> Result<Record> {
        self.check_format()?;
        Ok(Record {
            key: self.key()?,
            fingerprint: self.parsed("ichido_fingerprint")?,
            caller: match self.0.contains_key("ichido_caller") {
                true => Some(self.parsed("ichido_caller")?),
                false => None,
            },
            nonce: self.parsed("ichido_nonce")?,
            token: self.parsed("ichido_token")?,
            attempt: self.number("ichido_attempt")?,
            holder: match self.text("ichido_holder")? {
                "process" => Holder::Process,
                "remote" => Holder::Remote,
                _ => return Err(self.corrupt("ichido_holder")),
            },
            claimed_at: Timestamp(self.number("ichido_claimed_at")?),
            renewed_at: Timestamp(self.number("ichido_renewed_at")?),
            renewals: self.number("ichido_renewals")?,
            lease_ms: self.number("ichido_lease_ms")?,
            retention_ms: self.number("ichido_retention_ms")?,
            metadata: self.metadata()?,
            state: match self.text("ichido_state")? {
                RUNNING => State::Running,
                IN_DOUBT => State::InDoubt(self.doubt()?),
                DONE => {
                    let completed_at = Timestamp(self.number("ichido_completed_at")?);
                    State::Done(Done { outcome: outcome(self)?, completed_at })
                }
                _ => return Err(self.corrupt("ichido_state")),
            },
        })
    }

    fn check_format(&self) -> Result<()> {
        let found = match self.0.get("ichido_format") {
            Some(AttributeValue::N(format))
                if [FORMAT, FORMAT_CALLER].iter().any(|known| *format == known.to_string()) =>
            {
                return Ok(());
            }
            Some(AttributeValue::N(format)) => format!("has format {format}"),
            Some(_) | None => "has no format number".to_owned(),
        };
        let key = key_of(self.0);
        let advice = "another version of ichido wrote it; use that version, or delete the item";
        let text = format!(
            "item {key} {found}, but this version supports formats {FORMAT} and {FORMAT_CALLER}: {advice}"
        );
        Err(Error::new(Kind::Schema(text), "reading a claim from DynamoDB"))
    }

    fn key(&self) -> Result<Key> {
        let scope = Scope::new(self.text("ichido_tenant")?, self.text("ichido_route")?);
        let key = Key::stored(scope, self.text("ichido_key")?).map_err(|_| self.corrupt("ichido_key"))?;
        if claim_key(key.index()) == key_of(self.0) { Ok(key) } else { Err(self.corrupt("ichido_key")) }
    }

    fn metadata(&self) -> Result<Metadata> {
        let Some(AttributeValue::M(map)) = self.0.get("ichido_metadata") else {
            return Err(self.corrupt("ichido_metadata"));
        };
        let pairs = map.iter().map(|(name, value)| Some((name.clone(), plain(value)?.to_owned())));
        let pairs = pairs.collect::<Option<Vec<_>>>().ok_or_else(|| self.corrupt("ichido_metadata"))?;
        Metadata::new(pairs).map_err(|_| self.corrupt("ichido_metadata"))
    }

    fn doubt(&self) -> Result<Doubt> {
        let reason = match self.text("ichido_doubt")? {
            "lease-lapsed" => DoubtReason::LeaseLapsed,
            "holder-gone" => DoubtReason::HolderGone,
            "declared" => DoubtReason::Declared(self.text("ichido_doubt_text")?.to_owned()),
            _ => return Err(self.corrupt("ichido_doubt")),
        };
        Ok(Doubt { since: Timestamp(self.number("ichido_doubt_since")?), reason })
    }

    fn outcome(&self) -> Result<Outcome> {
        match (self.0.get("ichido_outcome"), self.0.get("ichido_tombstone")) {
            (Some(AttributeValue::B(bytes)), None) => Ok(Outcome::kept(bytes.as_ref().to_vec())),
            (Some(AttributeValue::Null(_)), None) => Ok(Outcome::kept(Bytes::new())),
            (None, Some(_)) => Ok(Outcome::Tombstone(self.text("ichido_tombstone")?.to_owned())),
            (Some(_), _) | (None, None) => Err(self.corrupt("ichido_outcome")),
        }
    }

    fn text(&self, name: &str) -> Result<&str> {
        self.0.get(name).and_then(plain).ok_or_else(|| self.corrupt(name))
    }

    fn parsed<T: std::str::FromStr>(&self, name: &str) -> Result<T> {
        self.text(name)?.parse().map_err(|_| self.corrupt(name))
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Result<T> {
        let digits = self.0.get(name).and_then(|value| value.as_n().ok());
        digits.and_then(|digits| digits.parse().ok()).ok_or_else(|| self.corrupt(name))
    }

    fn corrupt(&self, name: &str) -> Error {
        let text = format!("item {}: attribute {name} is missing or damaged", key_of(self.0));
        Error::new(Kind::Corrupt(text), "reading a claim from DynamoDB")
    }
}

/// The record is the one that was read.
pub(super) fn unchanged(record: &Record) -> Condition {
    let state = match record.state {
        State::Running => RUNNING,
        State::InDoubt(_) => IN_DOUBT,
        State::Done(_) => DONE,
    };
    Condition {
        expression: "ichido_token = :token AND ichido_claimed_at = :claimed_at AND ichido_renewals = :renewals \
            AND ichido_state = :state",
        values: vec![
            (":token", text(record.token.to_string())),
            (":claimed_at", number(record.claimed_at.0)),
            (":renewals", number(record.renewals.into())),
            (":state", text(state)),
        ],
    }
}

/// A text that [`text`] wrote.
fn plain(value: &AttributeValue) -> Option<&str> {
    match value.as_s() {
        Ok(text) => Some(text),
        Err(other) => other.is_null().then_some(""),
    }
}

#[cfg(test)]
pub(super) mod tests;
