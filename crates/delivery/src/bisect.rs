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
const ENOUGH_TO_DOUBT: usize = 4;

/// The search within one batch.
#[derive(Clone, Debug)]
pub struct Bisect {
    queue: VecDeque<Range<usize>>,
    /// As long as everything was refused alike.
    doubt: Option<Doubt>,
}

/// Perhaps nothing in the data is to blame.
#[derive(Clone, Debug)]
struct Doubt {
    words: Option<String>,
    /// Halves of which nothing is known yet.
    halves: u8,
    /// What was refused, and is neither divided nor given up yet.
    refused: Vec<Range<usize>>,
}

/// What the caller does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Replace a part by two smaller ones, durably.
    Divide(Range<usize>, usize),
    /// This record is refused: to failed.
    Refuse(usize),
    /// All are refused alike: hold the lane, keep every part that is left.
    Hold,
}

impl Bisect {
    /// A batch of so many records (two or more) was refused: its halves come next. The caller has divided it at
    /// [`middle`].
    pub fn new(records: usize) -> Self {
        let halves = middle(&(0..records));
        let doubt = Doubt { words: None, halves: 2, refused: Vec::new() };
        Self {
            queue: VecDeque::from([0..halves, halves..records]),
            doubt: (records >= ENOUGH_TO_DOUBT).then_some(doubt),
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
    pub fn passed(&mut self) -> Vec<Act> {
        self.trust()
    }

    /// A part was refused with these words.
    pub fn refused(&mut self, part: Range<usize>, words: &str) -> Vec<Act> {
        let Some(doubt) = &mut self.doubt else { return self.cut(part) };
        let words = likeness(words);
        let is_alike = *doubt.words.get_or_insert_with(|| words.clone()) == words;
        doubt.refused.push(part);
        doubt.halves = doubt.halves.saturating_sub(1);
        match (is_alike, doubt.halves) {
            (false, _) => self.trust(),
            (true, 0) => self.descend(),
            (true, _) => Vec::new(),
        }
    }

    /// There are differences: each part stands for itself from now on.
    fn trust(&mut self) -> Vec<Act> {
        let refused = self.doubt.take().map(|doubt| doubt.refused).unwrap_or_default();
        refused.into_iter().flat_map(|part| self.cut(part)).collect()
    }

    /// Goes on with the first half of a part that was refused, down to a single record of each half of the whole.
    fn descend(&mut self) -> Vec<Act> {
        let Some(doubt) = &mut self.doubt else { return Vec::new() };
        let Some(place) = doubt.refused.iter().rposition(|part| part.len() > 1) else {
            return vec![Act::Hold];
        };
        let part = doubt.refused.remove(place);
        let at = middle(&part);
        self.queue.push_front(part.start..at);
        self.queue.push_back(at..part.end);
        vec![Act::Divide(part, at)]
    }

    fn cut(&mut self, part: Range<usize>) -> Vec<Act> {
        if part.len() == 1 {
            return vec![Act::Refuse(part.start)];
        }
        let at = middle(&part);
        self.queue.extend([part.start..at, at..part.end]);
        vec![Act::Divide(part, at)]
    }
}

/// Where a part is divided.
pub fn middle(part: &Range<usize>) -> usize {
    part.start + part.len() / 2
}

/// A refusal without what is different for each record: words that hold digits.
fn likeness(words: &str) -> String {
    let words = words.split(|char: char| !char.is_alphanumeric());
    let kept = words.filter(|word| !word.is_empty() && !word.chars().any(|char| char.is_ascii_digit()));
    kept.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
