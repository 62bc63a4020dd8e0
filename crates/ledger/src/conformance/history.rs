//! Linearizability: the results of concurrent calls must be those of a ledger that executes one call at a time.
//!
//! A [`Workload`] is drawn from a seed and executed by several clients on several instances ([`run`]). A
//! [`Recorder`] between handle and backend records every try of the handle as one operation, with the times of call
//! and reply on one steady clock. A try with an unknown result (an error with [`crate::Effect::Unknown`], a
//! deadline, a dropped future) may have taken effect at any moment after the call, or never.
//!
//! Claims and marks of different keys are independent, so a history is checked key by key ([`History::check`]). The
//! checker searches for an order of the operations that respects their times and that the sequential model allows.
//! The model is a second, independent statement of the state table, in which the store's time is only known within
//! a window: see [`Bounds`].

mod checker;
mod claims;
mod driver;
mod jitter;
mod marks;
mod model;
mod operation;
mod recorder;
mod report;
#[cfg(test)]
mod tests;
mod time_window;
mod workload;

use self::checker::Verdict;
use self::model::Model;

pub use self::driver::run;
pub use self::model::Bounds;
pub use self::operation::{ClaimAnswer, ClaimCall, ClaimOperation, End, History, MarkOperation, Operation};
pub use self::recorder::Recorder;
pub use self::workload::Workload;

/// How much was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Number of histories.
    pub histories: usize,
    /// Number of keys in them.
    pub keys: usize,
    /// Number of operations in them.
    pub operations: usize,
    /// Operations with an unknown result.
    pub open: usize,
    /// States that the search visited.
    pub states: usize,
    /// Keys whose search gave up, because too many results are unknown.
    pub undecided: usize,
}

impl Statistics {
    /// Adds other statistics.
    pub fn add(&mut self, others: Statistics) {
        self.histories += others.histories;
        self.keys += others.keys;
        self.operations += others.operations;
        self.open += others.open;
        self.states += others.states;
        self.undecided += others.undecided;
    }
}

impl History {
    /// Searches for an order that explains every result. The error is a readable report of the shortest prefix of
    /// one key's history that has no such order.
    pub fn check(&self, bounds: &Bounds) -> Result<Statistics, String> {
        let mut statistics = Statistics { histories: 1, ..Statistics::default() };
        for (key, operations) in &self.claims {
            judge::<claims::State>(key, operations, bounds, &mut statistics)?;
        }
        for (key, operations) in &self.marks {
            judge::<marks::State>(key, operations, bounds, &mut statistics)?;
        }
        Ok(statistics)
    }
}

fn judge<M: Model>(
    key: &str,
    operations: &[Operation<M::Call, M::Answer>],
    bounds: &Bounds,
    statistics: &mut Statistics,
) -> Result<(), String> {
    statistics.keys += 1;
    statistics.operations += operations.len();
    statistics.open += operations.iter().filter(|operation| matches!(operation.end, End::Open)).count();
    match checker::check::<M>(operations, bounds) {
        Verdict::Legal { states } => statistics.states += states,
        Verdict::Illegal => return Err(report::illegal::<M>(key, operations, bounds)),
        Verdict::Undecided => statistics.undecided += 1,
    }
    Ok(())
}
