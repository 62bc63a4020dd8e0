//! Where the next sweep of the table continues.

use std::sync::{Mutex, PoisonError};

/// Where the last sweep stopped.
#[derive(Debug, Default)]
pub(super) struct SweepCursor(Mutex<Option<String>>);

impl SweepCursor {
    pub(super) fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) fn set(&self, position: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = position;
    }
}
