//! Reading claims and marks out of the engine, as they mean now.
//!
//! Callers read beside the writer. A commit is applied item by item in an order that fits the order in which a reader
//! looks (what is fresh, then `open`, then `done`, then `outcomes`): a claim on its way from one to the next is seen in
//! one of them. What may look odd for a moment is [`Found::Moving`], and the writer, who is never surprised, is asked.

use std::path::Path;

use ichido_core::{Index, Record, mark};

use super::codec::{self, Stored};
use super::engine::{Engine, guarded};
use super::fault;
use super::fresh::Granted;
use super::openings::Openings;
use crate::Result;

/// A view of the store.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    pub(super) dir: &'a Path,
    pub(super) engine: &'a Engine,
    pub(super) openings: &'a Openings,
}

/// What lies under an index.
#[derive(Debug)]
pub(super) enum Found {
    Absent,
    /// In `grants`, and in memory.
    Fresh(Granted),
    /// In `open`.
    Open(Record),
    /// In `done`, with its outcome.
    Done {
        record: Record,
        /// The outcome was in `outcomes`.
        apart: bool,
    },
    /// In `done`, but its outcome is not there, or not this one: it is just being removed or replaced, or the store is
    /// damaged.
    Moving,
}

impl View<'_> {
    /// The claim under an index.
    pub(super) fn claim(&self, index: &Index) -> Result<Found> {
        if let Some(granted) = self.engine.fresh.get(index) {
            return Ok(Found::Fresh(granted));
        }
        if let Some(record) = self.open_claim(index)? {
            return Ok(Found::Open(record));
        }
        let Some(stored) = self.done_claim(index)? else { return Ok(Found::Absent) };
        if stored.outcome_bytes.is_none() {
            return Ok(Found::Done { record: stored.record, apart: false });
        }
        let Some(value) = guarded(self.dir, || self.engine.outcomes.get(index.as_bytes()))? else {
            return Ok(Found::Moving);
        };
        let whole = stored.with_outcome(&value).map_err(|flaw| fault::flaw(self.dir, "outcomes", flaw))?;
        Ok(whole.map_or(Found::Moving, |record| Found::Done { record, apart: true }))
    }

    /// The completed claim under an index, without an outcome that lies elsewhere.
    pub(super) fn done_claim(&self, index: &Index) -> Result<Option<Stored>> {
        let value = guarded(self.dir, || self.engine.done.get(index.as_bytes()))?;
        let stored = value.map(|value| codec::decode_claim(index.as_bytes(), &value)).transpose();
        stored.map_err(|flaw| fault::flaw(self.dir, "done", flaw))
    }

    fn open_claim(&self, index: &Index) -> Result<Option<Record>> {
        let value = guarded(self.dir, || self.engine.open.get(index.as_bytes()))?;
        value.map(|value| self.revived(index.as_bytes(), &value)).transpose()
    }

    /// A claim of `open`, as it means in this opening.
    pub(super) fn revived(&self, index: &[u8], value: &[u8]) -> Result<Record> {
        let stored = codec::decode_claim(index, value).map_err(|flaw| fault::flaw(self.dir, "open", flaw))?;
        let mut record = stored.record;
        self.openings.revive(&mut record, stored.epoch);
        Ok(record)
    }

    /// The mark under an index.
    pub(super) fn mark(&self, index: &Index) -> Result<Option<mark::Record>> {
        let value = guarded(self.dir, || self.engine.marks.get(index.as_bytes()))?;
        let record = value.map(|value| codec::decode_mark(index.as_bytes(), &value)).transpose();
        record.map_err(|flaw| fault::flaw(self.dir, "marks", flaw))
    }
}
