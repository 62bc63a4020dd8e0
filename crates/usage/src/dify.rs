//! Dify as a source of usage: its PostgreSQL, read-only, or its console's HTTP API.
//!
//! What a source reads is handed on row by row, so memory does not grow with what there is. A row that cannot be counted
//! is handed on as well, with the reason: nothing is passed over in silence.
//!
//! Apps of the modes chat, completion and agent-chat are counted by message; apps of the modes workflow and advanced-chat
//! by the nodes of their runs that called a model. Never by both: their messages hold the same usage again.

mod error;
pub mod http;
mod node;
pub mod postgres;

use std::borrow::Cow;

use jiff::Timestamp;

use crate::event::{User, UserKind};
use crate::{UsageEvent, event};

pub use error::{Error, Kind};
pub use http::Http;
pub use postgres::Postgres;

/// From this moment until just before that one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first moment.
    pub from: Timestamp,
    /// The first moment that is not meant.
    pub until: Timestamp,
}

impl Span {
    fn holds(self, at: Timestamp) -> bool {
        self.from <= at && at < self.until
    }
}

/// What is read.
#[derive(Clone, Debug)]
pub struct Scope {
    /// Only this workspace (Dify's tenant).
    pub workspace: Option<String>,
    /// Also what people used while they tried an app out.
    pub debugger: bool,
}

/// What a source hands on.
#[derive(Debug)]
pub enum Item<'a> {
    /// Usage.
    Event(&'a UsageEvent<'a>),
    /// A row that cannot be counted.
    Broken(Broken),
}

/// A row that cannot be counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Which row.
    pub id: String,
    /// The row, as far as it matters.
    pub row: String,
    /// What is wrong with it.
    pub reason: String,
}

/// Who sees what is read.
pub type See<'s> = dyn FnMut(Item<'_>) + Send + 's;

/// What was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Rows that held usage.
    pub rows: u64,
    /// Of these: of someone who tried an app out.
    pub debugger: u64,
    /// Of these: with a sum of tokens only; they count as tokens of the prompt.
    pub undivided: u64,
    /// Rows that could not be counted.
    pub broken: u64,
    /// Rows that name neither model nor usage, because Dify cut them.
    pub cut: u64,
}

impl Tally {
    fn hand_on(
        &mut self,
        see: &mut See<'_>,
        event: Result<UsageEvent<'_>, event::Error>,
        id: &str,
        row: impl FnOnce() -> String,
    ) {
        let event = event.and_then(|event| event.check().map(|()| event));
        match event {
            Ok(event) => {
                self.rows += 1;
                self.debugger += u64::from(event.debugger);
                see(Item::Event(&event));
            }
            Err(error) => {
                self.broken += 1;
                see(Item::Broken(Broken { id: id.to_owned(), row: row(), reason: format!("{id}: {error}") }));
            }
        }
    }
}

/// Either way to Dify.
#[derive(Debug)]
pub enum Source {
    /// Its database.
    Postgres(Box<Postgres>),
    /// Its console.
    Http(Box<Http>),
}

impl Source {
    /// Hands on every row of a span.
    pub async fn read(&mut self, span: Span, see: &mut See<'_>) -> Result<Tally, Error> {
        match self {
            Self::Postgres(postgres) => postgres.read(span, see).await,
            Self::Http(http) => http.read(span, see).await,
        }
    }

    /// The earliest row of a span that was changed since then. `None`: there is none, or the source cannot tell.
    pub async fn changed_since(&mut self, since: Timestamp, span: Span) -> Result<Option<Timestamp>, Error> {
        match self {
            Self::Postgres(postgres) => postgres.changed_since(since, span).await,
            Self::Http(_) => Ok(None),
        }
    }

    /// Whether it can be read. Says in a few words what it is.
    pub async fn check(&mut self) -> Result<String, Error> {
        match self {
            Self::Postgres(postgres) => postgres.check().await,
            Self::Http(http) => http.check().await,
        }
    }
}

/// The user of a row: the name that people know, else the row's own id.
fn user<'a>(
    end_user: Option<(&'a str, Option<&'a str>)>,
    account: Option<(&'a str, Option<&'a str>)>,
) -> User<'a> {
    let named = |(id, name): (&'a str, Option<&'a str>)| {
        Cow::Borrowed(name.filter(|name| !name.is_empty()).unwrap_or(id))
    };
    match (end_user, account) {
        (Some(end_user), _) => User { kind: UserKind::EndUser, id: named(end_user) },
        (None, Some(account)) => User { kind: UserKind::Account, id: named(account) },
        (None, None) => User::default(),
    }
}
