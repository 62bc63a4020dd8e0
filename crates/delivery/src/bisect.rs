//! Finding the records that a receiver refuses, in as few requests as can be.
//!
//! A refused batch is halved by index until each bad record stands alone: with one bad record among n that takes
//! 2·log₂(n) requests. If both halves are refused alike, two single records are tried next; if these are refused alike
//! as well, nothing in the data is to blame, and the lane is held instead of moving every record to failed.
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
    phase: Phase,
}

#[derive(Clone, Debug)]
enum Phase {
    /// The two halves, or then the two single records, are looked at together.
    Pair { singles: bool, refused: Vec<(Range<usize>, String)>, open: u8 },
    /// Each part stands for itself.
    Free,
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
        let phase = match records >= ENOUGH_TO_DOUBT {
            true => Phase::Pair { singles: false, refused: Vec::new(), open: 2 },
            false => Phase::Free,
        };
        Self { queue: VecDeque::from([0..halves, halves..records]), phase }
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
        let Phase::Pair { open, refused, .. } = &mut self.phase else { return Vec::new() };
        *open = open.saturating_sub(1);
        let refused = std::mem::take(refused);
        self.phase = Phase::Free;
        refused.into_iter().flat_map(|(part, _)| self.cut(part)).collect()
    }

    /// A part was refused with these words.
    pub fn refused(&mut self, part: Range<usize>, words: &str) -> Vec<Act> {
        let Phase::Pair { singles, refused, open } = &mut self.phase else { return self.cut(part) };
        refused.push((part, likeness(words)));
        *open = open.saturating_sub(1);
        if *open > 0 {
            return Vec::new();
        }
        let (singles, refused) = (*singles, std::mem::take(refused));
        let is_alike = refused.iter().all(|(_, words)| *words == refused[0].1);
        match (is_alike, singles) {
            (true, true) => vec![Act::Hold],
            (true, false) => self.try_singles(refused),
            (false, _) => {
                self.phase = Phase::Free;
                refused.into_iter().flat_map(|(part, _)| self.cut(part)).collect()
            }
        }
    }

    fn try_singles(&mut self, halves: Vec<(Range<usize>, String)>) -> Vec<Act> {
        self.phase = Phase::Pair { singles: true, refused: Vec::new(), open: 2 };
        let mut acts = Vec::new();
        for (half, _) in &halves {
            let single = half.start..half.start + 1;
            self.queue.push_back(single);
            if half.len() > 1 {
                acts.push(Act::Divide(half.clone(), half.start + 1));
            }
        }
        let rest = halves.into_iter().map(|(half, _)| half.start + 1..half.end);
        self.queue.extend(rest.filter(|rest| !rest.is_empty()));
        acts
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
