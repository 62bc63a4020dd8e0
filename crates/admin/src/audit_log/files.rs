//! The files of a log: appends under a lock, and starts new files.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ichido_core::{Clock, Timestamp};
use ichido_delivery::disk::{Disk, create_private_dir, file_names, open_lock, read_regular};
use serde::{Deserialize, Serialize};

use super::entry::{Action, Actor, Entry, Outcome, Step};
use super::scan::{Found, Place, Scanner, torn};
use super::verify::Snapshot;
use super::{Error, Rotation};

const ACTIVE: &str = "audit.jsonl";
const HEAD: &str = "head";
const LOCK: &str = "lock";
/// How long to wait for the lock, in steps.
const LOCK_STEP: Duration = Duration::from_millis(10);
const LOCK_STEPS: u32 = 3_000;
/// The most bytes behind the head. An append leaves at most one line there.
const PENDING_BYTES_MAX: u64 = 1 << 20;
const HEAD_BYTES_MAX: u64 = 4096;

/// The directory of a log.
#[derive(Debug)]
pub(super) struct Files {
    dir: PathBuf,
    rotation: Rotation,
    clock: Arc<dyn Clock>,
}

/// What an entry says in addition to its actor and action.
pub(super) struct Draft {
    pub(super) step: Step,
    pub(super) intent: Option<u64>,
    pub(super) outcome: Outcome,
}

/// Where an entry was written.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) seq: u64,
    pub(super) hash: String,
}

/// The end of the log.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Head {
    /// The number of the last entry.
    pub(super) seq: u64,
    /// Its hash.
    pub(super) hash: String,
    /// Where its line ends in its file.
    end: u64,
    /// When the first entry of the file was written.
    started: Timestamp,
}

