//! Claims: decided by the rules of the core, written under conditions.
//!
//! A grant is a put under the condition that no item exists. If one exists, the rules decide, and a takeover is a
//! put under the condition that token, renewals and state are still those that were read. A settlement is one
//! update that compares the token, never a snapshot. Only if it is refused is the item read, to find out why.

use std::time::Duration;

use ichido_core::rules::{self, Change, Decision};
use ichido_core::{
    Adopted, Claim, ClaimRequest, Grant, Index, Key, Outcome, Phase, Record, Resolution, Resolved, Settle,
    Settled, Timestamp, Token,
};

use super::error;
use super::item::{self, claim_key};
use super::lease_watch::{AskedAt, Sighting};
use super::store::Dynamo;
use super::table::{Condition, Item, Written, number, text};
use crate::Result;

/// How long a claim stays in doubt. The core defines it through [`Record::over_at`].
const DOUBT_KEPT_MS: u64 = 30 * 86_400_000;

/// The token is current, and the claim is neither completed nor expired.
const HELD: &str = "ichido_token = :token AND ichido_state IN (:running, :doubt) AND ichido_over_at > :now \
    AND ichido_format IN (:format, :format_caller)";

const RENEW: &str = "SET ichido_state = :running, ichido_renewed_at = :now, ichido_lease_ms = :lease, \
    ichido_renewals = ichido_renewals + :one, ichido_over_at = :over \
    REMOVE ichido_doubt, ichido_doubt_since, ichido_doubt_text, #ttl";

const COMPLETE_KEPT: &str = "SET ichido_state = :done, ichido_completed_at = :now, \
    ichido_over_at = ichido_retention_ms + :now, #ttl = ichido_retention_seconds + :seconds, \
    ichido_outcome = :outcome, ichido_outcome_bytes = :size \
    REMOVE ichido_doubt, ichido_doubt_since, ichido_doubt_text";

const COMPLETE_TOMBSTONE: &str = "SET ichido_state = :done, ichido_completed_at = :now, \
    ichido_over_at = ichido_retention_ms + :now, #ttl = ichido_retention_seconds + :seconds, \
    ichido_tombstone = :tombstone \
    REMOVE ichido_doubt, ichido_doubt_since, ichido_doubt_text";

impl Dynamo {
    pub(super) async fn claim_key(&self, request: &ClaimRequest) -> Result<Claim> {
        const DOING: &str = "claiming a key in DynamoDB";
        let index = request.key.index();
        let asked = AskedAt::now(&*self.clock);
        let decision = rules::claim(None, request, asked.wall);
        let found = match self.write(index, None, decision.change, DOING).await? {
            Written::Applied(_) => {
                self.watch.record(index, granted_at(request, asked), self.clock.steady());
                return Ok(decision.result);
            }
            Written::Refused(Some(found)) => item::decode(&found)?,
            Written::Refused(None) => return Err(error::contended(DOING)),
        };
        let judged_at = self.watch.judged_at(&found, asked, self.clock.steady());
        let decision = rules::claim(Some(&found), request, judged_at);
        let Change::Put(granted) = decision.change else { return Ok(without_known_lease(decision.result)) };
        // The rules date a grant by the time of evaluation, which may come from the lease watch.
        let granted = Record { claimed_at: asked.wall, renewed_at: asked.wall, ..granted };
        match self.write(index, Some(&found), Change::Put(granted), DOING).await? {
            Written::Applied(_) => {
                self.watch.record(index, granted_at(request, asked), self.clock.steady());
                if found.phase(judged_at) == (Phase::Expired { in_doubt: true }) {
                    crate::backend::warn_doubt_expired(&found);
                }
                Ok(decision.result)
            }
            Written::Refused(_) => Err(error::contended(DOING)),
        }
    }

    pub(super) async fn settle_claim(&self, key: &Key, token: Token, action: &Settle) -> Result<Settled> {
        const DOING: &str = "settling a claim in DynamoDB";
        let (index, now) = (key.index(), self.clock.now());
        let event_key = claim_key(index);
        let written = match action {
            Settle::Renew { lease_ms } => {
                self.table.update(&event_key, RENEW, renewing(token, *lease_ms, now), DOING).await?
            }
            Settle::Complete(outcome) => {
                let (update, condition) = completing(token, outcome, now);
                self.table.update(&event_key, update, condition, DOING).await?
            }
            Settle::Release => self.table.delete(&event_key, held(token, now), DOING).await?,
            // When the doubt began depends on the lease, so this is the one action that has to read first.
            Settle::Doubt(_) => {
                let decide = |found: Option<&Record>| rules::settle(found, token, action, now);
                return self.read_and_write(key, decide, DOING).await;
            }
        };
        match written {
            Written::Applied(changed) => {
                self.update_watch(index, token, action, &changed);
                Ok(Settled::Applied)
            }
            Written::Refused(found) => {
                let found = found.as_ref().map(item::decode).transpose()?;
                let decision = rules::settle(found.as_ref(), token, action, now);
                match decision.change {
                    Change::Keep => Ok(decision.result),
                    // It was refused, but would be accepted now: something changed in between.
                    Change::Put(_) | Change::Remove => Err(error::contended(DOING)),
                }
            }
        }
    }

