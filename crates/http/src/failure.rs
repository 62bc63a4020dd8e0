//! What a failed call to the service means for its effect.

use std::convert::Infallible;
use std::fmt;

use ichido_ledger::BoxError;

/// The inner service did not respond.
#[derive(Debug)]
pub enum Failure {
    /// No byte of the request reached the service: nothing can have happened.
    NotSent(BoxError),
    /// The service did not respond in time: the effect may have happened.
    TimedOut(BoxError),
    /// The response was lost or cut off: the effect may have happened.
    Lost(BoxError),
}

impl Failure {
    /// The service switched protocols (101) although the request did not ask for it: its response is lost.
    pub fn unrequested_upgrade() -> Self {
        Self::Lost("the service switched protocols although the request did not ask for it".into())
    }

    /// What went wrong.
    pub fn cause(&self) -> &BoxError {
        match self {
            Self::NotSent(cause) | Self::TimedOut(cause) | Self::Lost(cause) => cause,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self {
            Self::NotSent(_) => "not sent",
            Self::TimedOut(_) => "timed out",
            Self::Lost(_) => "lost",
        };
        write!(f, "{what}: {}", self.cause())
    }
}

impl std::error::Error for Failure {}

/// An error that tells whether the effect may have happened.
pub trait IntoFailure {
    /// Converts the error.
    fn into_failure(self) -> Failure;
}

impl IntoFailure for Failure {
    fn into_failure(self) -> Failure {
        self
    }
}

impl IntoFailure for Infallible {
    fn into_failure(self) -> Failure {
        match self {}
    }
}

/// Assumes the worst: the effect may have happened.
impl IntoFailure for BoxError {
    fn into_failure(self) -> Failure {
        Failure::Lost(self)
    }
}
