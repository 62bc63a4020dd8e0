//! The records of open claims in memory, so that settling a claim does not read the disk.

use ichido_core::{Index, Record};

use super::format::Location;
use crate::index_map::IndexMap;

/// Open claims, up to a bound. What does not fit is read from the disk.
#[derive(Debug)]
pub(crate) struct OpenCache {
    claims: IndexMap<(Record, Location)>,
    bound: usize,
}

impl OpenCache {
    pub(crate) fn new(bound: usize) -> Self {
        Self { claims: IndexMap::default(), bound }
    }

    pub(crate) fn get(&self, index: &Index) -> Option<&(Record, Location)> {
        self.claims.get(index)
    }

    /// Keeps the claim of a commit.
    pub(crate) fn put(&mut self, index: Index, record: Record, location: Location) {
        if self.claims.len() < self.bound || self.claims.contains_key(&index) {
            self.claims.insert(index, (record, location));
        }
    }

    /// A claim was copied to another place.
    pub(crate) fn relocate(&mut self, index: &Index, location: Location) {
        if let Some((_, known)) = self.claims.get_mut(index) {
            *known = location;
        }
    }

    pub(crate) fn remove(&mut self, index: &Index) {
        self.claims.remove(index);
    }
}
