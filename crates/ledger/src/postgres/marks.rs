//! Marks: a batch is one round trip. A mark is forgotten or erased by one statement that compares its nonce.

use ichido_core::MarkKey;
use ichido_core::mark::{self, Erased, Forgotten, Mark};
use tokio_postgres::Row;
use tokio_postgres::types::Json;

use super::connections::Param;
use super::maintain;
use super::mark_rows::{mark_all, read};
use super::row::{column, corrupt_column};
use super::store::Postgres;
use crate::{MarkPage, MarkQuery, MarkSummary, Result};

impl Postgres {
    pub(super) async fn mark_events(&self, requests: &[mark::Request]) -> Result<Vec<Mark>> {
        match requests {
            [request] => Ok(vec![self.batches.marks.call(request.clone()).await?]),
            _ => mark_all(&self.server, requests).await,
        }
    }

    pub(super) async fn read_mark(&self, key: &MarkKey) -> Result<Option<mark::Record>> {
        const DOING: &str = "reading a mark from PostgreSQL";
        let index = key.index();
        let rows = self
            .server
            .connections
            .query(DOING, &self.server.sql.read_mark, &[&index.as_bytes().as_slice()])
            .await?;
        rows.first().map(|row| read(row, key.clone())).transpose()
    }

    pub(super) async fn list_marked(&self, query: &MarkQuery) -> Result<MarkPage> {
        const DOING: &str = "listing marks in PostgreSQL";
        let after = maintain::after(query.cursor.as_deref(), DOING)?;
        let (from, to) = maintain::prefix_range(query.prefix.as_deref());
        let limit = maintain::one_more_than(query.limit);
        let params: [Param<'_>; 4] = [&after, &from, &to, &limit];
        let rows = self.server.connections.query(DOING, &self.server.sql.list_marks, &params).await?;
        let marks = rows.iter().take(query.limit).map(|row| Ok(MarkSummary::of(&read(row, key(row)?)?)));
        let marks = marks.collect::<Result<Vec<_>>>()?;
        let cursor = marks.last().filter(|_| rows.len() > query.limit).map(|last| last.index.clone());
        Ok(MarkPage { marks, cursor, ..MarkPage::default() })
    }

    pub(super) async fn remove_mark(&self, seen: &mark::Record) -> Result<Forgotten> {
        const DOING: &str = "forgetting a mark in PostgreSQL";
        let index = seen.key.index();
        let params: [Param<'_>; 2] = [&index.as_bytes().as_slice(), &seen.nonce.as_bytes().as_slice()];
        let removed = self.server.connections.query(DOING, &self.server.sql.forget_mark, &params).await?;
        Ok(if removed.is_empty() { Forgotten::Gone } else { Forgotten::Removed })
    }

    pub(super) async fn erase_marked(&self, seen: &mark::Record) -> Result<Erased> {
        const DOING: &str = "erasing a mark in PostgreSQL";
        let (index, erased) = (seen.key.index(), seen.erased());
        let metadata = Json(&erased.metadata);
        let params: [Param<'_>; 4] = [
            &index.as_bytes().as_slice(),
            &seen.nonce.as_bytes().as_slice(),
            &erased.key.text().as_bytes(),
            &metadata,
        ];
        let written = self.server.connections.query(DOING, &self.server.sql.erase_mark, &params).await?;
        Ok(if written.is_empty() { Erased::Gone } else { Erased::Whole })
    }
}

/// The key in a row.
fn key(row: &Row) -> Result<MarkKey> {
    let text = String::from_utf8(column(row, "key")?).map_err(|cause| corrupt_column("key", cause))?;
    MarkKey::stored(text).map_err(|cause| corrupt_column("key", cause))
}
