//! Marking events in one statement.
//!
//! If another batch marks a key between our snapshot and our insert, that key is neither written nor read. Only
//! such keys are sent again, with the same nonces.

use std::collections::HashMap;

use ichido_core::mark::{self, Mark};
use ichido_core::rules::{self, Change};
use ichido_core::{Index, MarkKey, Nonce, Timestamp};
use tokio_postgres::Row;

use super::connections::Param;
use super::row::{self, column, corrupt_column};
use super::server::Server;
use super::values::number;
use crate::{Error, Kind, Result};

const DOING: &str = "marking events in PostgreSQL";
/// Rounds for keys that were neither written nor read. One more has always been enough.
const ROUNDS: usize = 5;

/// Marks events in one statement, and once more those that another batch marked at the same moment.
pub(super) async fn mark_all(server: &Server, requests: &[mark::Request]) -> Result<Vec<Mark>> {
    let mut answers: HashMap<Index, Mark> = HashMap::with_capacity(requests.len());
    for _ in 0..ROUNDS {
        let open: Vec<_> = requests.iter().filter(|r| !answers.contains_key(&r.key.index())).collect();
        if open.is_empty() {
            break;
        }
        // Events that an earlier round marked stay marked, even if this round fails.
        let is_first = answers.is_empty();
        let rows = query_marks(server, &open).await;
        let rows = rows.map_err(|error| if is_first { error } else { error.with_unknown_effect() })?;
        // If one row is unreadable, the others are marked all the same.
        read_answers(&rows, &open, &mut answers).map_err(Error::with_unknown_effect)?;
    }
    let in_order = requests.iter().map(|request| answers.remove(&request.key.index()));
    // Some of the other events are marked by now.
    in_order.collect::<Option<_>>().ok_or_else(|| Error::new(Kind::Contended, DOING).with_unknown_effect())
}

async fn query_marks(server: &Server, requests: &[&mark::Request]) -> Result<Vec<Row>> {
    let indexes: Vec<_> = requests.iter().map(|request| request.key.index()).collect();
    let indexes: Vec<_> = indexes.iter().map(|index| index.as_bytes().as_slice()).collect();
    let keys: Vec<_> = requests.iter().map(|request| request.key.text().as_bytes()).collect();
    let nonces: Vec<_> = requests.iter().map(|request| request.nonce.as_bytes().as_slice()).collect();
    let retentions: Vec<_> = requests.iter().map(|request| number(request.retention_ms)).collect();
    let metadata: Result<Vec<_>, _> =
        requests.iter().map(|request| serde_json::to_string(&request.metadata)).collect();
    let metadata = metadata.map_err(|cause| corrupt_column("metadata", cause))?;
    let params: [Param<'_>; 5] = [&indexes, &keys, &nonces, &retentions, &metadata];
    server.connections.query(DOING, &server.sql.mark, &params).await
}

/// Reads the results from the rows of one round.
fn read_answers(rows: &[Row], asked: &[&mark::Request], answers: &mut HashMap<Index, Mark>) -> Result<()> {
    let by_index: HashMap<_, _> = asked.iter().map(|request| (request.key.index(), *request)).collect();
    for row in rows {
        let index: &[u8] = column(row, "index")?;
        let index = index.try_into().map(Index::from_bytes).map_err(|e| corrupt_column("index", e))?;
        if let Some(request) = by_index.get(&index)
            && let Some(answer) = answer(row, request)?
        {
            answers.insert(index, answer);
        }
    }
    Ok(())
}

/// The result in a row. `None` if the row shows none.
fn answer(row: &Row, request: &mark::Request) -> Result<Option<Mark>> {
    if column(row, "written")? {
        return Ok(Some(Mark::New));
    }
    if column::<Option<&[u8]>>(row, "nonce")?.is_none() {
        return Ok(None);
    }
    let record = read(row, request.key.clone())?;
    let decision = rules::mark(Some(&record), request, row::now(row)?);
    Ok(match decision.change {
        Change::Keep => Some(decision.result),
        Change::Put(_) | Change::Remove => None,
    })
}

pub(super) fn read(row: &Row, key: MarkKey) -> Result<mark::Record> {
    let nonce: &[u8] = column(row, "nonce")?;
    let time = |name| -> Result<Timestamp> {
        let time: i64 = column(row, name)?;
        u64::try_from(time).map(Timestamp).map_err(|cause| corrupt_column(name, cause))
    };
    Ok(mark::Record {
        key,
        nonce: nonce.try_into().map(Nonce::from_bytes).map_err(|cause| corrupt_column("nonce", cause))?,
        marked_at: time("marked_at")?,
        expires_at: time("expires_at")?,
        metadata: row::metadata(column(row, "metadata")?)
            .map_err(|cause| corrupt_column("metadata", cause))?,
    })
}
