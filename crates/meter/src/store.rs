//! The interface to a database that counts records.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use ichido_usage::Profile;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::announcement::Announcement;
use crate::batch::Batch;
use crate::fault::Fault;
use crate::outcome::Outcome;
use crate::repeats::{Repeats, RepeatsQuery};
use crate::report::{FoundRecord, GROUPS_MAX, Group, Page, PageQuery, ReportQuery};
use crate::rules::Revision;

/// A boxed cause.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The result of a call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The user of records whose user was erased.
pub const ERASED_USER: &str = "erased";

/// Counts records.
///
/// A batch is one transaction: all of it is counted, or nothing. Any number of callers may send the same records
/// concurrently.
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync {
    /// Counts a batch, and stores its receipt. Returns the outcomes of the records, in their order.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may or may not take effect. Repeating it is safe.
    async fn count(&self, batch: Arc<Batch>) -> Result<Vec<Outcome>>;

    /// Returns the sums of what was counted. More than [`crate::report::GROUPS_MAX`] groups are an error.
    async fn report(&self, query: &ReportQuery) -> Result<Vec<Group>>;

    /// Returns a page of single records.
    async fn page(&self, query: &PageQuery) -> Result<Page>;

    /// Returns the receipt of a batch.
    async fn receipt(&self, tenant: &str, batch: &str) -> Result<Option<Receipt>>;

    /// Returns the record with this event id.
    async fn find(&self, tenant: &str, event_id: &str) -> Result<Option<FoundRecord>>;

    /// Returns how many records of a month arrived that were already counted.
    async fn repeats(&self, query: &RepeatsQuery) -> Result<Repeats>;

    /// Returns the notices about budgets that were announced for a month.
    async fn announced(&self, month: &str) -> Result<Vec<Announcement>>;

    /// Notes that a notice about a budget was announced. Noting it again changes nothing.
    async fn note_announced(&self, announcement: &Announcement, at: i64) -> Result<()>;

    /// Counts the records of a user, of all tenants.
    async fn count_user(&self, user: &str) -> Result<u64>;

    /// Replaces the id of a user in all records with [`ERASED_USER`]. The sums stay. Returns the number of records.
    async fn erase_user(&self, user: &str) -> Result<u64>;

    /// Checks that the database works.
    async fn check(&self) -> Result<()>;

    /// Finishes running work and closes.
    async fn close(&self);
}

/// How the meter responded to a batch, the first and the last time.
#[derive(Clone, Debug, Serialize)]
pub struct Receipt {
    /// The key of the batch.
    #[serde(rename = "batchIdempotencyKey")]
    pub batch: String,
    /// How often the batch was received.
    pub times: i64,
    /// The first response.
    pub first: ReceiptEntry,
    /// The last response.
    pub last: ReceiptEntry,
}

/// One response.
#[derive(Clone, Debug, Serialize)]
pub struct ReceiptEntry {
    /// When it was sent, in RFC 3339.
    pub at: String,
    /// Its status, its counts, and the records whose outcome needs an explanation.
    pub answer: Box<RawValue>,
}

impl ReceiptEntry {
    pub(crate) fn new(operation: &'static str, at: i64, answer: String) -> Result<Self> {
        let corrupt = |error: BoxError| Error::corrupt(operation, error);
        let at = jiff::Timestamp::from_millisecond(at).map_err(|error| corrupt(error.into()))?.to_string();
        let answer = RawValue::from_string(answer).map_err(|error| corrupt(error.into()))?;
        Ok(Self { at, answer })
    }
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database cannot be reached, is busy or full. A retry may succeed.
    #[error("{operation}: {problem}")]
    Unavailable {
        /// What was being done.
        operation: &'static str,
        /// What is wrong, without secrets.
        problem: Cow<'static, str>,
        /// The cause.
        #[source]
        source: Option<BoxError>,
    },
    /// A setting is wrong, or the database is not a meter's or has another version.
    #[error("{0}")]
    Settings(String),
    /// The result would be too large.
    #[error("{0}")]
    TooLarge(&'static str),
    /// The database contains what no meter wrote.
    #[error("{operation}: the database contains data that no meter wrote")]
    Corrupt {
        /// What was being done.
        operation: &'static str,
        /// The cause.
        #[source]
        source: Option<BoxError>,
    },
}

impl Error {
    pub(crate) fn unavailable(
        operation: &'static str,
        problem: impl Into<Cow<'static, str>>,
        source: impl Into<BoxError>,
    ) -> Self {
        Self::Unavailable { operation, problem: problem.into(), source: Some(source.into()) }
    }

    pub(crate) fn corrupt(operation: &'static str, source: impl Into<BoxError>) -> Self {
        Self::Corrupt { operation, source: Some(source.into()) }
    }
}

/// How a store is opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// What happens to a record that is already counted.
    pub profile: Profile,
}

/// What a slot is. A database is created for one of these and keeps to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grain {
    Event,
    ModelDay,
}

impl Grain {
    pub(crate) fn of(profile: Profile) -> Self {
        match profile {
            Profile::FirstWins | Profile::UpsertByEventId => Self::Event,
            Profile::UpsertByModelDay => Self::ModelDay,
        }
    }

    /// The columns by which an event id is looked up.
    pub(crate) fn id_columns(self) -> &'static [&'static str] {
        match self {
            Self::Event => &["slot"],
            // One record per model and day: few enough to be read one by one.
            Self::ModelDay => &["slot", "event_id"],
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::ModelDay => "model_day",
        }
    }

    /// Refuses a database that was created for another grain.
    pub(crate) fn require(self, found: &str) -> Result<()> {
        if found == self.as_str() {
            return Ok(());
        }
        Err(Error::Settings(format!(
            "the meter's database counts by {found}, but the profile counts by {}: use the profile it was created with, or \
             another database",
            self.as_str()
        )))
    }
}

/// The outcome of a record whose slot belongs to another record.
pub(crate) fn other_record(stored: &Revision) -> Outcome {
    Outcome::Invalid(Fault {
        field: "metadata.source_event_id".to_owned(),
        reason: format!(
            "usage of this provider, model and day is already counted under {}: add up records by model and day before sending",
            stored.event_id
        ),
    })
}

/// Refuses a report with too many groups.
pub(crate) fn check_group_count(groups: Vec<Group>) -> Result<Vec<Group>> {
    match groups.len() > GROUPS_MAX {
        true => {
            Err(Error::TooLarge("more than 100,000 groups: request fewer days, or group by fewer fields"))
        }
        false => Ok(groups),
    }
}
