//! Grants that the primary may have made although the reply was lost, and that nobody holds. They must be released
//! there.
//!
//! Each is stored in the local ledger as a completed record in a scope that no caller uses. So it is as durable as
//! everything else that is pending.

use ichido_core::{
    Done, Fingerprint, Holder, Key, LimitError, Metadata, Nonce, Outcome, Record, Scope, State, Timestamp,
    Token,
};

use crate::Summary;

/// Unlike this one, routes of gateways start with a method, and routes of the claim API with a slash.
const ROUTE: &str = "ichido:orphans";
/// Long enough for the grant to lapse and for its doubt to expire.
const KEPT_MS: u64 = 31 * 86_400_000;

/// A grant that nobody holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AbandonedGrant {
    pub(super) key: Key,
    pub(super) token: Token,
}

impl AbandonedGrant {
    /// The key under which it is stored in the local ledger.
    pub(super) fn stored_key(&self) -> Result<Key, LimitError> {
        Key::new(Scope::new("", ROUTE), self.token.to_string())
    }

    pub(super) fn record(&self, now: Timestamp) -> Result<Record, LimitError> {
        let scope = self.key.scope();
        let parts = [("key", self.key.text()), ("tenant", &scope.tenant), ("route", &scope.route)];
        let parts = parts.map(|(name, text)| (name.to_owned(), text.to_owned()));
        let outcome = Outcome::Tombstone("to be released in the ledger".to_owned());
        Ok(Record {
            key: self.stored_key()?,
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

    pub(super) fn is_abandoned_grant(summary: &Summary) -> bool {
        summary.route == ROUTE && summary.tenant.is_empty()
    }

    /// The abandoned grant in a record, if it is one.
    pub(super) fn from_summary(summary: &Summary) -> Option<Self> {
        let part = |name| summary.metadata.get(name).filter(|_| Self::is_abandoned_grant(summary));
        let key = Key::new(Scope::new(part("tenant")?, part("route")?), part("key")?).ok()?;
        Some(Self { key, token: summary.key.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn abandoned_grant_round_trips_through_its_record() {
        let long = "x".repeat(1024);
        let key = Key::new(Scope::new(&long, &long), long).unwrap();
        let grant = AbandonedGrant { key, token: Token::from_bytes([7; 16]) };
        let record = grant.record(Timestamp(5)).unwrap();
        assert_eq!(AbandonedGrant::from_summary(&Summary::of(&record, Timestamp(6)).unwrap()), Some(grant));
    }
}
