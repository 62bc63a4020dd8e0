//! What the model of a key knows of time, and what a model is.

use super::operation::Operation;
use crate::{Capabilities, StoreClock};

/// What the model knows of a store's time.
///
/// The store's clock runs as fast as ours, but the moment at which it judged a call is only known to lie between the
/// question and the answer. So the model keeps windows, and an answer is legal if some moment in them makes it so.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Forgiven at both ends of a lease and of retention: clocks are read in whole milliseconds.
    pub tolerance_us: u64,
    /// A lapse may be noticed late, and never early: the store has no clock of its own.
    pub watched: bool,
    /// Marks may be kept so much longer than was asked.
    pub mark_granularity_us: u64,
    /// The search of one key gives up after so many states.
    pub states: usize,
}

impl Bounds {
    /// The bounds of a backend, whose marks end on multiples of `mark_granularity_ms`.
    pub fn of(capabilities: &Capabilities, mark_granularity_ms: u64) -> Self {
        Self {
            tolerance_us: 5_000,
            watched: capabilities.clock == StoreClock::Watched,
            mark_granularity_us: mark_granularity_ms * 1_000,
            states: 250_000,
        }
    }
}

/// The sequential behaviour of one key.
pub(super) trait Model: Clone + Default + Eq + std::hash::Hash + std::fmt::Debug {
    type Call: Clone + std::fmt::Debug;
    type Answer: Clone + std::fmt::Debug;

    /// The states after an operation whose answer, if there is one, is legal in this state. For an open operation only
    /// those that differ from this state: one that changes nothing need not have happened.
    fn after(&self, operation: &Operation<Self::Call, Self::Answer>, bounds: &Bounds) -> Vec<Self>;

    /// An operation in one line.
    fn describe(operation: &Operation<Self::Call, Self::Answer>) -> String;
}
