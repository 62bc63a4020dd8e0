//! Claims: read, decide by the rules, write the decision.
//!
//! A first grant, and every call that changes nothing, is one round trip. A change to an existing record (a
//! takeover, an operator's resolution) takes a second one. It only writes if the record is still the one that was
//! read; otherwise the call fails with [`Kind::Contended`]. So does a call that neither wrote nor saw anything: a
//! concurrent change was hidden from its snapshot, and nobody may conclude that it was granted.

use ichido_core::rules::{self, Change, Decision};
use ichido_core::{
    Adopted, Claim, ClaimRequest, Key, Phase, Record, Resolution, Resolved, Settle, Settled, Timestamp, Token,
};
use tokio_postgres::Row;

use super::batches::{Claims, Completion, Inserted};
use super::connections::Param;
use super::row::{self, Found, column};
use super::store::Postgres;
use super::values::{Times, Values, number, outcome};
use crate::{Error, Kind, Result};

impl Postgres {
    pub(super) async fn claim_key(&self, request: &ClaimRequest) -> Result<Claim> {
        let fresh = rules::claim(None, request, Timestamp::default());
        let found = match fresh.change {
            Change::Put(record) => self.batches.claims.call(record).await?,
            Change::Keep | Change::Remove => return Ok(fresh.result),
        };
        let Inserted::No { found, now } = found else { return Ok(fresh.result) };
        let decision = rules::claim(Some(&found.record), request, now);
        if matches!(decision.change, Change::Put(_))
            && found.record.phase(now) == (Phase::Expired { in_doubt: true })
        {
            crate::backend::warn_doubt_expired(&found.record);
        }
        self.write(Claims::DOING, &found, decision, Times::CountedFrom(now)).await
    }

    pub(super) async fn adopt_record(&self, record: &Record) -> Result<Adopted> {
        const DOING: &str = "adopting a claim in PostgreSQL";
        let (found, now) = self.read(DOING, &record.key).await?;
        let decision = rules::adopt(found.as_ref().map(|found| &found.record), record, now);
        match (found, decision) {
            (Some(found), decision) => self.write(DOING, &found, decision, Times::AsGiven).await,
            (None, Decision { result, change: Change::Put(record) }) => {
                match self.insert(DOING, &record).await? {
                    Inserted::Yes => Ok(result),
                    Inserted::No { .. } => Err(Error::new(Kind::Contended, DOING)),
                }
            }
            (None, Decision { result, change: Change::Keep | Change::Remove }) => Ok(result),
        }
    }

    pub(super) async fn resolve_claim(&self, key: &Key, resolution: &Resolution) -> Result<Resolved> {
        const DOING: &str = "resolving a claim in PostgreSQL";
        let (found, now) = self.read(DOING, key).await?;
        let decision = rules::resolve(found.as_ref().map(|found| &found.record), resolution, now);
        match found {
            Some(found) => self.write(DOING, &found, decision, Times::AsGiven).await,
            None => Ok(decision.result),
        }
    }

    pub(super) async fn get_claim(&self, key: &Key) -> Result<Option<Record>> {
        let (found, now) = self.read("reading a claim from PostgreSQL", key).await?;
        Ok(found.map(|found| found.record).filter(|record| now < record.expires_at()))
    }

    /// One statement: writes if the token is current and the claim is open, and otherwise reads what is there.
    ///
    /// A completion is first sent with others. If that did not write it, its own statement finds out why, and waits if
    /// an application's transaction is completing the claim.
    pub(super) async fn settle_claim(&self, key: &Key, token: Token, action: &Settle) -> Result<Settled> {
        const DOING: &str = "settling a claim in PostgreSQL";
        if let Settle::Complete(outcome) = action {
            let completion = Completion { index: key.index(), token, outcome: outcome.clone() };
            if self.batches.completions.call(completion).await? {
                return Ok(Settled::Applied);
            }
        }
        let (index, fence) = (key.index(), token.as_bytes().as_slice());
        let index = index.as_bytes().as_slice();
        let rows = match action {
            Settle::Renew { lease_ms } => {
                self.server
                    .connections
                    .query(DOING, &self.server.sql.renew, &[&index, &fence, &number(*lease_ms)])
                    .await
            }
            Settle::Complete(answer) => {
                let (kept, bytes) = outcome(answer);
                self.server
                    .connections
                    .query(DOING, &self.server.sql.complete, &[&index, &fence, &kept, &bytes])
                    .await
            }
            Settle::Doubt(reason) => {
                self.server
                    .connections
                    .query(DOING, &self.server.sql.doubt, &[&index, &fence, &reason.as_bytes()])
                    .await
            }
            Settle::Release => {
                self.server.connections.query(DOING, &self.server.sql.release, &[&index, &fence]).await
            }
        };
        let row = single_row(rows?, DOING)?;
        settled(&row, token, action, DOING)
    }

    async fn insert(&self, doing: &'static str, record: &Record) -> Result<Inserted> {
        let values = Values::of(record, Times::AsGiven);
        let rows = self.server.connections.query(doing, &self.server.sql.insert, &values.params()).await?;
        Inserted::read(&single_row(rows, doing)?, doing)
    }

    /// Writes a change if the record is still the one that was found, and then returns the answer.
    async fn write<A>(
        &self,
        doing: &'static str,
        found: &Found,
        decision: Decision<A, Record>,
        times: Times,
    ) -> Result<A> {
        let fence = found.record.token.as_bytes().as_slice();
        let written = match decision.change {
            Change::Keep => return Ok(decision.result),
            Change::Put(record) => {
                let values = Values::of(&record, times);
                let seen: [Param<'_>; 2] = [&fence, &found.version];
                let params = [&values.params()[..], &seen].concat();
                self.server.connections.query(doing, &self.server.sql.replace, &params).await?
            }
            Change::Remove => {
                let index = found.record.key.index();
                let params: [Param<'_>; 3] = [&index.as_bytes().as_slice(), &fence, &found.version];
                self.server.connections.query(doing, &self.server.sql.remove, &params).await?
            }
        };
        if written.is_empty() { Err(Error::new(Kind::Contended, doing)) } else { Ok(decision.result) }
    }

    async fn read(&self, doing: &'static str, key: &Key) -> Result<(Option<Found>, Timestamp)> {
        let index = key.index();
        let rows = self
            .server
            .connections
            .query(doing, &self.server.sql.read, &[&index.as_bytes().as_slice()])
            .await?;
        let row = single_row(rows, doing)?;
        Ok((Found::read(&row)?, row::now(&row)?))
    }
}

/// The result of a settlement, from the statement's row.
pub(super) fn settled(row: &Row, token: Token, action: &Settle, doing: &'static str) -> Result<Settled> {
    if column(row, "written")? {
        return Ok(Settled::Applied);
    }
    let found = Found::read(row)?;
    let decision = rules::settle(found.as_ref().map(|found| &found.record), token, action, row::now(row)?);
    match decision.change {
        Change::Keep => Ok(decision.result),
        // According to the snapshot it should have been written. It was not, so the snapshot is out of date.
        Change::Put(_) | Change::Remove => Err(Error::new(Kind::Contended, doing)),
    }
}

/// Every statement that reads the clock returns exactly one row.
pub(super) fn single_row(mut rows: Vec<Row>, doing: &'static str) -> Result<Row> {
    rows.pop().ok_or_else(|| Error::new(Kind::Contended, doing))
}
