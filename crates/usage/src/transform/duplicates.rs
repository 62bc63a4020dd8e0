//! Which records share an id, found by hashes of the ids: a few bytes for each record, whatever the ids are.

use std::collections::HashMap;
use std::hash::BuildHasher;

use foldhash::fast::RandomState;

use crate::id::{Scheme, Writer};
use crate::profile::Profile;
use crate::sums::Sums;

/// For each record that has a twin, the place of one.
#[derive(Debug, Default)]
pub(super) struct Duplicates {
    twins: HashMap<usize, usize>,
}

impl Duplicates {
    pub(super) fn find(scheme: Scheme, profile: Profile, sums: &Sums) -> Self {
        let mut found = Self::default();
        let hasher = RandomState::default();
        let mut writer = Writer::new(scheme);
        let mut hashes: Vec<(u64, usize)> = Vec::with_capacity(sums.len());
        for (place, sum) in sums.iter().enumerate() {
            if let Ok(id) = writer.write(&sum.id_parts(sums.period())) {
                // Tenants are separate at the receiver, and so are their ids.
                hashes.push((hasher.hash_one((sum.tenant, id)), place));
            }
        }
        hashes.sort_unstable();
        for pair in hashes.windows(2) {
            if let [(one_hash, one), (other_hash, other)] = *pair
                && one_hash == other_hash
                && Self::really_alike(sums, &mut writer, one, other)
            {
                found.note(one, other);
            }
        }
        if profile == Profile::UpsertByModelDay {
            found.same_model_day(sums);
        }
        found
    }

    pub(super) fn of(&self, place: usize) -> Option<usize> {
        self.twins.get(&place).copied()
    }

    fn really_alike(sums: &Sums, writer: &mut Writer, one: usize, other: usize) -> bool {
        let mut id = |place| {
            let sum = sums.get(place)?;
            Some((sum.tenant, writer.write(&sum.id_parts(sums.period())).ok()?.to_owned()))
        };
        let one = id(one);
        one.is_some() && one == id(other)
    }

    /// Sums of one day and model lie beside each other.
    fn same_model_day(&mut self, sums: &Sums) {
        let kin = |place| sums.get(place).map(|sum| (sum.tenant, sum.usage_date, sum.provider, sum.model));
        for place in 1..sums.len() {
            if kin(place - 1) == kin(place) {
                self.note(place - 1, place);
            }
        }
    }

    fn note(&mut self, one: usize, other: usize) {
        self.twins.entry(one).or_insert(other);
        self.twins.entry(other).or_insert(one);
    }
}
