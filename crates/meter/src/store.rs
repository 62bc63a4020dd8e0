//! Where records are counted: the seam between what is asked and a database.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use ichido_usage::Profile;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::batch::Batch;
use crate::fault::Fault;
use crate::outcome::Outcome;
use crate::report::{Group, MOST_GROUPS, Page, PageQuery, Query};
use crate::rules::Kept;

/// A boxed cause.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The result of a call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Where records are counted.
///
/// A batch is one transaction: all of it is counted, or none. Any number of callers may send the same records at once.
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync {
    /// Counts a batch, and keeps its receipt. The outcomes are those of the records, in their order.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may have been carried out. Asking again is safe.
    async fn count(&self, batch: Arc<Batch>) -> Result<Vec<Outcome>>;

    /// Sums what was counted. More than [`crate::report::MOST_GROUPS`] groups are an error.
    async fn report(&self, query: &Query) -> Result<Vec<Group>>;

    /// Records one by one.
    async fn page(&self, query: &PageQuery) -> Result<Page>;

    /// What was answered to a batch.
    async fn receipt(&self, tenant: &str, batch: &str) -> Result<Option<Receipt>>;

    /// Whether it works.
    async fn check(&self) -> Result<()>;

    /// Finishes what is under way.
    async fn close(&self);
}

/// What was answered to a batch: the first time, and the last.
#[derive(Clone, Debug, Serialize)]
pub struct Receipt {
    /// The key of the batch.
    #[serde(rename = "batchIdempotencyKey")]
    pub batch: String,
    /// How often it came.
    pub times: i64,
    /// The first time.
    pub first: Answered,
    /// The last time.
    pub last: Answered,
}

/// One answer.
#[derive(Clone, Debug, Serialize)]
pub struct Answered {
    /// When, as in RFC 3339.
    pub at: String,
    /// Its status, its counts, and the records that were not plainly counted.
    pub answer: Box<RawValue>,
}

impl Answered {
    pub(crate) fn new(doing: &'static str, at: i64, answer: String) -> Result<Self> {
        let broken = |error: BoxError| Error::broken(doing, error);
        let at = jiff::Timestamp::from_millisecond(at).map_err(|error| broken(error.into()))?.to_string();
        let answer = RawValue::from_string(answer).map_err(|error| broken(error.into()))?;
        Ok(Self { at, answer })
    }
}

/// A call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database cannot be reached, is busy or full: later may be better.
    #[error("{doing}: {what}")]
    Unavailable {
        /// What was being done.
        doing: &'static str,
        /// What is wrong, in words that hold no secret.
        what: Cow<'static, str>,
        /// Why.
        #[source]
        source: Option<BoxError>,
    },
    /// A setting is wrong, or the database is not ours, or of another version.
    #[error("{0}")]
    Settings(String),
    /// Too much was asked for.
    #[error("{0}")]
    TooMuch(&'static str),
    /// Something that must not be.
    #[error("{doing}: the database gave what was not written by a meter")]
    Broken {
        /// What was being done.
        doing: &'static str,
        /// Why.
        #[source]
        source: Option<BoxError>,
    },
}

impl Error {
    pub(crate) fn unavailable(
        doing: &'static str,
        what: impl Into<Cow<'static, str>>,
        source: impl Into<BoxError>,
    ) -> Self {
        Self::Unavailable { doing, what: what.into(), source: Some(source.into()) }
    }

    pub(crate) fn broken(doing: &'static str, source: impl Into<BoxError>) -> Self {
        Self::Broken { doing, source: Some(source.into()) }
    }
}

/// How a store is opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// What happens to a record that is there already.
    pub profile: Profile,
}

/// What makes two records the same. A database is made for one of them and keeps to it.
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

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::ModelDay => "model_day",
        }
    }

    /// Refuses a database that was made for another.
    pub(crate) fn must_be(self, found: &str) -> Result<()> {
        if found == self.word() {
            return Ok(());
        }
        Err(Error::Settings(format!(
            "the meter's database counts by {found}, and the profile by {}: use the profile it was made with, or another \
             database",
            self.word()
        )))
    }
}

/// What becomes of a record whose place another one has.
pub(crate) fn foreign(kept: &Kept) -> Outcome {
    Outcome::Invalid(Fault {
        field: "metadata.source_event_id".to_owned(),
        reason: format!(
            "the usage of this provider, model and day is counted under {}: sum records by model and day before sending",
            kept.event_id
        ),
    })
}

/// Refuses a report that nobody could read.
pub(crate) fn too_many_groups(groups: Vec<Group>) -> Result<Vec<Group>> {
    match groups.len() > MOST_GROUPS {
        true => Err(Error::TooMuch("more than 100,000 groups: ask for fewer days, or group by less")),
        false => Ok(groups),
    }
}
