//! Why a text in the rules could not be parsed.

/// A text that is no key source, pointer or template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SourceError(String);

impl SourceError {
    pub(crate) fn new(text: String) -> Self {
        Self(text)
    }
}
