//! What both sources read from Dify, and how they report it.

use std::borrow::Cow;

use jiff::Timestamp;

use crate::event::{self, CheckedEvent, UsageEvent, User, UserKind};

/// A half-open range of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeRange {
    /// The start, inclusive.
    pub from: Timestamp,
    /// The end, exclusive.
    pub until: Timestamp,
}

impl TimeRange {
    pub(super) fn contains(self, at: Timestamp) -> bool {
        self.from <= at && at < self.until
    }
}

/// Which rows are read.
#[derive(Clone, Debug)]
pub struct Filter {
    /// Only this workspace (Dify's tenant).
    pub workspace: Option<String>,
    /// Include usage from Dify's debugger, where members try out an app.
    pub debugger: bool,
}

/// A row, as a source reports it.
#[derive(Debug)]
pub enum Item<'a> {
    /// A row with usage.
    Event(&'a CheckedEvent<'a>),
    /// A row that cannot be counted.
    Invalid(InvalidRow),
}

/// A row that cannot be counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidRow {
    /// The table and id of the row.
    pub id: String,
    /// The relevant columns, as JSON.
    pub row: String,
    /// Why the row cannot be counted.
    pub reason: String,
}

/// Receives each row as it is read.
pub type Visitor<'s> = dyn FnMut(Item<'_>) + Send + 's;

/// How many rows were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowCounts {
    /// Rows with usage.
    pub rows: u64,
    /// Rows with usage from Dify's debugger.
    pub debugger: u64,
    /// Rows that give only a total of tokens, which is counted as prompt tokens.
    pub total_only: u64,
    /// Rows that cannot be counted.
    pub invalid: u64,
    /// Rows that Dify truncated so that neither model nor usage is left.
    pub truncated: u64,
}

impl RowCounts {
    /// Checks, counts and reports a row. `row` is called only if the row is invalid.
    pub(super) fn visit_row(
        &mut self,
        visit: &mut Visitor<'_>,
        event: Result<UsageEvent<'_>, event::Error>,
        id: &str,
        row: impl FnOnce() -> String,
    ) {
        match event.and_then(UsageEvent::check) {
            Ok(event) => {
                self.rows += 1;
                self.debugger += u64::from(event.debugger);
                visit(Item::Event(&event));
            }
            Err(error) => {
                self.invalid += 1;
                let reason = format!("{id}: {error}");
                visit(Item::Invalid(InvalidRow { id: id.to_owned(), row: row(), reason }));
            }
        }
    }
}

/// The user of a row: the name that operators know (session id or e-mail address), or else Dify's own id.
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
