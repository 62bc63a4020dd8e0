//! Errors of a ledger, and whether a failed call may have been applied.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use ichido_core::LimitError;

/// A boxed cause.
pub type BoxError = Box<dyn StdError + Send + Sync + 'static>;

/// The result of a ledger call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed call of a ledger.
#[derive(Clone, Debug)]
pub struct Error {
    kind: Kind,
    doing: Cow<'static, str>,
    effect: Effect,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

/// Whether a failed call may have been applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It certainly was not: a retry is safe.
    None,
    /// It may have been: a timeout, a broken connection, a crash.
    Unknown,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The store cannot be reached, or the connection to it broke.
    Unavailable,
    /// The store asks to slow down.
    Throttled,
    /// A concurrent change interfered: retry.
    Contended,
    /// There was no reply within the deadline.
    Timeout,
    /// The ledger is full, and never drops a live record to make room.
    Full {
        /// The most records it can hold.
        bound: usize,
    },
    /// A value exceeds a limit.
    Limit(LimitError),
    /// A stored record cannot be read. The text names it and says what to do.
    Corrupt(String),
    /// The store lost data, and is not used until an operator accepts that. The text says what to do.
    DataLost(String),
    /// Another process has the store open. The text names it.
    InUse(String),
    /// The store's layout is unknown or of another version. The text says what to do.
    Schema(String),
    /// A setting is invalid. The text names it.
    Settings(String),
    /// The store rejects our credentials or lacks permissions for us.
    Denied(String),
    /// The backend does not support this.
    Unsupported(String),
    /// The ledger was closed.
    Closed,
}

impl Error {
    /// An error while `doing` something. The call certainly had no effect.
    pub fn new(kind: Kind, doing: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, doing: doing.into(), effect: Effect::None, source: None }
    }

    /// Adds the cause.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into().into());
        self
    }

    /// Marks the call as possibly applied.
    #[must_use]
    pub fn with_unknown_effect(mut self) -> Self {
        self.effect = Effect::Unknown;
        self
    }

    /// What went wrong.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Whether the call may have been applied.
    pub fn effect(&self) -> Effect {
        self.effect
    }

    /// Whether the same call may succeed if it is retried soon.
    pub fn is_transient(&self) -> bool {
        match self.kind {
            Kind::Unavailable | Kind::Throttled | Kind::Contended | Kind::Timeout => true,
            Kind::Full { .. }
            | Kind::Limit(_)
            | Kind::Corrupt(_)
            | Kind::DataLost(_)
            | Kind::InUse(_)
            | Kind::Schema(_)
            | Kind::Settings(_)
            | Kind::Denied(_)
            | Kind::Unsupported(_)
            | Kind::Closed => false,
        }
    }

    /// Whether the ledger is unavailable, so that a fallback may answer.
    pub fn is_outage(&self) -> bool {
        self.is_transient() || matches!(self.kind, Kind::DataLost(_))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.doing)?;
        match &self.kind {
            Kind::Unavailable => f.write_str("the ledger is unavailable"),
            Kind::Throttled => f.write_str("the ledger is throttling requests; retry more slowly"),
            Kind::Contended => f.write_str("a concurrent change interfered; retry"),
            Kind::Timeout => f.write_str("no reply within the deadline"),
            Kind::Full { bound } => write!(
                f,
                "the ledger is full ({bound} live records); raise its bound or wait until records expire"
            ),
            Kind::Limit(limit) => limit.fmt(f),
            Kind::Corrupt(text)
            | Kind::DataLost(text)
            | Kind::InUse(text)
            | Kind::Schema(text)
            | Kind::Settings(text)
            | Kind::Denied(text)
            | Kind::Unsupported(text) => f.write_str(text),
            Kind::Closed => f.write_str("the ledger is closed"),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

impl From<LimitError> for Error {
    fn from(limit: LimitError) -> Self {
        Error::new(Kind::Limit(limit), "checking the request")
    }
}
