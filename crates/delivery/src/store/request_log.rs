//! A write-ahead log of requests, for the case that the process crashes.
//!
//! A request whose response nobody read may have been processed. While a process works on a batch, it knows this from
//! memory; when it lets go of the batch, the batch's file records it; if the process crashes, this log does.
//!
//! The file `requests` in the process's directory gets a line before each request, and one after it unless the
//! batch is gone by then. Lines are not synced, because the log must survive the process, not the machine: a sync
//! per batch would cost as much as writing the batch. After a power failure lines may be missing. Then nothing
//! shows that a request was sent, a 409 is ambiguous, and an operator decides: nothing is lost, and nothing is
//! counted twice.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;

use ichido_core::Timestamp;

use crate::disk::Disk;
use crate::history::RequestState;
use crate::process_dir::REQUESTS;

/// The file is rewritten when it exceeds this size.
const LOG_BYTES_MAX: u64 = 256 << 10;
/// A larger file is not ours, and is not read.
const READ_BYTES_MAX: u64 = 4 * LOG_BYTES_MAX;

/// The last request of each file that the process has taken.
type LastRequests = BTreeMap<String, (RequestState, Timestamp)>;

/// The request log of this process.
#[derive(Debug, Default)]
pub(crate) struct RequestLog {
    file: Option<File>,
    bytes: u64,
    last: LastRequests,
}

impl RequestLog {
    /// Logs the state of a request.
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
            // Rewriting drops the entries of files that the process no longer has.
            self.file = None;
        }
        let text = match &self.file {
            Some(_) => line(file, request, at),
            None => self.last.iter().map(|(file, (request, at))| line(file, *request, *at)).collect(),
        };
        // After an error the file may end with a torn line, so the next call rewrites it.
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

    /// Drops the entry of a file that the process no longer has.
    pub(crate) fn forget(&mut self, file: &str) {
        self.last.remove(file);
    }
}

/// Reads the log of a crashed process. Torn lines are skipped.
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
    fn last_line_of_a_file_counts_and_torn_lines_are_skipped() {
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
    fn log_stays_bounded_and_keeps_the_entries_of_current_files() {
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
