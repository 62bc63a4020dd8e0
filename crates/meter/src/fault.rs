//! Why a record or a request is refused.

/// An invalid field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The field.
    pub field: String,
    /// What is wrong with it.
    pub reason: String,
}
