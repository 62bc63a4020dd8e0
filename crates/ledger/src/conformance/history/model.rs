//! What a model is, and what it knows about time.

use super::operation::Operation;
use crate::{Capabilities, StoreClock};

/// What the model knows about a store's time.
///
/// The store's clock runs as fast as ours, but the moment at which it evaluated a call is only known to lie between
/// call and reply. So the model keeps time windows, and a result is legal if some moment in them makes it legal.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Tolerance at both ends of a lease and of retention: clocks are read in whole milliseconds.
    pub tolerance_us: u64,
    /// A lapse may be noticed late, but never early: the store has no clock.
    pub watched: bool,
    /// How much longer than requested a mark may be kept.
    pub mark_granularity_us: u64,
    /// The search of one key gives up after this many states.
    pub states: usize,
}

impl Bounds {
    /// The bounds of a backend whose marks expire at multiples of `mark_granularity_ms`.
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

    /// The states after an operation whose result, if known, is legal in this state. For an operation with unknown
    /// result, only states that differ from this one: an operation that changes nothing need not have happened.
    fn after(&self, operation: &Operation<Self::Call, Self::Answer>, bounds: &Bounds) -> Vec<Self>;

    /// Describes an operation in one line.
    fn describe(operation: &Operation<Self::Call, Self::Answer>) -> String;
}
