//! Finds the records that a receiver rejects, with few requests.
//!
//! A rejected batch is halved until each bad record is alone: one bad record among n takes 2·log₂(n) requests. If both
//! halves are rejected with the same message, the search goes down to the first record of each half. If those two are
//! rejected alike as well, the data is not to blame: the lane is held instead of moving every record to failed.
//!
//! A part is split only after it was rejected itself, and always in the middle. So a retry after a crash or an outage
//! sends the same parts under the same keys, and a receiver that deduplicates by key counts their records once.
//!
//! Pure: the caller sends the part that [`Bisect::next_part`] returns, reports the result, and performs the actions.

use std::collections::VecDeque;
use std::ops::Range;

/// With fewer records, identical rejections prove nothing.
const RECORDS_TO_SUSPECT: usize = 4;

/// The search within one batch.
#[derive(Clone, Debug)]
pub struct Bisect {
    queue: VecDeque<Range<usize>>,
    /// Set as long as everything was rejected alike.
    suspicion: Option<Suspicion>,
}

/// The data may not be to blame.
#[derive(Clone, Debug)]
struct Suspicion {
    message: Option<String>,
    /// Halves whose result is not known yet.
    halves: u8,
    /// Parts that were rejected, and are neither split nor failed yet.
    rejected: Vec<Range<usize>>,
}

/// What the caller must do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Replace a part by two smaller ones, durably. The number is the index to split at.
    Split(Range<usize>, usize),
    /// Move this record to failed.
    Reject(usize),
    /// Hold the lane and keep all remaining parts: every record is rejected alike.
    Hold,
}

impl Bisect {
    /// Starts the search in a rejected batch of two or more records, which the caller has split at [`middle`].
    pub fn new(records: usize) -> Self {
        let halves = middle(&(0..records));
        let suspicion = Suspicion { message: None, halves: 2, rejected: Vec::new() };
        Self {
            queue: VecDeque::from([0..halves, halves..records]),
            suspicion: (records >= RECORDS_TO_SUSPECT).then_some(suspicion),
        }
    }

    /// The part to send next.
    pub fn next_part(&mut self) -> Option<Range<usize>> {
        self.queue.pop_front()
    }

    /// The parts that have not been sent.
    pub fn rest(&self) -> impl Iterator<Item = &Range<usize>> {
        self.queue.iter()
    }

    /// Reports that a part was not rejected: it was delivered, or is retried later.
    pub fn passed(&mut self) -> Vec<Action> {
        self.split_all()
    }

    /// Reports that a part was rejected with this message.
    pub fn rejected(&mut self, part: Range<usize>, message: &str) -> Vec<Action> {
        let Some(suspicion) = &mut self.suspicion else { return self.split(part) };
        let message = normalize(message);
        let is_alike = *suspicion.message.get_or_insert_with(|| message.clone()) == message;
        suspicion.rejected.push(part);
        suspicion.halves = suspicion.halves.saturating_sub(1);
        match (is_alike, suspicion.halves) {
            (false, _) => self.split_all(),
            (true, 0) => self.descend(),
            (true, _) => Vec::new(),
        }
    }

    /// The rejections differ, so each part is searched on its own from now on.
    fn split_all(&mut self) -> Vec<Action> {
        let rejected = self.suspicion.take().map(|suspicion| suspicion.rejected).unwrap_or_default();
        rejected.into_iter().flat_map(|part| self.split(part)).collect()
    }

    /// Continues with the first half of a rejected part, down to a single record of each half of the batch.
    fn descend(&mut self) -> Vec<Action> {
        let Some(suspicion) = &mut self.suspicion else { return Vec::new() };
        let Some(index) = suspicion.rejected.iter().rposition(|part| part.len() > 1) else {
            return vec![Action::Hold];
        };
        let part = suspicion.rejected.remove(index);
        let at = middle(&part);
        self.queue.push_front(part.start..at);
        self.queue.push_back(at..part.end);
        vec![Action::Split(part, at)]
    }

    fn split(&mut self, part: Range<usize>) -> Vec<Action> {
        if part.len() == 1 {
            return vec![Action::Reject(part.start)];
        }
        let at = middle(&part);
        self.queue.extend([part.start..at, at..part.end]);
        vec![Action::Split(part, at)]
    }
}

/// The index at which a part is split.
pub fn middle(part: &Range<usize>) -> usize {
    part.start + part.len() / 2
}

/// A rejection message without the words that contain digits, which differ from record to record.
fn normalize(message: &str) -> String {
    let message = message.split(|char: char| !char.is_alphanumeric());
    let kept = message.filter(|word| !word.is_empty() && !word.chars().any(|char| char.is_ascii_digit()));
    kept.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
