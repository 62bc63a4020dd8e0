//! Why Dify could not be read.

use std::fmt;

/// What kind of trouble it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Something must be set otherwise, or granted.
    Settings,
    /// The login was refused. Not tried again: five bad ones lock the account for a day.
    Login,
    /// Dify's tables or answers are not as we know them.
    Shape,
    /// It cannot be reached, also not after several tries.
    Unavailable,
}

/// One line that says what was wrong, without a secret in it.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    message: String,
}

impl Error {
    /// An error of a kind.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// What kind of trouble it is.
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
