//! Why a command failed: one line for the operator, and an exit code for scripts.
//!
//! | exit code | meaning |
//! |---|---|
//! | 0 | done |
//! | 1 | internal error, or a check failed |
//! | 2 | invalid usage or settings, or a store that cannot be reached or is in use by another process |
//! | 3 | batches remain in the spool, or a lane is held |
//! | 4 | batches are in failed |
//!
//! If several apply, the order of precedence is 1, 2, 4, 3, 0.

use std::fmt;
use std::process::ExitCode;

use ichido_core::error_chain;
use ichido_ledger::{Error, Kind};

/// Why a command failed.
#[derive(Debug)]
pub struct Failure {
    message: String,
    class: ExitClass,
}

/// The class of a failure. It decides the exit code of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitClass {
    /// An internal error, or a check that failed.
    Internal = 1,
    /// Invalid usage or settings, or a store that cannot be reached or is in use.
    Usage = 2,
    /// Batches remain in the spool, or a lane is held.
    Undelivered = 3,
    /// Batches are in failed.
    Failed = 4,
}

impl From<ExitClass> for ExitCode {
    fn from(class: ExitClass) -> Self {
        ExitCode::from(class as u8)
    }
}

impl Failure {
    /// A failure of this class.
    pub fn new(class: ExitClass, message: impl Into<String>) -> Self {
        Self { message: message.into(), class }
    }

    /// An internal error.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ExitClass::Internal, message)
    }

    /// A mistake in arguments or settings.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(ExitClass::Usage, message)
    }

    /// An error that the operator can fix in the settings, such as an unusable directory.
    pub fn usage_from(error: impl std::error::Error + 'static) -> Self {
        Self::usage(error_chain(&error))
    }

    /// Appends `location` to the message, unless the message already contains it.
    pub fn at(mut self, location: &str) -> Self {
        if !self.message.contains(location) {
            self.message = format!("{} ({location})", self.message);
        }
        self
    }

    /// Replaces the message and keeps the class.
    pub fn map_message(self, map: impl FnOnce(&str) -> String) -> Self {
        Self { message: map(&self.message), class: self.class }
    }

    /// The class that decides the exit code.
    pub fn class(&self) -> ExitClass {
        self.class
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let class = match error.kind() {
            Kind::Unavailable
            | Kind::Throttled
            | Kind::Timeout
            | Kind::Full { .. }
            | Kind::Limit(_)
            | Kind::DataLost(_)
            | Kind::InUse(_)
            | Kind::Schema(_)
            | Kind::Settings(_)
            | Kind::Denied(_)
            | Kind::Unsupported(_) => ExitClass::Usage,
            Kind::Contended | Kind::Corrupt(_) | Kind::Closed => ExitClass::Internal,
        };
        Self { message: error_chain(&error), class }
    }
}

impl From<ichido_core::LimitError> for Failure {
    fn from(error: ichido_core::LimitError) -> Self {
        Failure::usage(error.to_string())
    }
}

impl From<ichido_settings::Invalid> for Failure {
    fn from(invalid: ichido_settings::Invalid) -> Self {
        Failure::usage(invalid.to_string())
    }
}
