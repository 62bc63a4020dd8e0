//! Errors in the settings of a connection.

use std::error::Error as StdError;

/// A server cannot be used because a setting is invalid. No part of the URL is repeated.
#[derive(Debug, thiserror::Error)]
#[error("{doing}: {text}")]
pub struct Error {
    /// What was being done.
    pub doing: &'static str,
    /// What is wrong.
    pub text: String,
    /// The cause.
    #[source]
    pub source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The result of using a server's settings.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub(crate) fn new(doing: &'static str, text: impl Into<String>) -> Self {
        Self { doing, text: text.into(), source: None }
    }

    pub(crate) fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }
}
