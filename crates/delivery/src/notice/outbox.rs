//! Notices on disk: a file each, whole or not there.
//!
//! A file is written and synced in the process's own directory, and then named in the outbox; its name is made from
//! its time and content, so the same notice twice is one file. Taking and giving back are renames. Removing is not
//! synced: if a sent notice comes back after a power failure, it is sent twice, and never not at all.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ichido_core::Timestamp;
use sha2::{Digest as _, Sha256};

use super::event::Notice;
use crate::disk::{self, Disk, already_exists, ignore_missing};
use crate::process_dir::{self, ProcessDir};

const PREFIX: &str = "notice_";
/// How names of marks begin.
pub(super) const OUTAGE_PREFIX: &str = "outage_";
const SUFFIX: &str = ".json";
const UNREADABLE: &str = ".unreadable";
/// Larger files are none of ours.
pub(super) const NOTICE_BYTES_MAX: u64 = 256 * 1024;
/// How many notices one message speaks of.
const TAKEN_MAX: usize = 100_000;

#[derive(Debug)]
pub(super) struct Outbox {
    disk: Disk,
    dir: PathBuf,
    inflight: PathBuf,
    outages: PathBuf,
    process_dir: ProcessDir,
}

/// What was found in a file.
pub(super) enum Found {
    /// A notice, and its id.
    Notice(String, Notice),
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
        outbox.adopt()?;
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

    /// Writes a notice, and returns its id. The same one again changes nothing.
    pub(super) fn put(&self, notice: &Notice) -> io::Result<String> {
        let bytes = serde_json::to_vec(notice)?;
        let time: String = notice.at.chars().filter(|char| char.is_ascii_alphanumeric()).collect();
        let id = id(&bytes);
        let name = format!("{PREFIX}{time}_{id}{SUFFIX}");
        let half = self.disk.write_temp(self.process_dir(), &name, &bytes)?;
        match self.disk.rename_new(&half, &self.dir.join(&name)) {
            Ok(()) => {}
            Err(error) if already_exists(&error) => fs::remove_file(&half)?,
            Err(error) => {
                let _ = fs::remove_file(&half);
                return Err(error);
            }
        }
        self.disk.sync_dir(&self.dir)?;
        Ok(id)
    }

    /// Takes what waits, oldest first, and shows each notice. Returns the files that are now in this process's hands.
    pub(super) fn take(&self, mut see: impl FnMut(Found)) -> io::Result<Vec<String>> {
        self.adopt()?;
        // What an earlier drain of this process left when it was cancelled is here already.
        let mut taken: Vec<String> =
            disk::file_names(self.process_dir())?.into_iter().filter(|name| is_notice(name)).collect();
        let mut waiting: Vec<String> =
            disk::file_names(&self.dir)?.into_iter().filter(|name| is_notice(name)).collect();
        waiting.sort_unstable();
        for name in waiting {
            if taken.len() >= TAKEN_MAX {
                break;
            }
            match self.disk.rename(&self.dir.join(&name), &self.process_dir().join(&name)) {
                Ok(()) => taken.push(name),
                // Another process was quicker.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        taken.sort_unstable();
        taken.dedup();
        let mut readable = Vec::with_capacity(taken.len());
        for name in taken {
            match read_with_id(&self.process_dir().join(&name)) {
                Ok((id, notice)) => {
                    see(Found::Notice(id, notice));
                    readable.push(name);
                }
                // Another drain of this process, which was dropped while it took them, has finished.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    let aside = self.dir.join(format!("{name}{UNREADABLE}"));
                    tracing::error!(file = %aside.display(), %error, "a notice cannot be read; it was set aside");
                    fs::rename(self.process_dir().join(&name), aside)?;
                    see(Found::Unreadable(name));
                }
            }
        }
        Ok(readable)
    }

    /// Removes files that were taken.
    pub(super) fn remove(&self, taken: &[String]) -> io::Result<()> {
        taken
            .iter()
            .try_for_each(|name| self.disk.remove(&self.process_dir().join(name)).or_else(ignore_missing))
    }

    /// Gives files back that were taken.
    pub(super) fn give_back(&self, taken: &[String]) -> io::Result<()> {
        taken.iter().try_for_each(|name| self.back(&self.process_dir().join(name), name))
    }

    pub(super) fn waiting(&self) -> io::Result<u64> {
        Ok(files(&self.dir)?.len() as u64)
    }

    /// Gives back what dead processes held.
    fn adopt(&self) -> io::Result<()> {
        for abandoned in process_dir::abandoned(&self.inflight, self.process_dir())? {
            for name in abandoned.files()? {
                self.back(&abandoned.path().join(&name), &name)?;
            }
            abandoned.remove()?;
        }
        Ok(())
    }

    fn back(&self, path: &Path, name: &str) -> io::Result<()> {
        let home = if name.starts_with(OUTAGE_PREFIX) { &self.outages } else { &self.dir };
        match self.disk.rename_new(path, &home.join(name)) {
            Err(error) if already_exists(&error) => fs::remove_file(path).or_else(ignore_missing),
            Err(error) => ignore_missing(error),
            Ok(()) => Ok(()),
        }
    }
}

/// What waits in an outbox, oldest first, for whoever only looks: how many, and the first ones. Nothing is created.
pub fn waiting(dir: &Path, most: usize) -> io::Result<(u64, Vec<Notice>)> {
    let mut files = files(dir)?;
    files.sort_unstable_by(|one, other| one.file_name().cmp(&other.file_name()));
    // Whatever was sent meanwhile is not shown.
    let first = files.iter().filter_map(|path| Some(read_with_id(path).ok()?.1)).take(most).collect();
    Ok((files.len() as u64, first))
}

/// Every notice that waits, also in the hands of a process.
fn files(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let inflight = dir.join(".inflight");
    let hands = disk::file_names(&inflight)?.into_iter().map(|name| inflight.join(name));
    let mut files = Vec::new();
    for place in std::iter::once(dir.to_owned()).chain(hands) {
        files.extend(
            disk::file_names(&place)?.into_iter().filter(|name| is_notice(name)).map(|name| place.join(name)),
        );
    }
    Ok(files)
}

fn is_notice(name: &str) -> bool {
    name.starts_with(PREFIX) && name.ends_with(SUFFIX)
}

fn read_with_id(path: &Path) -> io::Result<(String, Notice)> {
    let bytes = disk::read_regular(path, NOTICE_BYTES_MAX)?;
    Ok((id(&bytes), serde_json::from_slice(&bytes)?))
}

/// What a notice is known by: a digest of its bytes.
pub(super) fn id(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))[..16].to_owned()
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot work in {}: {error}", path.display()))
}
