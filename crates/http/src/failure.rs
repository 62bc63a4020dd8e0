//! What a service's error says about its effect.

use std::convert::Infallible;
use std::fmt;

use ichido_ledger::BoxError;

/// A service behind the layer gave no answer.
#[derive(Debug)]
pub enum Failure {
    /// No byte of the request reached it: nothing can have happened.
    NotSent(BoxError),
    /// It did not answer in time: nobody knows.
    TimedOut(BoxError),
    /// Its answer was lost or cut: nobody knows.
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

/// An error that knows what it means for the effect.
pub trait IntoFailure {
    /// What it means.
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

/// The careful reading: it may have happened.
impl IntoFailure for BoxError {
    fn into_failure(self) -> Failure {
        Failure::Lost(self)
    }
}
