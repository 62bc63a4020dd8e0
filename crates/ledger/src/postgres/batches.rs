//! Calls that are sent together: first claims of keys, completions, and single marks.
//!
//! A batch decides only what needs no second look. What it did not write is decided by the caller: from the record
//! that was found, or with a statement for that claim alone.

use std::collections::HashSet;

use ichido_core::mark::{self, Mark};
use ichido_core::{Index, Outcome, Record, Timestamp, Token};
use tokio_postgres::Row;

use super::connections::Param;
use super::mark_rows::mark_all;
use super::row::{self, Found, column, corrupt_column};
use super::server::Server;
use super::values::{Grants, Times, Values, outcome};
use crate::coalesce::{Batch, Coalescer};
use crate::{Error, Kind, Result};

/// Rows of one statement.
const CALLS_MAX: usize = 512;
/// Each statement is a commit, which syncs the log of the server. With 64 callers, one batch at a time completes a fifth more
/// requests than two.
const MANY: usize = 8;

pub(super) struct Batches {
    pub(super) claims: Coalescer<Claims>,
    pub(super) completions: Coalescer<Completions>,
    pub(super) marks: Coalescer<Marks>,
}

impl Batches {
    pub(super) fn new(server: &Server) -> Self {
        Self {
            claims: Coalescer::new(Claims(server.clone())),
            completions: Coalescer::new(Completions(server.clone())),
            marks: Coalescer::new(Marks(server.clone())),
        }
    }
}

/// What became of a record that was to be inserted.
pub(super) enum Inserted {
    Yes,
    /// The key exists.
    No {
        found: Box<Found>,
        now: Timestamp,
    },
}

impl Inserted {
    /// Reads a row of `insert.sql` or `claim.sql`.
    pub(super) fn read(row: &Row, doing: &'static str) -> Result<Self> {
        if column(row, "written")? {
            return Ok(Self::Yes);
        }
        match Found::read(row)? {
            Some(found) => Ok(Self::No { found: Box::new(found), now: row::now(row)? }),
            None => Err(Error::new(Kind::Contended, doing)),
        }
    }
}

/// Grants, whose times are relative to the epoch.
pub(super) struct Claims(Server);

impl Claims {
    pub(super) const DOING: &'static str = "claiming a key in PostgreSQL";
}

impl Batch for Claims {
    type Call = Record;
    type Answer = Inserted;

    const CALLS_MAX: usize = CALLS_MAX;
    const MANY: usize = MANY;

    fn exclusive_key(record: &Record) -> Option<Index> {
        Some(record.key.index())
    }

    /// Keys and metadata are short.
    fn bytes(_: &Record) -> usize {
        0
    }

    async fn send(&self, records: &[Record]) -> Result<Vec<Result<Inserted>>> {
        let times = Times::CountedFrom(Timestamp::default());
        let values: Vec<_> = records.iter().map(|record| Values::of(record, times)).collect();
        let grants = Grants::of(&values).map_err(|cause| corrupt_column("metadata", cause))?;
        let rows = self.0.connections.query(Self::DOING, &self.0.sql.claim, &grants.params()).await?;
        let mut answers: Vec<_> =
            records.iter().map(|_| Err(Error::new(Kind::Contended, Self::DOING))).collect();
        for row in &rows {
            let place: i64 = column(row, "place").map_err(Error::with_unknown_effect)?;
            let place = usize::try_from(place).ok().and_then(|place| place.checked_sub(1));
            if let Some(answer) = place.and_then(|place| answers.get_mut(place)) {
                *answer = Inserted::read(row, Self::DOING);
            }
        }
        Ok(answers)
    }
}

/// A completion of a claim.
pub(super) struct Completion {
    pub(super) index: Index,
    pub(super) token: Token,
    pub(super) outcome: Outcome,
}

/// Completions. The answer is whether the claim was completed. If not, a statement for it alone can tell why.
pub(super) struct Completions(Server);

impl Batch for Completions {
    type Call = Completion;
    type Answer = bool;

    const CALLS_MAX: usize = CALLS_MAX;
    const MANY: usize = MANY;

    fn exclusive_key(completion: &Completion) -> Option<Index> {
        Some(completion.index)
    }

    fn bytes(completion: &Completion) -> usize {
        completion.outcome.size()
    }

    async fn send(&self, completions: &[Completion]) -> Result<Vec<Result<bool>>> {
        const DOING: &str = "completing a claim in PostgreSQL";
        let indexes: Vec<_> = completions.iter().map(|one| one.index.as_bytes().as_slice()).collect();
        let tokens: Vec<_> = completions.iter().map(|one| one.token.as_bytes().as_slice()).collect();
        let (kept, outcomes): (Vec<_>, Vec<_>) = completions.iter().map(|one| outcome(&one.outcome)).unzip();
        let params: [Param<'_>; 4] = [&indexes, &tokens, &kept, &outcomes];
        let rows = self.0.connections.query(DOING, &self.0.sql.complete_all, &params).await?;
        let completed = rows.iter().map(|row| column(row, "index")).collect::<Result<HashSet<&[u8]>>>();
        let completed = completed.map_err(Error::with_unknown_effect)?;
        Ok(indexes.iter().map(|index| Ok(completed.contains(index))).collect())
    }
}

/// Single marks.
pub(super) struct Marks(Server);

impl Batch for Marks {
    type Call = mark::Request;
    type Answer = Mark;

    const CALLS_MAX: usize = CALLS_MAX;
    const MANY: usize = MANY;

    fn exclusive_key(request: &mark::Request) -> Option<Index> {
        Some(request.key.index())
    }

    /// Keys and metadata are short.
    fn bytes(_: &mark::Request) -> usize {
        0
    }

    async fn send(&self, requests: &[mark::Request]) -> Result<Vec<Result<Mark>>> {
        Ok(mark_all(&self.0, requests).await?.into_iter().map(Ok).collect())
    }
}
