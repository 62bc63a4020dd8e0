//! Work that commits leave behind, done without the writer: indexes of full segments, files that are no longer needed.
//!
//! Nothing here is needed for correctness: an index can be rebuilt, and files that are left over are removed by the next
//! opening.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ichido_core::Timestamp;

use super::active::Contents;
use super::format::{SegmentIndex, index_name, segment_name};
use super::view::{Segment, View};

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

impl Job {
    /// Does the work.
    pub(crate) fn run(self, view: &View) -> io::Result<()> {
        match self {
            Job::WriteIndex(contents) => {
                let id = contents.segment;
                let Some(segment) = view.segment(id) else { return Ok(()) };
                let mostly_expired_at = Timestamp(segment.look_at.load(Ordering::Acquire));
                write_index(view, id, &contents.into_index(mostly_expired_at))
            }
            Job::StoreIndex(id, index) => write_index(view, id, &index),
            Job::Recycle(segment, outcome_files) => {
                for name in outcome_files.iter().chain([&index_name(segment.id)]) {
                    remove_if_there(view, name)?;
                }
                let name = segment_name(segment.id);
                // A reader that still has the file must not see it change.
                match Arc::into_inner(segment) {
                    Some(segment) => view.spares.add(view, &name, &*segment.file(view)?),
                    None => remove_if_there(view, &name),
                }
            }
        }
    }
}

fn write_index(view: &View, id: u32, index: &SegmentIndex) -> io::Result<()> {
    let bytes = index.encode(id, &view.checksums);
    let file = view.storage.create(&index_name(id))?;
    file.write_at(&bytes, 0)?;
    file.sync()?;
    view.storage.sync_dir()
}

fn remove_if_there(view: &View, name: &str) -> io::Result<()> {
    match view.storage.remove(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
