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
mod plan;
mod recorder;
mod report;
mod span;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use ichido_core::mark::{self, Mark};
use ichido_core::{Claim, ClaimRequest, Record, Resolution, Resolved, Settle, Settled, Token};

use self::checker::Verdict;
pub use self::driver::run;
pub use self::plan::Plan;
pub use self::recorder::Recorder;
use crate::{Capabilities, StoreClock};

/// One call of one client on one key.
#[derive(Clone, Debug)]
pub struct Operation<C, A> {
    /// Who asked.
    pub client: usize,
    /// What was asked.
    pub call: C,
    /// When, in microseconds of the recorder's clock.
    pub asked_us: u64,
    /// How it ended.
    pub end: End<A>,
}

/// How an operation ended.
#[derive(Clone, Debug)]
pub enum End<A> {
    /// With this answer, at this moment.
    Answered {
        /// The moment, in microseconds of the recorder's clock.
        at_us: u64,
        /// The answer.
        answer: A,
    },
    /// Nobody knows: it may happen at any moment after it was asked, or never.
    Open,
}

/// A call on a claim.
#[derive(Clone, Debug)]
pub enum ClaimCall {
    /// Someone asks for the key.
    Claim(Box<ClaimRequest>),
    /// A holder settles.
    Settle(Token, Settle),
    /// An operator resolves.
    Resolve(Resolution),
    /// Someone looks.
    Look,
}

/// The answer to a call on a claim.
#[derive(Clone, Debug)]
pub enum ClaimAnswer {
    /// To a claim.
    Claim(Claim),
    /// To a holder's word.
    Settle(Settled),
    /// To an operator's word.
    Resolve(Resolved),
    /// What was seen.
    Look(Option<Box<Record>>),
}

/// An operation on a claim.
pub type ClaimOperation = Operation<ClaimCall, ClaimAnswer>;
/// An operation on a mark.
pub type MarkOperation = Operation<mark::Request, Mark>;

/// Everything that was asked and answered, key by key.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Operations on claims, by key.
    pub claims: BTreeMap<String, Vec<ClaimOperation>>,
    /// Operations on marks, by key.
    pub marks: BTreeMap<String, Vec<MarkOperation>>,
}

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

/// How much was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
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

impl Figures {
    /// Counts others in.
    pub fn add(&mut self, others: Figures) {
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
    pub fn check(&self, bounds: &Bounds) -> Result<Figures, String> {
        let mut figures = Figures { histories: 1, ..Figures::default() };
        for (key, operations) in &self.claims {
            judge::<claims::State>(key, operations, bounds, &mut figures)?;
        }
        for (key, operations) in &self.marks {
            judge::<marks::State>(key, operations, bounds, &mut figures)?;
        }
        Ok(figures)
    }
}

/// The sequential behaviour of one key.
trait Model: Clone + Default + Eq + std::hash::Hash + std::fmt::Debug {
    type Call: Clone + std::fmt::Debug;
    type Answer: Clone + std::fmt::Debug;

    /// The states after an operation whose answer, if there is one, is legal in this state. For an open operation only
    /// those that differ from this state: one that changes nothing need not have happened.
    fn after(&self, operation: &Operation<Self::Call, Self::Answer>, bounds: &Bounds) -> Vec<Self>;

    /// An operation in one line.
    fn describe(operation: &Operation<Self::Call, Self::Answer>) -> String;
}

fn judge<M: Model>(
    key: &str,
    operations: &[Operation<M::Call, M::Answer>],
    bounds: &Bounds,
    figures: &mut Figures,
) -> Result<(), String> {
    figures.keys += 1;
    figures.operations += operations.len();
    figures.open += operations.iter().filter(|operation| matches!(operation.end, End::Open)).count();
    match checker::check::<M>(operations, bounds) {
        Verdict::Legal { states } => figures.states += states,
        Verdict::Illegal => return Err(report::illegal::<M>(key, operations, bounds)),
        Verdict::Undecided => figures.undecided += 1,
    }
    Ok(())
}
