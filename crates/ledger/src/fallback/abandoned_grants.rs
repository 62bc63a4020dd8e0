//! Orphans: grants that the primary may have made without an answer, and that nobody holds. They are to be released
//! there.
//!
//! Each is kept in the local ledger as a completed record of its own, in a scope that no caller uses, so it is as
//! durable as the rest of what is owed.

use ichido_core::{
    Done, Fingerprint, Holder, Key, LimitError, Metadata, Nonce, Outcome, Record, Scope, State, Timestamp,
    Token,
};

use crate::Summary;

/// The routes of gateways begin with a method, those of APIs with a slash.
const ROUTE: &str = "ichido:orphans";
/// By then the grant has lapsed, and its doubt has ended.
const KEPT_MS: u64 = 31 * 86_400_000;

/// A grant that nobody holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Orphan {
    pub(super) key: Key,
    pub(super) token: Token,
}

impl Orphan {
    /// Where it is kept in the local ledger.
    pub(super) fn place(&self) -> Result<Key, LimitError> {
        Key::new(Scope::new("", ROUTE), self.token.to_string())
    }

    pub(super) fn record(&self, now: Timestamp) -> Result<Record, LimitError> {
        let scope = self.key.scope();
        let parts = [("key", self.key.text()), ("tenant", &scope.tenant), ("route", &scope.route)];
        let parts = parts.map(|(name, text)| (name.to_owned(), text.to_owned()));
        let outcome = Outcome::Tombstone("to be released in the ledger".to_owned());
        Ok(Record {
            key: self.place()?,
            fingerprint: Fingerprint::NONE,
            caller: None,
            nonce: Nonce::from_bytes(*self.token.as_bytes()),
            token: self.token,
            attempt: 1,
            holder: Holder::Process,
            claimed_at: now,
            renewed_at: now,
            renewals: 0,
            lease_ms: 1,
            retention_ms: KEPT_MS,
            metadata: Metadata::new(parts)?,
            state: State::Done(Done { outcome, completed_at: now }),
        })
    }

    pub(super) fn is_one(summary: &Summary) -> bool {
        summary.route == ROUTE && summary.tenant.is_empty()
    }

    /// The orphan in a record, if it is one.
    pub(super) fn read(summary: &Summary) -> Option<Self> {
        let part = |name| summary.metadata.get(name).filter(|_| Self::is_one(summary));
        let key = Key::new(Scope::new(part("tenant")?, part("route")?), part("key")?).ok()?;
        Some(Self { key, token: summary.key.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_orphan_survives_its_record() {
        let long = "x".repeat(1024);
        let key = Key::new(Scope::new(&long, &long), long).unwrap();
        let orphan = Orphan { key, token: Token::from_bytes([7; 16]) };
        let record = orphan.record(Timestamp(5)).unwrap();
        assert_eq!(Orphan::read(&Summary::of(&record, Timestamp(6)).unwrap()), Some(orphan));
    }
}
