//! Finding the records that a receiver refuses, in as few requests as can be.
//!
//! A refused batch is halved by index until each bad record stands alone: with one bad record among n that takes
//! 2·log₂(n) requests. If both halves are refused alike, the first record of each is looked for next; if these are
//! refused alike as well, nothing in the data is to blame, and the lane is held instead of moving every record to failed.
//!
//! A part is divided only after it was refused itself, and always in the middle. So the parts that arrive are the same
//! whichever of them is sent again after a crash or an outage, and a receiver that knows them by their keys counts
//! their records once.
//!
//! Pure: the caller sends what [`Bisect::next_part`] names, reports how it went, and does what it is told.

use std::collections::VecDeque;
use std::ops::Range;

/// Fewer records than this cannot show that all are refused alike.
const RECORDS_TO_SUSPECT: usize = 4;

/// The search within one batch.
#[derive(Clone, Debug)]
pub struct Bisect {
    queue: VecDeque<Range<usize>>,
    /// As long as everything was refused alike.
    suspicion: Option<Suspicion>,
}

/// Perhaps nothing in the data is to blame.
#[derive(Clone, Debug)]
struct Suspicion {
    message: Option<String>,
    /// Halves of which nothing is known yet.
    halves: u8,
    /// What was refused, and is neither divided nor given up yet.
    rejected: Vec<Range<usize>>,
}

/// What the caller does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Replace a part by two smaller ones, durably.
    Split(Range<usize>, usize),
    /// This record is refused: to failed.
    Reject(usize),
    /// All are refused alike: hold the lane, keep every part that is left.
    Hold,
}

impl Bisect {
    /// A batch of so many records (two or more) was refused: its halves come next. The caller has divided it at
    /// [`middle`].
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

    /// The parts that were not sent.
    pub fn rest(&self) -> impl Iterator<Item = &Range<usize>> {
        self.queue.iter()
    }

    /// A part was not refused: it arrived, or waits for another time.
    pub fn passed(&mut self) -> Vec<Action> {
        self.split_all()
    }

    /// A part was refused with these words.
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

    /// There are differences: each part stands for itself from now on.
    fn split_all(&mut self) -> Vec<Action> {
        let rejected = self.suspicion.take().map(|suspicion| suspicion.rejected).unwrap_or_default();
        rejected.into_iter().flat_map(|part| self.split(part)).collect()
    }

    /// Goes on with the first half of a part that was refused, down to a single record of each half of the whole.
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

/// Where a part is divided.
pub fn middle(part: &Range<usize>) -> usize {
    part.start + part.len() / 2
}

/// A refusal without what is different for each record: words that hold digits.
fn normalize(message: &str) -> String {
    let message = message.split(|char: char| !char.is_alphanumeric());
    let kept = message.filter(|word| !word.is_empty() && !word.chars().any(|char| char.is_ascii_digit()));
    kept.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
