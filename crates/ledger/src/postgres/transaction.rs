//! Completion inside the application's own transaction.
//!
//! If the effect is a change in the same database, effect and outcome can be one commit. There is no moment at
//! which one exists without the other, and the claim is never in doubt.

use ichido_core::rules;
use ichido_core::{CurrentState, Key, Outcome, Settle, Settled, Token};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::claims::{settled, single_row};
use super::error::{Sent, failed};
use super::row::{self, Found, column};
use super::store::Postgres;
use super::values::outcome as stored;
use crate::Error;

const DOING: &str = "completing a claim in the caller's transaction";

/// The outcome was not recorded: roll back the transaction.
#[derive(Debug, thiserror::Error)]
pub enum NotRecorded {
    /// The claim cannot be completed with this token: the token is stale, or the claim is completed already.
    /// Contains the current state.
    #[error("the claim cannot be completed with this token; roll back the transaction")]
    Stale(CurrentState),
    /// The ledger failed.
    #[error(transparent)]
    Failed(#[from] Error),
}

impl Postgres {
    /// Records the outcome in the application's transaction, so that effect and outcome are committed together.
    ///
    /// Unlike [`Settle::Complete`], completing twice with the same token is refused: the effect was committed with
    /// the first completion, and this transaction would be a second one. Until the transaction ends, claims on the
    /// key are answered from the state before it, and other settlements of the claim wait.
    ///
    /// ```no_run
    /// # use ichido_core::{Key, Outcome, Token};
    /// # use ichido_ledger::postgres::{NotRecorded, Postgres};
    /// # async fn transfer(
    /// #     ledger: &Postgres, client: &mut tokio_postgres::Client, key: &Key, token: Token,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// let transaction = client.transaction().await?;
    /// transaction.execute("UPDATE account SET balance = balance - 10 WHERE id = 1", &[]).await?;
    /// // If the token is stale, `?` drops the transaction, which rolls it back.
    /// ledger.complete_in(&transaction, key, token, &Outcome::kept("transferred")).await?;
    /// transaction.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the outcome may or may not be part of the transaction: roll it back.
    pub async fn complete_in(
        &self,
        transaction: &tokio_postgres::Transaction<'_>,
        key: &Key,
        token: Token,
        outcome: &Outcome,
    ) -> Result<(), NotRecorded> {
        outcome.check().map_err(Error::from)?;
        let index = key.index();
        let (kept, bytes) = stored(outcome);
        let rows = transaction
            .query_typed(
                &self.server.sql.complete,
                &[
                    (&index.as_bytes().as_slice(), Type::BYTEA),
                    (&token.as_bytes().as_slice(), Type::BYTEA),
                    (&kept, Type::BOOL),
                    (&bytes, Type::BYTEA),
                ],
            )
            .await
            // If the connection breaks, nothing of the transaction remains.
            .map_err(|error| failed(error, DOING, Sent::No))?;
        let row = single_row(rows, DOING)?;
        if column(&row, "written")? {
            return Ok(());
        }
        match settled(&row, token, &Settle::Complete(outcome.clone()), DOING)? {
            Settled::Stale(now) => Err(NotRecorded::Stale(now)),
            // Not written although it is current: it was completed before.
            Settled::Applied => Err(NotRecorded::Stale(current_state(&row)?)),
        }
    }
}

fn current_state(row: &Row) -> Result<CurrentState, Error> {
    let now = row::now(row)?;
    Ok(Found::read(row)?.map_or(CurrentState::Absent, |found| rules::current_state(&found.record, now)))
}
