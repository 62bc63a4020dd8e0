//! Why Dify could not be read.

use std::fmt;

/// The kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A setting or a permission must be changed.
    Settings,
    /// The login was refused. It is not retried: five failed logins lock the account for a day.
    Login,
    /// Dify's tables or responses are not as expected.
    Incompatible,
    /// Dify cannot be reached, even after several attempts.
    Unavailable,
}

/// One line that says what failed, without secrets.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    message: String,
}

impl Error {
    /// Creates an error.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// The kind of the error.
    pub fn kind(&self) -> Kind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
