//! Linearizability: whatever callers do at once, the answers must be those of one ledger that did one thing at a time.
//!
//! A [`Plan`] is drawn from a seed and carried out by several clients on several instances ([`run`]). A [`Recorder`]
//! sits on the seam between handle and backend, so every try of the handle is an operation of its own, with the
//! moments of its question and its answer on one steady clock. A try whose answer is unknown (an error with
//! [`crate::Effect::Unknown`], a deadline, a dropped future) may have happened at any moment after its question, or
//! never.
//!
//! Claims and marks are objects of their own for each key, so a history is judged key by key ([`History::check`]): the
//! checker looks for an order of the operations that respects their moments and that the sequential model allows. The
//! model is a second, independent statement of the state table, in which the store's time is known only within a
//! window; see [`Bounds`].

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
    /// Histories.
    pub histories: usize,
    /// Keys in them.
    pub keys: usize,
    /// Operations in them.
    pub operations: usize,
    /// Operations whose answer is unknown.
    pub open: usize,
    /// States that the search visited.
    pub states: usize,
    /// Keys whose search gave up: too many of their answers are unknown.
    pub undecided: usize,
}

impl Statistics {
    /// Counts others in.
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
    /// Looks for an order that explains every answer. The error is the shortest part of a key's history that has none,
    /// written for people.
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
