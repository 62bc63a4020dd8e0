//! Notices that wait to be sent. One that contains the text is removed: whoever erases it knows of it.

use std::io;
use std::path::Path;

use super::{Mode, Subject, Tally};
use crate::disk::{self, Disk, ignore_missing};
use crate::notice;

/// Removes waiting notices that contain the text.
pub fn notices(root: &Path, subject: &Subject, mode: Mode) -> io::Result<Tally> {
    let (mut tally, dir, escaped) = (Tally::default(), root.join("notices"), subject.escaped());
    for path in notice::files(&dir)? {
        let text = match disk::read_regular(&path, notice::NOTICE_BYTES_MAX) {
            Ok(text) => text,
            // It was sent in the meantime.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        if memchr::memmem::find(&text, escaped.as_bytes()).is_none() {
            continue;
        }
        // A process that has taken a notice is sending it.
        let is_waiting = path.parent() == Some(&dir);
        tally.add(1, usize::from(is_waiting));
        if is_waiting && mode == Mode::Erase {
            Disk::default().remove(&path).or_else(ignore_missing)?;
        }
    }
    if tally.erased > 0 {
        tally.notes.push("notices are removed instead of sent".to_owned());
    }
    if tally.kept() > 0 {
        tally.notes.push("a process is sending a notice: erase again when it was sent".to_owned());
    }
    Ok(tally)
}
