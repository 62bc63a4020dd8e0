//! The directory, and which process holds it.
//!
//! ```text
//! DIR/            0700
//!   lock          locked while a process has the store open
//!   holder        which process that is: its pid, and the address of its admin port
//!   the files of the store (see `log::format`)
//! ```
//!
//! The lock belongs to the kernel: it ends with its process, however that ends. Nothing is written before the directory is
//! known to be a ledger, or empty.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::log::{DENIED, is_store_file};
use crate::{Error, Kind, Result};

/// Files of a directory that holds no store yet.
const OURS: [&str; 3] = ["lock", "holder", "format"];
/// Files that only say which process holds a directory.
const OWN: [&str; 2] = ["lock", "holder"];
/// How long to wait for an earlier opening by the same process, which is just being closed.
const OWN_WAIT: (u32, Duration) = (50, Duration::from_millis(20));

/// Which process has a store open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldBy {
    /// The process, if it is known.
    pub pid: Option<u32>,
    /// The address of its admin port, if it has one.
    pub admin: Option<String>,
}

impl HeldBy {
    /// Reads which process has the store in `dir` open. Only meaningful for a store that was found in use: the note of a
    /// killed process stays until the next opening.
    pub fn of(dir: &Path) -> Self {
        Self::read(&fs::read_to_string(dir.join("holder")).unwrap_or_default())
    }

    fn read(holder: &str) -> Self {
        let line = |name: &str| holder.lines().find_map(|line| line.strip_prefix(name));
        Self { pid: line("pid ").and_then(|pid| pid.parse().ok()), admin: line("admin ").map(str::to_owned) }
    }
}

/// A directory that this process holds.
#[derive(Debug)]
pub(super) struct Held {
    dir: PathBuf,
    /// Locked for as long as it is open. `None` in a directory without a lock that cannot be written.
    _lock: Option<File>,
}

impl Held {
    /// Takes the directory, and creates it if there is none.
    pub(super) fn take(dir: &Path, admin: Option<&str>) -> Result<Self> {
        let dir = std::path::absolute(dir).map_err(|error| refused(dir, "finding", error))?;
        make_or_check(&dir)?;
        let lock = lock(&dir)?;
        let held = Self { dir, _lock: Some(lock) };
        held.sign(admin).map_err(|error| refused(&held.dir, "writing to", error))?;
        Ok(held)
    }

    /// Takes the directory of a ledger that must exist, to read it. A backup may be on a medium that cannot be written: then
    /// nothing is, and a lock is taken only if there is one.
    pub(super) fn take_to_read(dir: &Path) -> Result<Self> {
        if !names(dir)?.iter().any(|name| is_store_file(name)) {
            let text = format!("{} contains no ledger", dir.display());
            return Err(Error::new(Kind::Settings(text), "opening the ledger"));
        }
        match Self::take(dir, None) {
            Err(error) if matches!(error.kind(), Kind::Denied(_)) => {
                let lock = match File::open(dir.join("lock")) {
                    Ok(file) => Some(take_lock(dir, file)?),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                    Err(error) => return Err(refused(dir, "locking", error)),
                };
                let dir = std::path::absolute(dir).map_err(|error| refused(dir, "finding", error))?;
                Ok(Self { dir, _lock: lock })
            }
            taken => taken,
        }
    }

    /// Takes a directory that contains nothing yet, and creates it if there is none.
    pub(super) fn take_empty(dir: &Path) -> Result<Self> {
        let is_taken = |names: Vec<String>| names.iter().any(|name| !is_own_file(name));
        let occupied = || {
            let text = format!(
                "{} is not empty; move it away, so that what it contains is kept, and try again",
                dir.display()
            );
            Err(Error::new(Kind::Settings(text), "restoring the backup"))
        };
        if dir.is_dir() && is_taken(names(dir)?) {
            // A ledger in use is reported as such.
            if let Ok(lock) = File::open(dir.join("lock")) {
                take_lock(dir, lock)?;
            }
            return occupied();
        }
        let held = Self::take(dir, None)?;
        // Another process may have been here since.
        if is_taken(names(dir)?) {
            held.release();
            return occupied();
        }
        Ok(held)
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn sign(&self, admin: Option<&str>) -> io::Result<()> {
        let admin = admin.map_or_else(String::new, |admin| format!("admin {admin}\n"));
        self.replace("holder", &format!("pid {}\n{admin}", std::process::id()))
    }

    fn replace(&self, name: &str, text: &str) -> io::Result<()> {
        let temporary = self.path(&format!("{name}.tmp"));
        let mut file =
            OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, self.path(name))?;
        sync_dir(&self.dir)
    }

