//! What can go wrong, and whether it may have happened all the same.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;

use ichido_core::LimitError;

/// A boxed cause.
pub type BoxError = Box<dyn StdError + Send + Sync + 'static>;

/// The result of a ledger call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A ledger call failed.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    doing: Cow<'static, str>,
    effect: Effect,
    source: Option<BoxError>,
}

/// Whether a failed call may have been carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It certainly was not; trying again is safe.
    None,
    /// It may have been: a timeout, a cut connection, a crash.
    Unknown,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The store cannot be reached, or broke off.
    Unavailable,
    /// The store asks for less.
    Throttled,
    /// A concurrent change came between: ask again.
    Contended,
    /// No answer within the deadline.
    Timeout,
    /// The ledger is at its bound and forgets no live key to make room.
    Full {
        /// The bound.
        bound: usize,
    },
    /// A value is outside its limits.
    Limit(LimitError),
    /// What is stored cannot be read as it should; the text says where, and what to do.
    Corrupt(String),
    /// The store lost data, and is not used until an operator says so; the text says what to do.
    DataLost(String),
    /// Another process holds the store; the text names it.
    InUse(String),
    /// The store's layout is not ours, or of another version; the text says what to do.
    Schema(String),
    /// A setting is wrong; the text names it.
    Settings(String),
    /// The store refuses us: credentials or rights.
    Denied(String),
    /// This backend cannot do that.
    Unsupported(String),
    /// The ledger was closed.
    Closed,
}

impl Error {
    /// An error while `doing` something that certainly had no effect.
    pub fn new(kind: Kind, doing: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, doing: doing.into(), effect: Effect::None, source: None }
    }

    /// The same, with its cause.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The same, but it may have happened.
    #[must_use]
    pub fn with_unknown_effect(mut self) -> Self {
        self.effect = Effect::Unknown;
        self
    }

    /// What went wrong.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Whether it may have happened all the same.
    pub fn effect(&self) -> Effect {
        self.effect
    }

    /// Whether the same call may succeed if it is tried again soon.
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

    /// Whether the ledger is out, so that a fallback may step in.
    pub fn is_outage(&self) -> bool {
        self.is_transient() || matches!(self.kind, Kind::DataLost(_))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.doing)?;
        match &self.kind {
            Kind::Unavailable => f.write_str("the ledger is unavailable"),
            Kind::Throttled => f.write_str("the ledger is throttling"),
            Kind::Contended => f.write_str("too many concurrent changes"),
            Kind::Timeout => f.write_str("no answer within the deadline"),
            Kind::Full { bound } => write!(f, "the ledger is full ({bound} live records)"),
            Kind::Limit(limit) => limit.fmt(f),
            Kind::Corrupt(text)
            | Kind::DataLost(text)
            | Kind::InUse(text)
            | Kind::Schema(text)
            | Kind::Settings(text)
            | Kind::Denied(text)
            | Kind::Unsupported(text) => f.write_str(text),
            Kind::Closed => f.write_str("the ledger was closed"),
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
        Error::new(Kind::Limit(limit), "checking the call")
    }
}
