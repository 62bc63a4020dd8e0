//! When to reload settings: on SIGHUP, and when a watched file changes.
//!
//! Files are compared by their content, once per second. That needs no notification service of the system, and works on
//! network file systems and with the symbolic links of Kubernetes. A change counts only after a second without further
//! changes: a certificate and its key are two files, and reading one new and one old file would be an error.

use std::collections::BTreeSet;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::IsTerminal;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Why to reload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// SIGHUP.
    Signal,
    /// The content of these files has changed.
    Files(Vec<PathBuf>),
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Settings must be reloaded.
    Reload(Trigger),
    /// The terminal that the process was started from is gone, which also sends SIGHUP. Nobody is left to stop the
    /// process, so it should stop by itself.
    TerminalClosed,
}

/// Waits for signals and for changes of files.
#[derive(Debug)]
pub struct Triggers {
    hangups: Signal,
    has_terminal: bool,
    files: Vec<(PathBuf, Stamp)>,
    /// Files that changed less than a second ago.
    unsettled: BTreeSet<PathBuf>,
}

impl Triggers {
    /// Starts to listen for SIGHUP, which from now on does not end the process.
    pub fn new() -> Result<Self, Failure> {
        let hangups = signal(SignalKind::hangup())
            .map_err(|error| Failure::internal(format!("cannot listen for SIGHUP: {error}")))?;
        let has_terminal = std::io::stderr().is_terminal();
        Ok(Self { hangups, has_terminal, files: Vec::new(), unsettled: BTreeSet::new() })
    }

    /// Watches these files instead of the previous ones. A file that was watched already is compared with what it
    /// contained when [`Triggers::next`] returned.
    pub fn watch(&mut self, files: impl IntoIterator<Item = PathBuf>) {
        let known = std::mem::take(&mut self.files);
        self.files = files
            .into_iter()
            .map(|file| {
                let stamp = known.iter().find(|(known, _)| *known == file).map(|(_, stamp)| *stamp);
                let stamp = stamp.unwrap_or_else(|| Stamp::of(&file, Stamp::default()));
                (file, stamp)
            })
            .collect();
    }

    /// Waits for the next event.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no event.
    pub async fn next(&mut self) -> Event {
        loop {
            tokio::select! {
                received = self.hangups.recv() => {
                    if received.is_none() {
                        return std::future::pending().await;
                    }
                    if self.has_terminal && !std::io::stderr().is_terminal() {
                        return Event::TerminalClosed;
                    }
                    // The reload reads what the files contain now.
                    self.poll();
                    self.unsettled.clear();
                    return Event::Reload(Trigger::Signal);
                }
                () = tokio::time::sleep(POLL_INTERVAL) => {
                    let changed = self.poll();
                    if changed.is_empty() && !self.unsettled.is_empty() {
                        let files = std::mem::take(&mut self.unsettled).into_iter().collect();
                        return Event::Reload(Trigger::Files(files));
                    }
                    self.unsettled.extend(changed);
                }
            }
        }
    }

    /// The files whose content has changed since the last call.
    fn poll(&mut self) -> Vec<PathBuf> {
        let mut changed = Vec::new();
        for (file, stamp) in &mut self.files {
            let now = Stamp::of(file, *stamp);
            if now.content != stamp.content {
                changed.push(file.clone());
            }
            *stamp = now;
        }
        changed
    }
}

/// What a file looked like. A file that cannot be read has no content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stamp {
    /// Inode, size and time of the last change. While they are the same, the file is not read.
    metadata: Option<(u64, u64, i64, i64)>,
    content: Option<u64>,
}

impl Stamp {
    fn of(file: &Path, last: Self) -> Self {
        let metadata = fs::metadata(file)
            .ok()
            .map(|found| (found.ino(), found.size(), found.mtime(), found.mtime_nsec()));
        if metadata.is_some() && metadata == last.metadata {
            return last;
        }
        let content = fs::read(file).ok().map(|bytes| {
            let mut hasher = DefaultHasher::new();
            bytes.hash(&mut hasher);
            hasher.finish()
        });
        Self { metadata, content }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(file: &Path, text: &str) {
        fs::write(file, text).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn files_that_change_together_are_one_event() {
        let dir = tempfile::tempdir().unwrap();
        let [cert, key, other] = ["cert.pem", "key.pem", "other"].map(|name| dir.path().join(name));
        write(&cert, "1");
        write(&key, "1");
        write(&other, "1");
        let mut triggers = Triggers::new().unwrap();
        triggers.watch([cert.clone(), key.clone(), other]);
        write(&cert, "22");
        let early = tokio::time::timeout(POLL_INTERVAL * 3 / 2, triggers.next()).await;
        assert!(early.is_err(), "the key may follow: {early:?}");
        write(&key, "22");
        assert_eq!(triggers.next().await, Event::Reload(Trigger::Files(vec![cert, key])));
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_content_of_a_file_counts() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ichido.toml");
        write(&file, "a");
        let mut triggers = Triggers::new().unwrap();
        triggers.watch([file.clone()]);
        write(&dir.path().join("copy"), "a");
        fs::rename(dir.path().join("copy"), &file).unwrap();
        let none = tokio::time::timeout(POLL_INTERVAL * 5, triggers.next()).await;
        assert!(none.is_err(), "replaced by the same content: {none:?}");
        fs::remove_file(&file).unwrap();
        assert_eq!(triggers.next().await, Event::Reload(Trigger::Files(vec![file])));
    }
}
