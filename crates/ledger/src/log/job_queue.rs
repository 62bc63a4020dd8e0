//! What commits leave to be done later. [`super::jobs`] does it.

use std::sync::Arc;

use super::active::Contents;
use super::format::SegmentIndex;
use super::segment::Segment;

/// A piece of work.
#[derive(Debug)]
pub(crate) enum Job {
    /// Writes the index of a full segment. The next segment is durable already, so an index proves that its segment is not the
    /// last one.
    WriteIndex(Contents),
    /// Writes an index that was rebuilt.
    StoreIndex(u32, SegmentIndex),
    /// Reuses or removes a dropped segment, and removes these files of large outcomes.
    Recycle(Arc<Segment>, Vec<String>),
}
