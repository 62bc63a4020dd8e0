//! The last conflicting keys, for operators.

use std::collections::VecDeque;

use ichido_core::{Index, Timestamp};

use crate::{Conflict, ConflictKind, StateName};

/// Conflicting keys that are kept for operators. The counter includes all.
const CONFLICTS_MAX: usize = 100;

/// The last conflicting keys.
#[derive(Debug, Default)]
pub(super) struct Conflicts(VecDeque<Conflict>);

impl Conflicts {
    pub(super) fn add(&mut self, mut conflict: Conflict) {
        if let Some(position) = self.0.iter().position(|known| known.index == conflict.index)
            && let Some(known) = self.0.remove(position)
        {
            conflict.count += known.count;
        }
        self.0.push_front(conflict);
        self.0.truncate(CONFLICTS_MAX);
    }

    pub(super) fn list(&self) -> Vec<Conflict> {
        self.0.iter().cloned().collect()
    }
}

impl Conflict {
    pub(super) fn of_mark(key: &ichido_core::MarkKey, found_at: Timestamp) -> Self {
        Self::new(key.text(), "", "", key.index(), ConflictKind::Mark, found_at)
    }

    pub(super) fn of_claim(record: &ichido_core::Record, found_at: Timestamp) -> Self {
        let local_state = match record.state {
            ichido_core::State::Running => StateName::Running,
            ichido_core::State::InDoubt(_) => StateName::InDoubt,
            ichido_core::State::Done(_) => StateName::Done,
        };
        let (key, kind) = (&record.key, ConflictKind::Claim { local_state });
        Self::new(key.text(), &key.scope().tenant, &key.scope().route, key.index(), kind, found_at)
    }

    fn new(
        key: &str,
        tenant: &str,
        route: &str,
        index: Index,
        kind: ConflictKind,
        found_at: Timestamp,
    ) -> Self {
        let index = index.to_string();
        let (key, tenant, route) = (key.to_owned(), tenant.to_owned(), route.to_owned());
        Self { key, tenant, route, index, kind, count: 1, found_at }
    }
}

#[cfg(test)]
mod tests {
    use ichido_core::MarkKey;

    use super::*;

    #[test]
    fn conflicts_are_counted_per_key_and_bounded() {
        let mut conflicts = Conflicts::default();
        for number in 0..2 * CONFLICTS_MAX {
            conflicts.add(Conflict::of_mark(&MarkKey::new(format!("e{number}")).unwrap(), Timestamp(1)));
        }
        conflicts.add(Conflict::of_mark(&MarkKey::new("e150").unwrap(), Timestamp(2)));
        let list = conflicts.list();
        assert_eq!((list.len(), list[0].key.as_str(), list[0].count), (CONFLICTS_MAX, "e150", 2));
        assert_eq!((list[1].key.as_str(), list[1].count), ("e199", 1));
    }
}
