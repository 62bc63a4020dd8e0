//! Work that commits leave behind, done without the writer: indexes of full segments, files that are no longer needed.
//!
//! Nothing here is needed for correctness: an index can be rebuilt, and files that are left over are removed by the next
//! opening.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ichido_core::Timestamp;

use super::format::{SegmentIndex, index_name, segment_name};
use super::job_queue::Job;
use super::view::View;

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
                    Some(segment) => view.spares.add(&*view.storage, &name, &*view.file(&segment)?),
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