impl Files {
    pub(super) fn new(dir: PathBuf, rotation: Rotation, clock: Arc<dyn Clock>) -> Self {
        Self { dir, rotation, clock }
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Appends an entry. It is synced, and so is the head, when this returns.
    pub(super) fn append(&self, actor: &Actor, action: &Action, draft: Draft) -> Result<Written, Error> {
        let _lock = self.lock()?;
        let (mut head, pending) = self.end()?;
        if !pending.is_empty() {
            // The bytes stay where they are: an audit log is never shortened.
            let bytes = [&pending[..], b"\n"].concat();
            let entry = Entry { torn: Some(torn(&bytes)), ..self.recovery(&head) };
            head = self.write(&head, &entry, b"\n", pending.len() as u64)?;
        }
        let entry = Entry {
            seq: head.seq + 1,
            time: self.now(),
            step: draft.step,
            intent: draft.intent,
            actor: actor.clone(),
            action: action.clone(),
            outcome: draft.outcome,
            torn: None,
            prev: head.hash.clone(),
        };
        head = self.write(&self.rotated(head)?, &entry, b"", 0)?;
        Ok(Written { seq: head.seq, hash: head.hash })
    }

    /// Checks that an existing log can be continued. Creates nothing: another user may own the log later.
    pub(super) fn check(&self) -> Result<(), Error> {
        let _lock = self.lock_to_read()?;
        self.end()?;
        match OpenOptions::new().append(true).open(self.dir.join(ACTIVE)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(self.io(error)),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Opens the files as they are between two appends.
    pub(super) fn snapshot(&self) -> Result<Option<Snapshot>, Error> {
        let _lock = self.lock_to_read()?;
        let mut names = file_names(&self.dir).map_err(|error| self.io(error))?;
        names.retain(|name| name == ACTIVE || is_rotated(name));
        // The active file is the last one. The numbers of the others have the same length.
        names.sort_by_key(|name| (name == ACTIVE, name.clone()));
        let head = self.read_head()?.map(|head| Place { seq: head.seq, hash: head.hash });
        if names.is_empty() && head.is_none() {
            return Ok(None);
        }
        let mut files = Vec::new();
        for name in names {
            let open = || -> io::Result<(File, u64)> {
                let file = File::open(self.dir.join(&name))?;
                let length = file.metadata()?.len();
                Ok((file, length))
            };
            let (file, length) = open().map_err(|error| self.io(error))?;
            files.push((name, file, length));
        }
        Ok(Some(Snapshot::new(self.dir.clone(), files, head)))
    }

    /// The end of the log, and bytes behind it that are no entry.
    fn end(&self) -> Result<(Head, Vec<u8>), Error> {
        let now = self.clock.now();
        let mut head = match self.read_head()? {
            None => Head { seq: 0, hash: Place::start().hash, end: 0, started: now },
            Some(head) => {
                let rotated = self.dir.join(rotated_name(head.seq));
                let is_rotated = rotated.exists();
                let file = if is_rotated { rotated } else { self.dir.join(ACTIVE) };
                self.check_tail(&file, &head)?;
                if is_rotated { Head { end: 0, started: now, ..head } } else { head }
            }
        };
        let pending = self.read_pending(head.end).map_err(|error| self.io(error))?;
        let mut scanner = Scanner::new(&pending[..]);
        let last = Place { seq: head.seq, hash: head.hash.clone() };
        let adopted = match scanner.next(&last).map_err(|error| self.io(error))? {
            None => return Ok((head, Vec::new())),
            Some(Found::Rest(_)) => return Ok((head, pending)),
            Some(Found::Break { .. }) => return Err(self.damaged("its head does not fit its entries")),
            Some(Found::Entry(place)) => place,
        };
        let length = scanner.bytes();
        let behind = pending[usize::try_from(length).unwrap_or_default()..].to_vec();
        // A crash leaves one entry behind the head, never two.
        match Scanner::new(&behind[..]).next(&adopted).map_err(|error| self.io(error))? {
            None | Some(Found::Rest(_)) => {}
            Some(Found::Entry(_) | Found::Break { .. }) => {
                return Err(self.damaged("its head is missing or older than its entries"));
            }
        }
        head = Head { seq: adopted.seq, hash: adopted.hash, end: head.end + length, started: head.started };
        Ok((head, behind))
    }

    /// Whether the last entry still ends where the head says.
    fn check_tail(&self, file: &Path, head: &Head) -> Result<(), Error> {
        let expected = Entry::line_end(&head.hash);
        let mut found = vec![0; expected.len()];
        let read = || -> io::Result<()> {
            let mut file = File::open(file)?;
            let start = head.end.checked_sub(found.len() as u64).ok_or(ErrorKind::InvalidData)?;
            file.seek(SeekFrom::Start(start))?;
            file.read_exact(&mut found)
        };
        match { read }() {
            Ok(()) if found == expected.as_bytes() => Ok(()),
            Ok(()) => Err(self.damaged("its last entry was changed")),
            Err(error) if is_short(error.kind()) => Err(self.damaged("its last entry is missing")),
            Err(error) => Err(self.io(error)),
        }
    }

    fn read_pending(&self, from: u64) -> io::Result<Vec<u8>> {
        let mut file = match File::open(self.dir.join(ACTIVE)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        file.seek(SeekFrom::Start(from))?;
        let mut pending = Vec::new();
        file.take(PENDING_BYTES_MAX).read_to_end(&mut pending)?;
        Ok(pending)
    }

    fn recovery(&self, head: &Head) -> Entry {
        Entry {
            seq: head.seq + 1,
            time: self.now(),
            step: Step::Event,
            intent: None,
            actor: Actor::process(),
            action: Action::named("record an incomplete line"),
            outcome: Outcome::default(),
            torn: None,
            prev: head.hash.clone(),
        }
    }

    /// Writes a line, `skipped` bytes behind the head, and moves the head.
    fn write(&self, head: &Head, entry: &Entry, before: &[u8], skipped: u64) -> Result<Head, Error> {
        let (line, hash) = entry.encode().map_err(|error| self.io(error.into()))?;
        let bytes = [before, line.as_bytes()].concat();
        let append = || -> io::Result<()> {
            let mut file = self.open_active()?;
            let written = file.write_all(&bytes).and_then(|()| file.sync_data());
            // Nothing was reported yet. Without this, a full disk would leave a part of a line.
            written.inspect_err(|_| drop(file.set_len(head.end + skipped)))
        };
        append().map_err(|error| self.io(error))?;
        let started = if head.end == 0 { self.clock.now() } else { head.started };
        let head = Head { seq: entry.seq, hash, end: head.end + skipped + bytes.len() as u64, started };
        self.write_head(&head).map_err(|error| self.io(error))?;
        Ok(head)
    }

    fn open_active(&self) -> io::Result<File> {
        OpenOptions::new().append(true).create(true).mode(0o600).open(self.dir.join(ACTIVE))
    }

    /// Starts a new file if the active one is large or old. Its first line continues the chain.
    fn rotated(&self, head: Head) -> Result<Head, Error> {
        let age_ms = u128::from(self.clock.now().ms_since(head.started));
        let is_old = self.rotation.max_age.is_some_and(|max| age_ms >= max.as_millis());
        if head.end == 0 || !(is_old || head.end >= self.rotation.max_bytes) {
            return Ok(head);
        }
        // A crash after this finds the file of the head under its new name.
        std::fs::rename(self.dir.join(ACTIVE), self.dir.join(rotated_name(head.seq)))
            .and_then(|()| File::open(&self.dir)?.sync_all())
            .map_err(|error| self.io(error))?;
        Ok(Head { end: 0, ..head })
    }

    fn read_head(&self) -> Result<Option<Head>, Error> {
        match read_regular(&self.dir.join(HEAD), HEAD_BYTES_MAX) {
            Ok(bytes) => match serde_json::from_slice(&bytes) {
                Ok(head) => Ok(Some(head)),
                Err(_) => Err(self.damaged("its head cannot be read")),
            },
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.io(error)),
        }
    }

    fn write_head(&self, head: &Head) -> io::Result<()> {
        Disk::default().replace(&self.dir, HEAD, &serde_json::to_vec(head)?)
    }

    /// Locks the directory, and creates it if it does not exist.
    fn lock(&self) -> Result<File, Error> {
        let open = || -> io::Result<File> {
            create_private_dir(&self.dir)?;
            open_lock(&self.dir.join(LOCK))
        };
        self.wait_for(open().map_err(|error| self.io(error))?)
    }

    /// Keeps others from appending. A copy without a lock file has no appender.
    fn lock_to_read(&self) -> Result<Option<File>, Error> {
        File::open(self.dir.join(LOCK)).ok().map(|file| self.wait_for(file)).transpose()
    }

    fn wait_for(&self, lock: File) -> Result<File, Error> {
        for _ in 0..LOCK_STEPS {
            match lock.try_lock() {
                Ok(()) => return Ok(lock),
                Err(std::fs::TryLockError::WouldBlock) => std::thread::sleep(LOCK_STEP),
                Err(std::fs::TryLockError::Error(error)) => return Err(self.io(error)),
            }
        }
        Err(Error::Locked {
            dir: self.dir.display().to_string(),
            seconds: (LOCK_STEP * LOCK_STEPS).as_secs(),
        })
    }

    fn now(&self) -> String {
        let ms = i64::try_from(self.clock.now().0).unwrap_or(i64::MAX);
        let now = jiff::Timestamp::from_millisecond(ms).unwrap_or(jiff::Timestamp::MAX);
        now.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
    }

    fn io(&self, source: io::Error) -> Error {
        Error::Io { dir: self.dir.display().to_string(), source }
    }

    fn damaged(&self, what: &str) -> Error {
        Error::Damaged { dir: self.dir.display().to_string(), what: what.to_owned() }
    }
}

fn rotated_name(last: u64) -> String {
    format!("audit-{last:012}.jsonl")
}

fn is_rotated(name: &str) -> bool {
    let number = name.strip_prefix("audit-").and_then(|rest| rest.strip_suffix(".jsonl"));
    number.is_some_and(|number| number.len() == 12 && number.bytes().all(|digit| digit.is_ascii_digit()))
}

fn is_short(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::UnexpectedEof | ErrorKind::InvalidData)
}
