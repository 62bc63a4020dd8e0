//! A batch: records that are sent together, and the idempotency key that the receiver knows them by.
//!
//! The key does not depend on the order of the records ([`batch_key`]).

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use ichido_core::{batch_key, to_hex};
use sha2::{Digest, Sha256};

use crate::record::Record;

/// Records that are sent together.
#[derive(Clone, Debug)]
pub struct Batch {
    key: String,
    records: Vec<Record>,
    /// Computed on first use.
    digest: OnceLock<Arc<str>>,
}

impl Batch {
    /// Creates a batch whose key is derived from its records.
    pub fn new(records: Vec<Record>) -> Self {
        Self::stored(batch_key(records.iter().map(Record::key)), records)
    }

    /// Creates a batch that keeps the key it was stored under.
    pub fn stored(key: String, records: Vec<Record>) -> Self {
        Self { key, records, digest: OnceLock::new() }
    }

    /// The idempotency key of the batch.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The first twelve characters of the key, as used in file names.
    pub fn key_prefix(&self) -> &str {
        key_prefix(&self.key)
    }

    /// A digest of the exact content: batches with the same key may still differ. Whoever reads batches on a thread of their
    /// own computes it there, so that the sender does not wait for it.
    pub fn digest(&self) -> &str {
        self.digest.get_or_init(|| {
            let mut hasher = Sha256::new();
            for record in &self.records {
                hasher.update(record.json());
                hasher.update("\n");
            }
            Arc::from(format!("sha256:{}", to_hex(&hasher.finalize())))
        })
    }

    /// The records, in the order in which they were read.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// A batch of some of the records, with a key of its own.
    pub fn slice(&self, range: Range<usize>) -> Self {
        Self::new(self.records[range].to_vec())
    }

    /// A batch of the records at these indexes, with a key of its own.
    pub fn select(&self, indexes: &[usize]) -> Self {
        Self::new(indexes.iter().filter_map(|index| self.records.get(*index).cloned()).collect())
    }
}

/// The first twelve characters of a key that are safe in a file name.
pub(crate) fn key_prefix(key: &str) -> &str {
    let end = key.bytes().position(|byte| !byte.is_ascii_alphanumeric()).unwrap_or(key.len()).min(12);
    &key[..end]
}

/// Groups a stream of records into batches, limited by record count and by bytes.
#[derive(Debug)]
pub struct Batcher {
    records_max: usize,
    bytes_max: usize,
    bytes: usize,
    records: Vec<Record>,
}

impl Batcher {
    /// Limits batches to so many records and bytes. A single record may exceed the byte limit.
    pub fn new(records_max: usize, bytes_max: usize) -> Self {
        Self { records_max: records_max.max(1), bytes_max, bytes: 0, records: Vec::new() }
    }

    /// Adds a record, and returns a batch if one is full.
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

    /// The incomplete last batch.
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
    fn same_input_gives_the_same_batches() {
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
    fn batch_is_closed_before_it_exceeds_the_byte_limit() {
        let size = record(0).json().len();
        let mut batcher = Batcher::new(100, 2 * size);
        assert!(batcher.push(record(0)).is_none() && batcher.push(record(1)).is_none());
        assert_eq!(batcher.push(record(2)).unwrap().records().len(), 2);
        assert_eq!(batcher.finish().unwrap().records().len(), 1);
        assert!(batcher.finish().is_none());
    }
}
