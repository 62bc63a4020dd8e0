//! The error for texts in the rules.

/// A text in the rules that is not what its setting expects; the message names the text and the expected form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(String);

impl ParseError {
    pub(crate) fn new(message: String) -> Self {
        Self(message)
    }
}
