//! Notices on disk: one file each, complete or absent.
//!
//! A file is written and synced in the process's directory, and then renamed into the outbox. Its name is derived
//! from its time and content, so identical notices are one file. Taking, putting back, and noting that a channel has the
//! notice are renames. Neither they nor a removal are synced: if a sent notice comes back after a power failure, it is
//! sent twice, which is better than not at all.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ichido_core::{Timestamp, to_hex};
use sha2::{Digest as _, Sha256};

use super::event::Notice;
use super::file_name::FileName;
use crate::disk::{self, Disk, already_exists, ignore_missing};
use crate::process_dir::{self, ProcessDir};

/// Prefix of the marks of outages.
pub(super) const OUTAGE_PREFIX: &str = "outage_";
const UNREADABLE: &str = ".unreadable";
/// Larger files are not ours.
pub(crate) const NOTICE_BYTES_MAX: u64 = 256 * 1024;
/// The most notices in one message.
const TAKEN_MAX: usize = 100_000;

#[derive(Debug)]
pub(super) struct Outbox {
    disk: Disk,
    dir: PathBuf,
    inflight: PathBuf,
    outages: PathBuf,
    process_dir: ProcessDir,
}

/// The content of a file.
pub(super) enum Found {
    Notice { file: FileName, id: String, notice: Box<Notice> },
    Unreadable(String),
}

impl Outbox {
    pub(super) fn open(disk: Disk, dir: &Path, now: Timestamp) -> io::Result<Self> {
        let (inflight, outages) = (dir.join(".inflight"), dir.join(".outages"));
        for dir in [dir, &inflight, &outages] {
            disk::create_private_dir(dir).map_err(|error| named(dir, &error))?;
        }
        let process_dir =
            ProcessDir::create(&disk, &inflight, now).map_err(|error| named(&inflight, &error))?;
        let outbox = Self { disk, dir: dir.to_owned(), inflight, outages, process_dir };
        outbox.recover()?;
        Ok(outbox)
    }

