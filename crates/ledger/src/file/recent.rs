//! What the last commits changed.
//!
//! Most claims are new, and their callers have already looked: nothing in the engine. The writer need not look again
//! if it knows that nobody wrote the key since. Each commit is a *generation*; a caller notes the published one before
//! it looks, and the writer asks here whether the key was written after that.

use std::collections::VecDeque;

use ichido_core::Index;

use crate::index_map::IndexMap;

/// Keys that are remembered; a caller that looked before the oldest of them is looked after by the engine.
const BOUND: usize = 8 * 1024;

/// Keys written by the last commits.
#[derive(Debug, Default)]
pub(super) struct Recent {
    written: IndexMap<u64>,
    log: VecDeque<(u64, Index)>,
    /// Writes of this generation and before may have been forgotten.
    floor: u64,
}

impl Recent {
    /// Whether nobody wrote the key after `generation`.
    pub(super) fn unwritten_since(&self, index: &Index, generation: u64) -> bool {
        generation >= self.floor && self.written.get(index).is_none_or(|written| *written <= generation)
    }

    /// Notes the keys of a commit.
    pub(super) fn note(&mut self, generation: u64, indexes: impl IntoIterator<Item = Index>) {
        for index in indexes {
            self.written.insert(index, generation);
            self.log.push_back((generation, index));
        }
        while self.log.len() > BOUND {
            let Some((forgotten, index)) = self.log.pop_front() else { return };
            self.floor = forgotten;
            if self.written.get(&index) == Some(&forgotten) {
                self.written.remove(&index);
            }
        }
    }

    /// Forgets everything: what was seen before `generation` proves nothing.
    pub(super) fn reset(&mut self, generation: u64) {
        *self = Self { floor: generation, ..Self::default() };
    }
}
