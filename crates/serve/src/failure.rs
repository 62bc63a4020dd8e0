//! How a command ends: one line for people, one number for scripts.
//!
//! 0 done · 3 something waits in the spool, or a lane is held · 4 something is in failed · 2 usage, settings, a store
//! that is out of reach or held by another · 1 an internal error, a failed check. The worst wins: 1, 2, 4, 3, 0.

use std::fmt;
use std::process::ExitCode;

use ichido_core::error_chain;
use ichido_ledger::{Error, Kind};

/// A command failed.
#[derive(Debug)]
pub struct Failure {
    message: String,
    code: Code,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    Internal = 1,
    Usage = 2,
    Waiting = 3,
    Failed = 4,
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        ExitCode::from(code as u8)
    }
}

impl Failure {
    pub fn internal(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: Code::Internal }
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: Code::Usage }
    }

    /// A failure that is a matter of settings, such as a directory that cannot be used.
    pub fn usage_from(error: impl std::error::Error + 'static) -> Self {
        Self::usage(error_chain(&error))
    }

    /// Something did not arrive yet, or will not without a person.
    pub fn undelivered(code: Code, message: impl Into<String>) -> Self {
        Self { message: message.into(), code }
    }

    /// The same, with the place where it happened.
    pub fn at(mut self, place: &str) -> Self {
        if !self.message.contains(place) {
            self.message = format!("{} ({place})", self.message);
        }
        self
    }

    /// The same in other words.
    pub fn reworded(self, reword: impl FnOnce(&str) -> String) -> Self {
        Self { message: reword(&self.message), code: self.code }
    }

    pub fn code(&self) -> Code {
        self.code
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match error.kind() {
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
            | Kind::Unsupported(_) => Code::Usage,
            Kind::Contended | Kind::Corrupt(_) | Kind::Closed => Code::Internal,
        };
        Self { message: error_chain(&error), code }
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