    pub(super) async fn adopt_record(&self, foreign: &Record) -> Result<Adopted> {
        const DOING: &str = "adopting a record in DynamoDB";
        let (index, now) = (foreign.key.index(), self.clock.now());
        let decision = rules::adopt(None, foreign, now);
        let found = match self.write(index, None, decision.change, DOING).await? {
            Written::Applied(_) => return Ok(decision.result),
            Written::Refused(Some(found)) => item::decode(&found)?,
            Written::Refused(None) => return Err(error::contended(DOING)),
        };
        let decision = rules::adopt(Some(&found), foreign, now);
        self.write_decision(index, Some(&found), decision, DOING).await
    }

    pub(super) async fn resolve_claim(&self, key: &Key, resolution: &Resolution) -> Result<Resolved> {
        let now = self.clock.now();
        self.read_and_write(
            key,
            |found| rules::resolve(found, resolution, now),
            "resolving a claim in DynamoDB",
        )
        .await
    }

    pub(super) async fn read_claim(&self, key: &Key) -> Result<Option<Record>> {
        let found = self.table.get(&claim_key(key.index()), "reading a claim from DynamoDB").await?;
        found.as_ref().map(item::decode).transpose()
    }

    async fn read_and_write<A>(
        &self,
        key: &Key,
        decide: impl FnOnce(Option<&Record>) -> Decision<A, Record>,
        doing: &'static str,
    ) -> Result<A> {
        let found = self.read_claim(key).await?;
        let decision = decide(found.as_ref());
        self.write_decision(key.index(), found.as_ref(), decision, doing).await
    }

    async fn write_decision<A>(
        &self,
        index: Index,
        found: Option<&Record>,
        decision: Decision<A, Record>,
        doing: &'static str,
    ) -> Result<A> {
        match self.write(index, found, decision.change, doing).await? {
            Written::Applied(_) => Ok(decision.result),
            Written::Refused(_) => Err(error::contended(doing)),
        }
    }

    /// Writes a change if the record it is based on is unchanged.
    async fn write(
        &self,
        index: Index,
        found: Option<&Record>,
        change: Change<Record>,
        doing: &'static str,
    ) -> Result<Written> {
        let condition = found.map_or_else(Condition::absent, item::unchanged);
        match change {
            Change::Keep => Ok(Written::Applied(Item::new())),
            Change::Put(record) => self.table.put(item::encode(&record), condition, doing).await,
            Change::Remove => self.table.delete(&claim_key(index), condition, doing).await,
        }
    }

    fn update_watch(&self, index: Index, token: Token, action: &Settle, changed: &Item) {
        let seen: Duration = self.clock.steady();
        match (action, item::renewals(changed)) {
            (Settle::Renew { .. }, Some(renewals)) => self.watch.renewed(index, token, renewals, seen),
            _ => self.watch.forget(index),
        }
    }
}

/// What a grant looks like that was just written.
fn granted_at(request: &ClaimRequest, asked: AskedAt) -> Sighting {
    Sighting { token: request.token, claimed_at: asked.wall, renewals: 0 }
}

/// A grant that is returned again after a lost reply. Others may have watched it since it was written, so nobody
/// knows what is left of its lease, and its holder must renew it first.
fn without_known_lease(claim: Claim) -> Claim {
    match claim {
        Claim::Granted(grant) => Claim::Granted(Grant { left_ms: 0, ..grant }),
        Claim::Held { .. } | Claim::InDoubt(_) | Claim::Done(_) | Claim::Mismatch | Claim::CallerChanged => {
            claim
        }
    }
}

fn held(token: Token, now: Timestamp) -> Condition {
    Condition {
        expression: HELD,
        values: vec![
            (":token", text(token.to_string())),
            (":running", text(item::RUNNING)),
            (":doubt", text(item::IN_DOUBT)),
            (":now", number(now.0)),
            (":format", number(item::FORMAT)),
            (":format_caller", number(item::FORMAT_CALLER)),
        ],
    }
}

fn renewing(token: Token, lease_ms: u64, now: Timestamp) -> Condition {
    let mut condition = held(token, now);
    condition.values.extend([
        (":lease", number(lease_ms)),
        (":one", number(1)),
        (":over", number((now + lease_ms + DOUBT_KEPT_MS).0)),
    ]);
    condition
}

fn completing(token: Token, outcome: &Outcome, now: Timestamp) -> (&'static str, Condition) {
    let mut condition = held(token, now);
    condition.values.extend([(":done", text(item::DONE)), (":seconds", number(now.ceil_seconds()))]);
    match item::fitting(outcome) {
        Outcome::Kept(bytes) => {
            condition
                .values
                .extend([(":outcome", item::blob(&bytes)), (":size", number(bytes.len() as u64))]);
            (COMPLETE_KEPT, condition)
        }
        Outcome::Tombstone(reason) => {
            condition.values.push((":tombstone", text(reason)));
            (COMPLETE_TOMBSTONE, condition)
        }
    }
}

#[cfg(test)]
mod tests {
    use ichido_core::State;

    use super::*;

    /// Updates compute the end of doubt without reading the record: both must agree.
    #[test]
    fn doubt_lasts_as_long_as_the_core_defines() {
        let record = item::tests::record(State::Running);
        assert_eq!(record.expires_at(), record.renewed_at + record.lease_ms + DOUBT_KEPT_MS);
    }
}
