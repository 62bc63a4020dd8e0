//! Random choices of one run. All of them come from its seed.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// A source of choices.
#[derive(Debug)]
pub(super) struct Random(StdRng);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(StdRng::seed_from_u64(seed))
    }

    /// A number below `bound`, which must not be zero.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0.random_range(0..bound)
    }

    /// A number below `bound`, which must not be zero.
    pub(super) fn below_u64(&mut self, bound: u64) -> u64 {
        self.0.random_range(0..bound)
    }

    /// True once in `count` times.
    pub(super) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    /// One of these, which must not be empty.
    pub(super) fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }

    pub(super) fn number(&mut self) -> u64 {
        self.0.random()
    }

    pub(super) fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.0.fill(&mut bytes);
        bytes
    }

    /// Bytes that cannot be compressed, or that can.
    pub(super) fn content(&mut self, length: usize) -> Vec<u8> {
        let mut content = vec![self.0.random(); length];
        if self.one_in(2) {
            self.0.fill(content.as_mut_slice());
        }
        content
    }
}