    /// Releases the directory. The lock ends with its file.
    pub(super) fn release(self) {
        if let Err(error) = fs::remove_file(self.path("holder")) {
            tracing::debug!(%error, "cannot remove the holder file");
        }
    }
}

/// Makes the names in a directory durable.
fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

fn make_or_check(dir: &Path) -> Result<()> {
    match fs::metadata(dir) {
        Ok(found) if !found.is_dir() => {
            let text =
                format!("{} is not a directory; file: needs the directory of the ledger", dir.display());
            Err(Error::new(Kind::Settings(text), "opening the ledger"))
        }
        Ok(_) => check_content(dir),
        Err(error) if error.kind() == io::ErrorKind::NotFound => DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(|error| refused(dir, "creating", error)),
        Err(error) => Err(refused(dir, "reading", error)),
    }
}

/// Whether a file only says which process holds the directory.
pub(super) fn is_own_file(name: &str) -> bool {
    OWN.contains(&name.trim_end_matches(".tmp"))
}

fn names(dir: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(dir).map_err(|error| refused(dir, "reading", error))?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    names.collect::<io::Result<_>>().map_err(|error| refused(dir, "reading", error))
}

fn check_content(dir: &Path) -> Result<()> {
    let names = names(dir)?;
    if names.iter().any(|name| is_store_file(name)) {
        return Ok(());
    }
    if let Some(foreign) = names.iter().find(|name| !OURS.contains(&name.trim_end_matches(".tmp"))) {
        let text = format!(
            "{} contains {foreign:?} and no ledger; use an empty directory, or one that does not exist",
            dir.display()
        );
        return Err(Error::new(Kind::Schema(text), "opening the ledger"));
    }
    // Claims contain personal data. If this is not allowed, the operator has chosen the permissions.
    if let Err(error) = fs::set_permissions(dir, fs::Permissions::from_mode(0o700)) {
        tracing::debug!(%error, "cannot change the permissions of the ledger's directory");
    }
    Ok(())
}

fn lock(dir: &Path) -> Result<File> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(dir.join("lock"))
        .map_err(|error| refused(dir, "locking", error))?;
    take_lock(dir, file)
}

fn take_lock(dir: &Path, file: File) -> Result<File> {
    let (tries, pause) = OWN_WAIT;
    for left in (0..tries).rev() {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(refused(dir, "locking", error)),
            Err(TryLockError::WouldBlock) => {}
        }
        let holder = fs::read_to_string(dir.join("holder")).unwrap_or_default();
        if left == 0 || !is_own(&holder) {
            return Err(held(dir, &holder));
        }
        std::thread::sleep(pause);
    }
    Err(held(dir, ""))
}

/// Whether the holder is this process, or has just released the directory.
fn is_own(holder: &str) -> bool {
    holder.is_empty() || holder.lines().next() == Some(&format!("pid {}", std::process::id()))
}

fn held(dir: &Path, holder: &str) -> Error {
    let HeldBy { pid, admin } = HeldBy::read(holder);
    let pid = pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"));
    let admin = admin.map_or_else(String::new, |admin| format!("; its admin port is {admin}"));
    let text = format!("{} is held by {pid}{admin}", dir.display());
    Error::new(Kind::InUse(text), "opening the ledger")
}

/// Why a directory cannot be used.
fn refused(dir: &Path, doing: &str, error: io::Error) -> Error {
    let why = [
        (io::ErrorKind::PermissionDenied, "permission denied"),
        (io::ErrorKind::ReadOnlyFilesystem, "the file system is read-only"),
        (io::ErrorKind::StorageFull, "the disk is full"),
    ]
    .into_iter()
    .find(|(kind, _)| *kind == error.kind())
    .map_or_else(|| error.to_string(), |(_, why)| why.to_owned());
    let text = format!("{doing} {}: {why}", dir.display());
    let kind = if DENIED.contains(&error.kind()) { Kind::Denied(text) } else { Kind::Settings(text) };
    Error::new(kind, "opening the ledger").caused_by(error)
}
