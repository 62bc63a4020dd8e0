//! Why a record or a request is refused.

/// What is wrong with a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The field.
    pub field: String,
    /// What is wrong with it.
    pub reason: String,
}
