//! A batch: some records, and the key under which the receiver knows them.
//!
//! The same records give the same key in any order.

use std::ops::Range;

use ichido_core::batch_key;
use sha2::{Digest, Sha256};

use crate::record::Record;

/// Records that are sent together.
#[derive(Clone, Debug)]
pub struct Batch {
    key: String,
    records: Vec<Record>,
}

impl Batch {
    /// A batch of these records, under the key that they give.
    pub fn new(records: Vec<Record>) -> Self {
        Self { key: batch_key(records.iter().map(Record::key)), records }
    }

    /// A batch that was stored under a key, which it keeps.
    pub fn stored(key: String, records: Vec<Record>) -> Self {
        Self { key, records }
    }

    /// The idempotency key of the batch.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The first twelve characters of the key: its part of a file's name.
    pub fn key_prefix(&self) -> &str {
        key_prefix(&self.key)
    }

    /// A digest of the content, to the byte: two batches of one key may still differ.
    pub fn digest(&self) -> String {
        let mut hasher = Sha256::new();
        for record in &self.records {
            hasher.update(record.json());
            hasher.update("\n");
        }
        format!("sha256:{}", hex::encode(hasher.finalize()))
    }

    /// The records, in the order in which they were read.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Some of the records, under a key of their own.
    pub fn slice(&self, range: Range<usize>) -> Self {
        Self::new(self.records[range].to_vec())
    }

    /// The records at these places, under a key of their own.
    pub fn select(&self, indexes: &[usize]) -> Self {
        Self::new(indexes.iter().filter_map(|index| self.records.get(*index).cloned()).collect())
    }
}

/// The first twelve characters of a key that are fit for a file's name.
pub(crate) fn key_prefix(key: &str) -> &str {
    let end = key.bytes().position(|byte| !byte.is_ascii_alphanumeric()).unwrap_or(key.len()).min(12);
    &key[..end]
}

/// Cuts a stream of records into batches: so many records, and no more bytes than a receiver can be asked to take.
#[derive(Debug)]
pub struct Batcher {
    records_max: usize,
    bytes_max: usize,
    bytes: usize,
    records: Vec<Record>,
}

impl Batcher {
    /// Batches of at most so many records and bytes; a single record may be larger.
    pub fn new(records_max: usize, bytes_max: usize) -> Self {
        Self { records_max: records_max.max(1), bytes_max, bytes: 0, records: Vec::new() }
    }

    /// Takes a record, and gives the batch that is full by it.
    pub fn push(&mut self, record: Record) -> Option<Batch> {
        let bytes = record.json().len();
        let full = match self.bytes + bytes > self.bytes_max {
            true => self.finish(),
            false => None,
        };
        self.bytes += bytes;
        self.records.push(record);
        full.or_else(|| if self.records.len() >= self.records_max { self.finish() } else { None })
    }

    /// What is left at the end.
    pub fn finish(&mut self) -> Option<Batch> {
        self.bytes = 0;
        let records = std::mem::take(&mut self.records);
        (!records.is_empty()).then(|| Batch::new(records))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(id: usize) -> Record {
        Record::parse(&format!(r#"{{"source_event_id":"e{id}"}}"#)).unwrap()
    }

    #[test]
    fn the_same_input_gives_the_same_batches() {
        let cut = || {
            let mut batcher = Batcher::new(3, 1 << 20);
            let mut batches: Vec<Batch> = (0..8).filter_map(|id| batcher.push(record(id))).collect();
            batches.extend(batcher.finish());
            batches.iter().map(|batch| (batch.key().to_owned(), batch.records().len())).collect::<Vec<_>>()
        };
        assert_eq!(cut(), cut());
        assert_eq!(cut().iter().map(|(_, records)| *records).collect::<Vec<_>>(), [3, 3, 2]);
    }

    #[test]
    fn a_batch_is_cut_before_it_has_too_many_bytes() {
        let size = record(0).json().len();
        let mut batcher = Batcher::new(100, 2 * size);
        assert!(batcher.push(record(0)).is_none() && batcher.push(record(1)).is_none());
        assert_eq!(batcher.push(record(2)).unwrap().records().len(), 2);
        assert_eq!(batcher.finish().unwrap().records().len(), 1);
        assert!(batcher.finish().is_none());
    }
}
