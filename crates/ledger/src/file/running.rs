//! Claims that are open, in the writer's memory.
//!
//! The end of a claim is judged by its beginning. Most claims end soon after they began, and then the writer need neither
//! look for them in the engine nor decode them. What is kept here is what the last durable commit left in `open`.

use ichido_core::{Index, Record, State};

use crate::index_map::IndexMap;

/// Claims that are kept; others are read from the engine.
const BOUND: usize = 8 * 1024;

/// Open claims, as the engine has them.
#[derive(Debug, Default)]
pub(super) struct Running(IndexMap<Record>);

impl Running {
    pub(super) fn get(&self, index: &Index) -> Option<&Record> {
        self.0.get(index)
    }

    /// Notes what a durable commit made of a claim.
    pub(super) fn note(&mut self, index: Index, now: Option<Record>) {
        match now.filter(|record| !matches!(record.state, State::Done(_))) {
            Some(record) if self.0.len() < BOUND || self.0.contains_key(&index) => {
                self.0.insert(index, record);
            }
            Some(_) | None => {
                self.0.remove(&index);
            }
        }
    }

    /// Forgets everything: nobody knows what the engine has.
    pub(super) fn reset(&mut self) {
        self.0.clear();
    }
}
