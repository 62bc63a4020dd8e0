//! What is read of Dify, and what is handed on.

use std::borrow::Cow;

use jiff::Timestamp;

use crate::event::{self, CheckedEvent, UsageEvent, User, UserKind};

/// From this moment until just before that one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first moment.
    pub from: Timestamp,
    /// The first moment that is not meant.
    pub until: Timestamp,
}

impl Span {
    pub(super) fn holds(self, at: Timestamp) -> bool {
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
    Event(&'a CheckedEvent<'a>),
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
    pub(super) fn hand_on(
        &mut self,
        see: &mut See<'_>,
        event: Result<UsageEvent<'_>, event::Error>,
        id: &str,
        row: impl FnOnce() -> String,
    ) {
        match event.and_then(UsageEvent::check) {
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

/// The user of a row: the name that people know, else the row's own id.
pub(super) fn user<'a>(
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
