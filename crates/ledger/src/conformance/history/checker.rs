//! The search for an order, after Wing and Gong, with Lowe's memoization.
//!
//! An operation may come next if no remaining operation was answered before it was called. What is left to do
//! depends only on which operations were taken and on the resulting state, so no such pair is visited twice.

use std::collections::HashSet;

use super::model::{Bounds, Model};
use super::operation::{End, Operation};

/// More operations on one key are refused: the set of taken ones is one `u128`.
const OPERATIONS_MAX: usize = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// There is an order, found after visiting this many states.
    Legal { states: usize },
    /// There is none.
    Illegal,
    /// The search reached its limit.
    Undecided,
}

pub(super) fn check<M: Model>(operations: &[Operation<M::Call, M::Answer>], bounds: &Bounds) -> Verdict {
    assert!(
        operations.len() <= OPERATIONS_MAX,
        "{} operations on one key; at most {OPERATIONS_MAX} are searched",
        operations.len()
    );
    let mut order: Vec<&Operation<M::Call, M::Answer>> = operations.iter().collect();
    // Likely orders first: by reply, with unanswered operations last.
    order.sort_by_key(|operation| answered_us(operation));
    let answered = (0..order.len()).filter(|position| answered_us(order[*position]) < u64::MAX);
    let wanted = answered.fold(0, |set, position| set | 1 << position);
    let mut search = Search::<M> { order, wanted, bounds, visited: HashSet::new() };
    match search.explore(0, M::default()) {
        Some(true) => Verdict::Legal { states: search.visited.len() },
        Some(false) => Verdict::Illegal,
        None => Verdict::Undecided,
    }
}

pub(super) fn answered_us<C, A>(operation: &Operation<C, A>) -> u64 {
    match operation.end {
        End::Answered { at_us, .. } => at_us,
        End::Open => u64::MAX,
    }
}

struct Search<'a, M: Model> {
    order: Vec<&'a Operation<M::Call, M::Answer>>,
    /// The operations that must be taken: those with a result.
    wanted: u128,
    bounds: &'a Bounds,
    visited: HashSet<(u128, M)>,
}

impl<M: Model> Search<'_, M> {
    /// Whether the operations that are not in `taken` can follow `state`; `None` if the limit was reached before
    /// that was known.
    fn explore(&mut self, taken: u128, state: M) -> Option<bool> {
        if taken & self.wanted == self.wanted {
            return Some(true);
        }
        if self.visited.len() >= self.bounds.states {
            return None;
        }
        if !self.visited.insert((taken, state.clone())) {
            return Some(false);
        }
        let left = |position: &usize| taken & (1 << position) == 0;
        let positions = (0..self.order.len()).filter(left);
        let horizon =
            positions.clone().map(|position| answered_us(self.order[position])).min().unwrap_or(u64::MAX);
        let next: Vec<usize> =
            positions.filter(|position| self.order[*position].asked_us <= horizon).collect();
        for position in next {
            for after in state.after(self.order[position], self.bounds) {
                if self.explore(taken | 1 << position, after)? {
                    return Some(true);
                }
            }
        }
        Some(false)
    }
}
