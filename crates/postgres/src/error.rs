//! Errors of a server that cannot be reached as it was asked for.

use std::error::Error as StdError;

/// A server cannot be reached as it was asked for: a setting is wrong. No part of the URL is repeated.
#[derive(Debug, thiserror::Error)]
#[error("{doing}: {text}")]
pub struct Error {
    /// What was being done.
    pub doing: &'static str,
    /// What is wrong.
    pub text: String,
    /// Why.
    #[source]
    pub source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The result of reaching for a server.
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
