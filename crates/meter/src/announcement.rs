//! What was announced about budgets. Stores remember it.

/// A notice about a budget. Each is announced once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// The month, as in `2026-11`.
    pub month: String,
    /// Identifies the budget.
    pub budget: String,
    /// The part of it that was reached, in percent.
    pub threshold: u8,
}
