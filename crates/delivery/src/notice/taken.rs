//! The notices of one drain, and what each channel does not have yet.

use std::collections::BTreeSet;

use super::digest::Digest;
use super::event::{Event, Notice};
use super::file_name::FileName;

/// The notices of one drain.
pub(super) struct Taken {
    pub(super) entries: Vec<Entry>,
    /// What each channel does not have yet, in the order of the channels.
    pub(super) parts: Vec<Part>,
}

/// Where a notice is, and which channels have it.
pub(super) enum Entry {
    /// At this position in memory.
    Memory(usize, BTreeSet<String>),
    File(FileName),
}

/// What a channel does not have yet.
#[derive(Default)]
pub(super) struct Part {
    pub(super) digest: Digest,
    pub(super) entries: Vec<usize>,
    pub(super) batches: Vec<BatchNotice>,
}

/// A notice about a failed batch. The log reports when each of them is sent.
pub(super) struct BatchNotice {
    pub(super) id: String,
    pub(super) key: String,
}

impl Entry {
    pub(super) fn sent(&self) -> &BTreeSet<String> {
        match self {
            Self::Memory(_, sent) => sent,
            Self::File(file) => &file.sent,
        }
    }
}

impl Taken {
    pub(super) fn new(channels: usize) -> Self {
        Self { entries: Vec::new(), parts: std::iter::repeat_with(Part::default).take(channels).collect() }
    }

    pub(super) fn add(&mut self, entry: Entry, id: &str, notice: &Notice, channels: &[&'static str]) {
        let index = self.entries.len();
        for (part, channel) in self.parts.iter_mut().zip(channels) {
            if !entry.sent().contains(*channel) {
                part.add(index, id, notice);
            }
        }
        self.entries.push(entry);
    }
}

impl Part {
    fn add(&mut self, index: usize, id: &str, notice: &Notice) {
        self.entries.push(index);
        self.digest.add(id, notice);
        match &notice.event {
            Event::Failed(failed) | Event::Expired(failed) => {
                let key = failed.batch_idempotency_key.clone();
                self.batches.push(BatchNotice { id: id.to_owned(), key });
            }
            Event::Held { .. }
            | Event::SpoolFull { .. }
            | Event::InvalidInput { .. }
            | Event::Anomaly { .. }
            | Event::Budget { .. }
            | Event::Recovered { .. } => {}
        }
    }
}
