//! Claims: read, decide by the rules, write the decision.
//!
//! A first grant, every call that changes nothing, and every settlement is one script and so one round trip. A
//! change to an existing record (a takeover, an operator's resolution) takes a second one. It only writes if the
//! record is still the one that was read; otherwise the call fails with [`Kind::Contended`].

use ichido_core::rules::{self, Change, Decision};
use ichido_core::{
    Adopted, Claim, ClaimRequest, Key, Phase, Record, Resolution, Resolved, Settle, Settled, Timestamp, Token,
};

use super::layout::REVISION;
use super::record::{Found, Reply};
use super::store::Redis;
use super::values;
use crate::{Error, Kind, Result};

/// Size of a grant's arguments, for texts of ordinary length.
const GRANT_BYTES: usize = 512;
/// Size of a settlement's arguments, without the outcome.
const SETTLE_BYTES: usize = 64;

/// How the times of a record are written.
#[derive(Clone, Copy, Debug)]
enum Times {
    /// Unchanged.
    AsGiven,
    /// Those of a grant: relative to the server's clock when it is written.
    FromNow,
}

impl Redis {
    pub(super) async fn claim_key(&self, request: &ClaimRequest) -> Result<Claim> {
        const DOING: &str = "claiming a key in Redis";
        let fresh = rules::claim(None, request, Timestamp::default());
        let reply = match fresh.change {
            Change::Put(record) => self.put(DOING, &record, None, Times::FromNow).await?,
            Change::Keep | Change::Remove => return Ok(fresh.result),
        };
        if reply.succeeded() {
            return Ok(fresh.result);
        }
        let found = found(&reply, &request.key)?.ok_or_else(|| Error::new(Kind::Contended, DOING))?;
        let decision = rules::claim(Some(&found.record), request, reply.now);
        let ends_doubt = found.record.phase(reply.now) == (Phase::Expired { in_doubt: true });
        if ends_doubt && matches!(decision.change, Change::Put(_)) {
            crate::backend::warn_doubt_expired(&found.record);
        }
        self.write(DOING, &found, decision, Times::FromNow).await
    }

    pub(super) async fn adopt_record(&self, record: &Record) -> Result<Adopted> {
        const DOING: &str = "adopting a claim in Redis";
        let reply = self.read(DOING, &record.key).await?;
        let found = found(&reply, &record.key)?;
        let decision = rules::adopt(found.as_ref().map(|found| &found.record), record, reply.now);
        match (found, decision) {
            (Some(found), decision) => self.write(DOING, &found, decision, Times::AsGiven).await,
            (None, Decision { result, change: Change::Put(record) }) => {
                let reply = self.put(DOING, &record, None, Times::AsGiven).await?;
                if reply.succeeded() { Ok(result) } else { Err(Error::new(Kind::Contended, DOING)) }
            }
            (None, Decision { result, change: Change::Keep | Change::Remove }) => Ok(result),
        }
    }

    pub(super) async fn resolve_claim(&self, key: &Key, resolution: &Resolution) -> Result<Resolved> {
        const DOING: &str = "resolving a claim in Redis";
        let reply = self.read(DOING, key).await?;
        let found = found(&reply, key)?;
        let decision = rules::resolve(found.as_ref().map(|found| &found.record), resolution, reply.now);
        match found {
            Some(found) => self.write(DOING, &found, decision, Times::AsGiven).await,
            None => Ok(decision.result),
        }
    }

    pub(super) async fn get_claim(&self, key: &Key) -> Result<Option<Record>> {
        let reply = self.read("reading a claim from Redis", key).await?;
        let record = found(&reply, key)?.map(|found| found.record);
        Ok(record.filter(|record| reply.now < record.expires_at()))
    }

    /// One script: writes if the token is current and the claim is open, and otherwise reads what is there.
    pub(super) async fn settle_claim(&self, key: &Key, token: Token, action: &Settle) -> Result<Settled> {
        const DOING: &str = "settling a claim in Redis";
        let bytes = match action {
            Settle::Complete(outcome) => outcome.size(),
            Settle::Renew { .. } | Settle::Doubt(_) | Settle::Release => 0,
        };
        let mut command = self.scripts.settle.command(&self.claim_name(key.index()), SETTLE_BYTES + bytes);
        values::settle(&mut command, token, action);
        let reply = self.scripts.settle.run(DOING, command).await?;
        if reply.succeeded() {
            return Ok(Settled::Applied);
        }
        let found = found(&reply, key)?;
        let decision = rules::settle(found.as_ref().map(|found| &found.record), token, action, reply.now);
        match decision.change {
            Change::Keep => Ok(decision.result),
            // Cannot happen, because the script reads and writes in one step. A retry does no harm.
            Change::Put(_) | Change::Remove => Err(Error::new(Kind::Contended, DOING)),
        }
    }

    async fn read(&self, doing: &'static str, key: &Key) -> Result<Reply> {
        let command = self.scripts.read.command(&self.claim_name(key.index()), 0);
        self.scripts.read.run(doing, command).await
    }

    async fn put(
        &self,
        doing: &'static str,
        record: &Record,
        seen: Option<&Found>,
        times: Times,
    ) -> Result<Reply> {
        let name = self.claim_name(record.key.index());
        let (revision, version) = seen.map_or((&[][..], 0), |seen| (&seen.revision, seen.version));
        let version = values::next(version);
        match times {
            Times::FromNow => {
                let mut command = self.scripts.grant.command(&name, GRANT_BYTES);
                values::grant(command.arg(revision), record, version)?;
                self.scripts.grant.run(doing, command).await
            }
            Times::AsGiven => {
                let value = values::claim(record, version)?;
                let mut command = self.scripts.put.command(&name, REVISION + value.len() + 16);
                command.arg(revision).arg(value).arg(values::expiry(record));
                self.scripts.put.run(doing, command).await
            }
        }
    }

    /// Writes a change if the record is still the one that was found, and then returns the answer.
    async fn write<A>(
        &self,
        doing: &'static str,
        found: &Found,
        decision: Decision<A, Record>,
        times: Times,
    ) -> Result<A> {
        let reply = match decision.change {
            Change::Keep => return Ok(decision.result),
            Change::Put(record) => self.put(doing, &record, Some(found), times).await?,
            Change::Remove => {
                let mut command =
                    self.scripts.remove.command(&self.claim_name(found.record.key.index()), REVISION);
                command.arg(&found.revision[..]);
                self.scripts.remove.run(doing, command).await?
            }
        };
        if reply.succeeded() { Ok(decision.result) } else { Err(Error::new(Kind::Contended, doing)) }
    }
}

/// The claim in a reply, which must have the requested key.
fn found(reply: &Reply, key: &Key) -> Result<Option<Found>> {
    let found = reply.claim(Some(key))?;
    if found.as_ref().is_some_and(|found| found.record.key != *key) {
        let text = format!("the Redis key of claim {} holds another claim", key.index());
        return Err(Error::new(Kind::Corrupt(text), "reading a record from Redis"));
    }
    Ok(found)
}
