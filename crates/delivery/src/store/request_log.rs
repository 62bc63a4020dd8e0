//! What happened to earlier requests of a file, as far as it tells what a 409 means.
//!
//! A request whose answer nobody read may have been processed. Three places know of it. While a process works on a batch, the batch
//! in its memory does; when it lets go of the batch, the file does; and when it dies, the file `requests` in its directory does.
//!
//! That file is a write-ahead of requests: a line before each request, and a line after it unless the batch is gone by then. It is
//! appended without a sync, because it has to survive the process, not the machine: a sync for each batch would slow
//! the sender down by as much as writing the batch does. After a power failure lines may be missing. Then there is no evidence that
//! a request was sent, a 409 is ambiguous, and a person decides: nothing is lost, and nothing counts twice.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;

use ichido_core::Timestamp;

use crate::disk::Disk;
use crate::history::RequestState;
use crate::process_dir::REQUESTS;

/// The file is written anew when it has grown to this.
const LOG_BYTES_MAX: u64 = 256 << 10;
/// More than this is not read: it is not ours.
const READ_BYTES_MAX: u64 = 4 * LOG_BYTES_MAX;

/// The last request of each file in a process's hands.
type LastRequests = BTreeMap<String, (RequestState, Timestamp)>;

/// The write-ahead of a process.
#[derive(Debug, Default)]
pub(crate) struct RequestLog {
    file: Option<File>,
    bytes: u64,
    last: LastRequests,
}

impl RequestLog {
    /// Notes what became of a request of a file.
    pub(crate) fn note(
        &mut self,
        disk: &Disk,
        dir: &Path,
        file: &str,
        request: RequestState,
        at: Timestamp,
    ) -> io::Result<()> {
        self.last.insert(file.to_owned(), (request, at));
        if self.bytes > LOG_BYTES_MAX {
            // What has left is not needed any more.
            self.file = None;
        }
        let text = match &self.file {
            Some(_) => line(file, request, at),
            None => self.last.iter().map(|(file, (request, at))| line(file, *request, *at)).collect(),
        };
        // On an error the file may end with half a line: the next note writes it anew.
        self.file = Some(match self.file.take() {
            Some(mut open) => {
                disk.append(&mut open, &dir.join(REQUESTS), text.as_bytes())?;
                self.bytes += text.len() as u64;
                open
            }
            None => {
                let new = disk.replace_unsynced(dir, REQUESTS, text.as_bytes())?;
                self.bytes = text.len() as u64;
                new
            }
        });
        Ok(())
    }

    /// A file has left the process's hands.
    pub(crate) fn forget(&mut self, file: &str) {
        self.last.remove(file);
    }
}

/// What a dead process noted of each file. Lines that cannot be read are skipped: the process died in the middle.
pub(crate) fn read_log(disk: &Disk, dir: &Path) -> LastRequests {
    let bytes = disk.read(&dir.join(REQUESTS), READ_BYTES_MAX).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    text.lines().filter_map(parse).collect()
}

fn line(file: &str, request: RequestState, at: Timestamp) -> String {
    format!("{} {} {file}\n", request.as_str(), at.0)
}

fn parse(line: &str) -> Option<(String, (RequestState, Timestamp))> {
    let (word, rest) = line.split_once(' ')?;
    let (at, file) = rest.split_once(' ')?;
    let request = RequestState::ALL.into_iter().find(|request| request.as_str() == word)?;
    Some((file.to_owned(), (request, Timestamp(at.parse().ok()?))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Timestamp = Timestamp(1_700_000_000_000);

    #[test]
    fn the_last_line_of_a_file_counts_and_half_a_line_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let disk = Disk::default();
        let mut requests = RequestLog::default();
        for (file, request) in [
            ("a", RequestState::Started),
            ("b", RequestState::Started),
            ("a", RequestState::Settled),
            ("c d", RequestState::TimedOut),
        ] {
            requests.note(&disk, dir.path(), file, request, AT).unwrap();
        }
        let mut bytes = std::fs::read(dir.path().join(REQUESTS)).unwrap();
        bytes.extend(b"begun 17000000");
        std::fs::write(dir.path().join(REQUESTS), bytes).unwrap();
        let last = read_log(&disk, dir.path());
        assert_eq!(last.len(), 3);
        assert_eq!(last["a"], (RequestState::Settled, AT));
        assert_eq!((last["b"].0, last["c d"].0), (RequestState::Started, RequestState::TimedOut));
        assert!(read_log(&disk, &dir.path().join("gone")).is_empty());
    }

    #[test]
    fn it_does_not_grow_for_ever_and_forgets_only_what_has_left() {
        let dir = tempfile::tempdir().unwrap();
        let disk = Disk::default();
        let mut requests = RequestLog::default();
        requests.note(&disk, dir.path(), "stays", RequestState::TimedOut, AT).unwrap();
        for number in 0..20_000 {
            let file = format!("spool_20250118T120530Z_{number:012}.json");
            requests.note(&disk, dir.path(), &file, RequestState::Started, AT).unwrap();
            requests.forget(&file);
        }
        assert!(std::fs::metadata(dir.path().join(REQUESTS)).unwrap().len() <= LOG_BYTES_MAX + 100);
        assert_eq!(read_log(&disk, dir.path())["stays"], (RequestState::TimedOut, AT));
    }
}
