//! The directory, and who holds it.
//!
//! ```text
//! DIR/            0700
//!   lock          locked while a process has the store open
//!   holder        who that is: pid, and the address of its admin port
//!   format        "ichido ledger, format 1"
//!   high-water    the last acknowledged commit (see `highwater`)
//!   store/        the engine's files
//!   making        there while `store` is being made; what is in it then is of no value
//! ```
//!
//! The lock belongs to the kernel: it ends with its process, however that ends. Nothing is written before the
//! directory is known to be ours or empty.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::fault;
use super::meta::{FORMAT, FORMAT_ONE, FORMAT_TWO};
use crate::{Error, Kind, Result};

const OURS: [&str; 6] = ["lock", "holder", "format", "high-water", "store", "making"];
const FORMAT_WORDS: &str = "ichido ledger, format ";
/// How long an opener waits for an earlier opening of its own process that is just being dropped.
const OWN_WAIT: (u32, Duration) = (50, Duration::from_millis(20));

/// Who has a store open, as it signed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldBy {
    /// The process; none if it has not signed yet.
    pub pid: Option<u32>,
    /// The address of its admin port, if it has one.
    pub admin: Option<String>,
}

impl HeldBy {
    /// Reads who signed for the store in `dir`. Believe it only of a store that was found held: what a killed process
    /// signed stays until the next opening.
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
    /// Locked for as long as it is open.
    _lock: File,
}

impl Held {
    /// Takes the directory, making it if need be.
    pub(super) fn take(dir: &Path, admin: Option<&str>) -> Result<Self> {
        let dir = std::path::absolute(dir).map_err(|error| refused(dir, "finding", error))?;
        make_or_check(&dir)?;
        let lock = lock(&dir)?;
        let held = Self { dir, _lock: lock };
        held.format()?;
        held.sign(admin).map_err(|error| refused(&held.dir, "signing", error))?;
        Ok(held)
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The format of the store, which is one that this version reads; `None` if there is none yet.
    pub(super) fn format(&self) -> Result<Option<u32>> {
        let text = match fs::read_to_string(self.path("format")) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound && !self.path("store").exists() => {
                return Ok(None);
            }
            Err(error) => {
                let text = format!(
                    "{} cannot be read ({error}); restore it, or the whole directory, from a backup",
                    self.path("format").display()
                );
                return Err(Error::new(Kind::Corrupt(text), "opening the ledger"));
            }
        };
        let format = text.trim_end().strip_prefix(FORMAT_WORDS).and_then(|number| number.parse::<u32>().ok());
        match format {
            Some(known @ (FORMAT | FORMAT_TWO | FORMAT_ONE)) => Ok(Some(known)),
            Some(other) => Err(other_format(&self.dir, other)),
            None => {
                let text = format!(
                    "{} does not say what it should; restore the directory from a backup",
                    self.path("format").display()
                );
                Err(Error::new(Kind::Corrupt(text), "opening the ledger"))
            }
        }
    }

    /// Writes the format file. Once `store` exists, so does this.
    pub(super) fn write_format(&self) -> io::Result<()> {
        self.replace("format", &format!("{FORMAT_WORDS}{FORMAT}\n"))
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

    /// Lets go. The lock ends with its file.
    pub(super) fn release(self) {
        if let Err(error) = fs::remove_file(self.path("holder")) {
            tracing::debug!(%error, "the holder file could not be removed");
        }
    }
}

/// Makes the names in a directory durable.
pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// The error for a store of another format.
pub(super) fn other_format(dir: &Path, format: u32) -> Error {
    let text = format!(
        "{} was written in format {format}, and this version of ichido reads formats {FORMAT_ONE} to {FORMAT}; open it with the \
         version that wrote it",
        dir.display()
    );
    Error::new(Kind::Schema(text), "opening the ledger")
}

fn make_or_check(dir: &Path) -> Result<()> {
    match fs::metadata(dir) {
        Ok(found) if !found.is_dir() => {
            let text =
                format!("{} is not a directory; file: takes the directory of the ledger", dir.display());
            Err(Error::new(Kind::Settings(text), "opening the ledger"))
        }
        Ok(_) => check_content(dir),
        Err(error) if error.kind() == io::ErrorKind::NotFound => DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(|error| refused(dir, "making", error)),
        Err(error) => Err(refused(dir, "reading", error)),
    }
}

fn check_content(dir: &Path) -> Result<()> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(|error| refused(dir, "reading", error))? {
        let name = entry.map_err(|error| refused(dir, "reading", error))?.file_name();
        names.push(name.to_string_lossy().into_owned());
    }
    let is = |ours: &str| names.iter().any(|name| name == ours);
    if is("store") || is("format") || is("high-water") {
        return Ok(());
    }
    if let Some(foreign) = names.iter().find(|name| !OURS.contains(&name.trim_end_matches(".tmp"))) {
        let text = format!(
            "{} holds {foreign:?} and no ledger; name an empty directory, or one that does not exist",
            dir.display()
        );
        return Err(Error::new(Kind::Schema(text), "opening the ledger"));
    }
    // A new ledger is nobody else's business. Where this is not allowed, the operator chose the rights.
    if let Err(error) = fs::set_permissions(dir, fs::Permissions::from_mode(0o700)) {
        tracing::debug!(%error, "the rights of the ledger's directory were left as they are");
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

/// Whether the holder is this process, or has just signed off.
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

/// One clear word on why a directory cannot be used.
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
    let kind = if fault::DENIED.contains(&error.kind()) { Kind::Denied(text) } else { Kind::Settings(text) };
    Error::new(kind, "opening the ledger").caused_by(error)
}
