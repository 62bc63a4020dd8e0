//! Finds records that a receiver could not tell apart.

use std::collections::HashMap;
use std::hash::BuildHasher;

use foldhash::fast::RandomState;

use crate::id;
use crate::profile::Profile;
use crate::totals::Totals;

/// Another record, by its index, and what the two have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Duplicate {
    SameId(usize),
    SameModelDay(usize),
}

/// A duplicate of each record that has one.
#[derive(Debug, Default)]
pub(super) struct Duplicates {
    by_index: HashMap<usize, Duplicate>,
}

impl Duplicates {
    /// Compares every record with every other. `ids` are those of `totals`, in the same order.
    pub(super) fn find(profile: Profile, totals: &Totals, ids: &[Result<String, id::Error>]) -> Self {
        let mut found = Self::default();
        found.same_id(totals, ids);
        if profile == Profile::UpsertByModelDay {
            found.same_model_day(totals);
        }
        found
    }

    pub(super) fn of(&self, index: usize) -> Option<Duplicate> {
        self.by_index.get(&index).copied()
    }

    /// Sorts hashes of the ids, which is faster than comparing ids with long common prefixes.
    fn same_id(&mut self, totals: &Totals, ids: &[Result<String, id::Error>]) {
        let hasher = RandomState::default();
        let mut hashes: Vec<(u64, usize)> = Vec::with_capacity(ids.len());
        for (index, (total, id)) in totals.iter().zip(ids).enumerate() {
            if let Ok(id) = id {
                // Receivers keep the ids of each tenant apart.
                hashes.push((hasher.hash_one((total.tenant, id)), index));
            }
        }
        hashes.sort_unstable();
        let tenant = |index| totals.get(index).map(|total| total.tenant);
        for pair in hashes.windows(2) {
            if let [(one_hash, one), (other_hash, other)] = *pair
                && one_hash == other_hash
                && (tenant(one), &ids[one]) == (tenant(other), &ids[other])
            {
                self.insert(one, other, Duplicate::SameId);
            }
        }
    }

    /// Totals of the same day and model are adjacent.
    fn same_model_day(&mut self, totals: &Totals) {
        let model_day = |index| {
            totals.get(index).map(|total| (total.tenant, total.usage_date, total.provider, total.model))
        };
        for index in 1..totals.len() {
            if model_day(index - 1) == model_day(index) {
                self.insert(index - 1, index, Duplicate::SameModelDay);
            }
        }
    }

    fn insert(&mut self, one: usize, other: usize, kind: fn(usize) -> Duplicate) {
        self.by_index.entry(one).or_insert(kind(other));
        self.by_index.entry(other).or_insert(kind(one));
    }
}
