//! What the bodies of all requests of a layer may take together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::rules::Rules;

/// Room for request bodies.
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
}

/// So much of something, shared by many.
#[derive(Debug)]
pub(crate) struct Budget(AtomicU64);

impl Budget {
    fn new(total: u64) -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(total)))
    }

    /// A share that holds nothing yet.
    pub(crate) fn share(self: &Arc<Self>) -> Share {
        Share { of: self.clone(), units: 0 }
    }

    fn take(&self, units: u64) -> bool {
        let less = |left: u64| left.checked_sub(units);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok()
    }

    #[cfg(test)]
    pub(crate) fn left(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// What one holder has of a budget. It is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    of: Arc<Budget>,
    units: u64,
}

impl Share {
    /// Grows to this size, by whole steps as far as there is room for them; `false` if there is not enough left.
    pub(crate) fn reach(&mut self, size: u64, step: u64) -> bool {
        let Some(missing) = size.checked_sub(self.units).filter(|missing| *missing > 0) else { return true };
        let taken = [missing.next_multiple_of(step), missing].into_iter().find(|units| self.of.take(*units));
        self.units += taken.unwrap_or_default();
        taken.is_some()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.units == 0
    }

    /// Gives everything back.
    pub(crate) fn clear(&mut self) {
        self.of.0.fetch_add(std::mem::take(&mut self.units), Ordering::AcqRel);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.clear();
    }
}
