//! Budgets for the request bodies of all requests of a layer together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::rules::Rules;

/// The budgets of a layer.
#[derive(Debug)]
pub(crate) struct Budgets {
    /// Bytes in memory.
    pub(crate) memory: Arc<Budget>,
    /// Bytes on disk.
    pub(crate) disk: Arc<Budget>,
    /// Open files.
    pub(crate) files: Arc<Budget>,
}

impl Budgets {
    pub(crate) fn new(rules: &Rules) -> Self {
        Self {
            memory: Budget::new(rules.body_memory_total_bytes),
            disk: Budget::new(rules.body_disk_total_bytes),
            files: Budget::new(rules.body_files_max),
        }
    }

    /// The budgets of other rules. What is reserved now counts there as well.
    pub(crate) fn with_rules(&self, rules: &Rules) -> Self {
        Self {
            memory: self.memory.with_total(rules.body_memory_total_bytes),
            disk: self.disk.with_total(rules.body_disk_total_bytes),
            files: self.files.with_total(rules.body_files_max),
        }
    }
}

/// A number of units that many reservations share.
#[derive(Debug)]
pub(crate) struct Budget {
    used: Arc<AtomicU64>,
    total: u64,
}

impl Budget {
    fn new(total: u64) -> Arc<Self> {
        Arc::new(Self { used: Arc::default(), total })
    }

    fn with_total(&self, total: u64) -> Arc<Self> {
        Arc::new(Self { used: self.used.clone(), total })
    }

    /// An empty reservation.
    pub(crate) fn reservation(self: &Arc<Self>) -> Reservation {
        Reservation { budget: self.clone(), units: 0 }
    }

    fn take(&self, units: u64) -> bool {
        let add = |used: u64| used.checked_add(units).filter(|used| *used <= self.total);
        self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, add).is_ok()
    }

    #[cfg(test)]
    pub(crate) fn left(&self) -> u64 {
        self.total - self.used.load(Ordering::Acquire)
    }
}

/// Reserved units of a budget, returned when this is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Arc<Budget>,
    units: u64,
}

impl Reservation {
    /// Grows to `size` units, rounded up to whole steps if the budget allows it. Returns `false` if too few units are left.
    pub(crate) fn grow_to(&mut self, size: u64, step: u64) -> bool {
        let Some(missing) = size.checked_sub(self.units).filter(|missing| *missing > 0) else { return true };
        let taken =
            [missing.next_multiple_of(step), missing].into_iter().find(|units| self.budget.take(*units));
        self.units += taken.unwrap_or_default();
        taken.is_some()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.units == 0
    }

    /// Returns all units.
    pub(crate) fn release(&mut self) {
        self.budget.used.fetch_sub(std::mem::take(&mut self.units), Ordering::AcqRel);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.release();
    }
}