    pub(super) fn disk(&self) -> &Disk {
        &self.disk
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn outages(&self) -> &Path {
        &self.outages
    }

    pub(super) fn process_dir(&self) -> &Path {
        self.process_dir.path()
    }

    /// Writes a notice, and returns its id. Writing it again changes nothing.
    pub(super) fn put(&self, notice: &Notice) -> io::Result<String> {
        let bytes = serde_json::to_vec(notice)?;
        let id = id(&bytes);
        let name = FileName::new(&notice.at, &id).to_string();
        let temp = self.disk.write_temp(self.process_dir(), &name, &bytes)?;
        match self.disk.rename_new(&temp, &self.dir.join(&name)) {
            Ok(()) => {}
            Err(error) if already_exists(&error) => fs::remove_file(&temp)?,
            Err(error) => {
                let _ = fs::remove_file(&temp);
                return Err(error);
            }
        }
        self.disk.sync_dir(&self.dir)?;
        Ok(id)
    }

    /// Takes waiting notices, oldest first, and passes each to `see`. This process has their files now.
    pub(super) fn take(&self, mut see: impl FnMut(Found)) -> io::Result<()> {
        self.recover()?;
        // An earlier drain of this process that was cancelled has left its files here.
        let mut taken = notices_in(self.process_dir())?;
        let mut waiting = notices_in(&self.dir)?;
        // New ones first: while one channel is down, what only that channel lacks must not keep them from the others.
        waiting.sort_unstable_by(|one, other| (one.sent.len(), one).cmp(&(other.sent.len(), other)));
        for file in waiting {
            if taken.len() >= TAKEN_MAX {
                break;
            }
            let name = file.to_string();
            match self.disk.rename(&self.dir.join(&name), &self.process_dir().join(&name)) {
                Ok(()) => taken.push(file),
                // Another process has taken it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        taken.sort_unstable();
        taken.dedup();
        for file in taken {
            let name = file.to_string();
            match read_with_id(&self.process_dir().join(&name)) {
                Ok((id, notice)) => see(Found::Notice { file, id, notice: Box::new(notice) }),
                // Another drain of this process, which was cancelled while it took files, has finished.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    let aside = self.dir.join(format!("{name}{UNREADABLE}"));
                    tracing::error!(file = %aside.display(), %error, "cannot read a notice; it is set aside");
                    fs::rename(self.process_dir().join(&name), aside)?;
                    see(Found::Unreadable(name));
                }
            }
        }
        Ok(())
    }

    /// Notes which channels have a notice that was taken: gives its file another name.
    pub(super) fn rename_taken(&self, before: &FileName, after: &FileName) -> io::Result<()> {
        let dir = self.process_dir();
        self.disk.rename(&dir.join(before.to_string()), &dir.join(after.to_string()))
    }

    /// Removes a file that was taken.
    pub(super) fn remove(&self, taken: &FileName) -> io::Result<()> {
        self.disk.remove(&self.process_dir().join(taken.to_string())).or_else(ignore_missing)
    }

    /// Puts a file back that was taken.
    pub(super) fn put_back(&self, taken: &FileName) -> io::Result<()> {
        let name = taken.to_string();
        self.rename_back(&self.process_dir().join(&name), &name)
    }

    pub(super) fn waiting(&self) -> io::Result<u64> {
        Ok(files(&self.dir)?.len() as u64)
    }

    /// Puts back what crashed processes had taken.
    fn recover(&self) -> io::Result<()> {
        for abandoned in process_dir::abandoned(&self.inflight, self.process_dir())? {
            for name in abandoned.files()? {
                self.rename_back(&abandoned.path().join(&name), &name)?;
            }
            abandoned.remove()?;
        }
        Ok(())
    }

    fn rename_back(&self, path: &Path, name: &str) -> io::Result<()> {
        let target = if name.starts_with(OUTAGE_PREFIX) { &self.outages } else { &self.dir };
        match self.disk.rename_new(path, &target.join(name)) {
            Err(error) if already_exists(&error) => fs::remove_file(path).or_else(ignore_missing),
            Err(error) => ignore_missing(error),
            Ok(()) => Ok(()),
        }
    }
}

/// The number of waiting notices, and the oldest ones, for reading only. Nothing is created.
pub fn waiting(dir: &Path, most: usize) -> io::Result<(u64, Vec<Notice>)> {
    let mut files = files(dir)?;
    files.sort_unstable_by(|one, other| one.file_name().cmp(&other.file_name()));
    // A notice that was sent meanwhile is not shown.
    let first = files.iter().filter_map(|path| Some(read_with_id(path).ok()?.1)).take(most).collect();
    Ok((files.len() as u64, first))
}

/// Every waiting notice, including those that a process has taken.
pub(crate) fn files(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let inflight = dir.join(".inflight");
    let process_dirs = disk::file_names(&inflight)?.into_iter().map(|name| inflight.join(name));
    let mut files = Vec::new();
    for place in std::iter::once(dir.to_owned()).chain(process_dirs) {
        files.extend(notices_in(&place)?.into_iter().map(|file| place.join(file.to_string())));
    }
    Ok(files)
}

fn notices_in(dir: &Path) -> io::Result<Vec<FileName>> {
    Ok(disk::file_names(dir)?.iter().filter_map(|name| FileName::parse(name)).collect())
}

fn read_with_id(path: &Path) -> io::Result<(String, Notice)> {
    let bytes = disk::read_regular(path, NOTICE_BYTES_MAX)?;
    Ok((id(&bytes), serde_json::from_slice(&bytes)?))
}

/// The id of a notice: a digest of its bytes.
pub(super) fn id(bytes: &[u8]) -> String {
    to_hex(&Sha256::digest(bytes))[..16].to_owned()
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot use {}: {error}", path.display()))
}
