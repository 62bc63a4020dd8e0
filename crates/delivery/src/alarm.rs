//! What a person is told of.

use std::path::Path;

use crate::store::Stored;

/// The way to people.
#[derive(Debug, Default)]
pub struct Alarm {}

impl Alarm {
    /// A batch is about to move to failed. Says whether its notice is safe.
    pub fn failed(&self, _path: &Path, _stored: &Stored) -> bool {
        false
    }

    /// The lane is held.
    pub fn held(&self, _lane: &str, _reason: &str) {}

    /// The receiver took something: whatever was announced is over.
    pub fn lane_works(&self) {}

    /// There is no room.
    pub fn spool_full(&self, _reason: &str) {}
}
