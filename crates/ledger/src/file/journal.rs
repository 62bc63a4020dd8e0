//! A look at the engine's journals before the engine opens them.
//!
//! The engine replays its journals at opening and, where an entry does not decode, silently cuts the file there: what
//! followed is gone. A damaged byte in mid-journal can so undo acknowledged claims. And because the engine's
//! keyspaces are flushed one by one, the sequence number it has on file may be newer than the claims that the cut
//! lost. So the journals are read first, and nothing is touched unless
//!
//! - the sequence numbers of our commits run on without a gap through all journals, and
//! - the last of them is not behind the high-water mark (judged by the caller).
//!
//! One kind of damage is expected: power loss in the middle of a commit that nobody was told of. Its pages may reach
//! the disk in any order, so its checksum may be wrong. If it is the very last batch and beyond the high-water mark,
//! it is cut off here, because the engine would refuse to open.
//!
//! The format is that of fjall 3 (`FJL\x03`): little-endian, a batch is
//! `1 │ 4 items │ 8 seqno`, items `2 │ 1 type │ 1 compression │ 8 keyspace │ 2 key │ 4 value │ 4 stored │ key │ value`,
//! then `3 │ 8 xxh3 of the items │ FJL\x03`.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64;

use super::holder::sync_dir;
use super::meta::{COMMIT_KEY, Commit};

const TRAILER: [u8; 4] = *b"FJL\x03";
/// What an item has beside its key and value.
pub(super) const ITEM_BYTES: usize = 21;
/// How much is read at once.
const CHUNK_BYTES: usize = 256 * 1024;

/// What the journals say.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Journals {
    /// The sequence number of the last commit in them.
    pub(super) last: Option<u64>,
}

/// Why the journals are not to be opened.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("{}: {error}", .path.display())]
    Io { path: PathBuf, error: std::io::Error },
    #[error("{}: commit {after} is followed by commit {next}", .path.display())]
    Gap { path: PathBuf, after: u64, next: u64 },
    #[error("{}: the checksum of the batch at {at} is wrong, and batches follow it", .path.display())]
    Torn { path: PathBuf, at: u64 },
    #[error("{}: batch {next} follows batch {after}", .path.display())]
    Order { path: PathBuf, after: u64, next: u64 },
}

impl Error {
    fn io(path: &Path, error: std::io::Error) -> Self {
        Error::Io { path: path.to_owned(), error }
    }
}

/// Reads the journals in `dir`. A last batch that is torn and beyond `acknowledged` is cut off.
pub(super) fn examine(dir: &Path, acknowledged: u64) -> Result<Journals, Error> {
    let mut walk = Walk::default();
    for path in journals(dir).map_err(|error| Error::io(dir, error))? {
        walk.journal(&path)?;
    }
    if let Some(torn) = walk.torn.as_ref().filter(|torn| torn.commit > acknowledged) {
        cut(&torn.path, torn.start).map_err(|error| Error::io(&torn.path, error))?;
        tracing::warn!(
            journal = %torn.path.display(),
            commit = torn.commit,
            "the last commit was torn by a crash before it was acknowledged, and was cut off"
        );
    }
    Ok(Journals { last: walk.last })
}

/// The journals of a store, the newest last.
pub(super) fn journals(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let number =
            path.file_name().and_then(|name| name.to_str()?.strip_suffix(".jnl")?.parse::<u64>().ok());
        found.extend(number.map(|number| (number, path)));
    }
    found.sort_unstable();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

fn cut(path: &Path, length: u64) -> std::io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    file.set_len(length)?;
    file.sync_all()
}

/// Writes the newest journal anew, by way of `temporary`. After a failed sync its pages may look clean and yet not be on
/// the disk; the engine would go on behind them, and a loss of power would leave a gap before what was acknowledged.
pub(super) fn rewrite(dir: &Path, temporary: &Path) -> std::io::Result<()> {
    let Some(path) = journals(dir)?.pop() else { return Ok(()) };
    let copied = std::fs::copy(&path, temporary).and_then(|_| File::open(temporary)?.sync_all());
    if let Err(error) = copied {
        // On a full disk it would be in the way.
        let _ = std::fs::remove_file(temporary);
        return Err(error);
    }
    std::fs::rename(temporary, &path)?;
    sync_dir(dir)
}

#[derive(Default)]
struct Walk {
    last: Option<u64>,
    seqno: Option<u64>,
    torn: Option<Torn>,
}

/// A batch whose checksum is wrong: nothing in it is to be believed.
struct Torn {
    path: PathBuf,
    start: u64,
    /// The commit that it should have been.
    commit: u64,
}

impl Walk {
    fn journal(&mut self, path: &Path) -> Result<(), Error> {
        let file = File::open(path).map_err(|error| Error::io(path, error))?;
        let mut scan = Scan::new(file);
        loop {
            let start = scan.at;
            let batch = match scan.batch() {
                Ok(Some(batch)) => batch,
                Ok(None) => return Ok(()),
                Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) => return Err(Error::io(path, error)),
            };
            self.batch(path, start, &batch)?;
        }
    }

    fn batch(&mut self, path: &Path, start: u64, batch: &Batch) -> Result<(), Error> {
        if let Some(torn) = &self.torn {
            return Err(Error::Torn { path: torn.path.clone(), at: torn.start });
        }
        if batch.torn {
            let commit = self.last.map_or(batch.commit.unwrap_or(0), |last| last + 1);
            self.torn = Some(Torn { path: path.to_owned(), start, commit });
            return Ok(());
        }
        if let Some(after) = self.seqno.replace(batch.seqno).filter(|after| *after >= batch.seqno) {
            return Err(Error::Order { path: path.to_owned(), after, next: batch.seqno });
        }
        let Some(commit) = batch.commit else { return Ok(()) };
        if let Some(after) = self.last.replace(commit).filter(|after| after + 1 != commit) {
            return Err(Error::Gap { path: path.to_owned(), after, next: commit });
        }
        Ok(())
    }
}

struct Batch {
    seqno: u64,
    commit: Option<u64>,
    torn: bool,
}

struct Scan {
    file: File,
    /// What was read of the file and not yet dropped.
    buffer: Vec<u8>,
    /// Where the walk is in the buffer.
    next: usize,
    /// Where the walk is in the file.
    at: u64,
}

impl Scan {
    fn new(file: File) -> Self {
        Self { file, buffer: Vec::with_capacity(2 * CHUNK_BYTES), next: 0, at: 0 }
    }

    /// The next whole batch; `None` where the engine would cut.
    fn batch(&mut self) -> std::io::Result<Option<Batch>> {
        if self.next >= CHUNK_BYTES {
            self.buffer.drain(..self.next);
            self.next = 0;
        }
        let [1] = self.array()? else { return Ok(None) };
        let items = u32::from_le_bytes(self.array()?);
        let seqno = u64::from_le_bytes(self.array()?);
        let start = self.next;
        let mut commit = None;
        for _ in 0..items {
            let head: [u8; ITEM_BYTES] = self.array()?;
            let [2, 0 | 1 | 2 | 4, compression @ (0 | 1), ..] = head else { return Ok(None) };
            let key = usize::from(u16::from_le_bytes([head[11], head[12]]));
            let value = u32::from_le_bytes([head[13], head[14], head[15], head[16]]);
            let stored = u32::from_le_bytes([head[17], head[18], head[19], head[20]]);
            if compression == 0 && value != stored {
                return Ok(None);
            }
            let (key, value) = self.bytes(key + stored as usize)?.split_at(key);
            if key == COMMIT_KEY {
                commit = Commit::decode(value).ok().map(|commit| commit.sequence);
            }
        }
        // In one piece: hashing each item by itself took most of the time.
        let hash = xxh3_64(&self.buffer[start..self.next]);
        let [3] = self.array()? else { return Ok(None) };
        let checksum = u64::from_le_bytes(self.array()?);
        let trailer: [u8; 4] = self.array()?;
        Ok((trailer == TRAILER).then_some(Batch { seqno, commit, torn: checksum != hash }))
    }

    fn array<const N: usize>(&mut self) -> std::io::Result<[u8; N]> {
        self.bytes(N)?.first_chunk().copied().ok_or_else(|| std::io::ErrorKind::UnexpectedEof.into())
    }

    /// The next `count` bytes. The buffer grows with what is there: a damaged length must not ask for gigabytes.
    fn bytes(&mut self, count: usize) -> std::io::Result<&[u8]> {
        let missing = count.saturating_sub(self.buffer.len() - self.next);
        if missing > 0 {
            let more = missing.max(CHUNK_BYTES) as u64;
            Read::by_ref(&mut self.file).take(more).read_to_end(&mut self.buffer)?;
        }
        let bytes = self.buffer.get(self.next..self.next + count);
        let bytes = bytes.ok_or(std::io::ErrorKind::UnexpectedEof)?;
        self.next += count;
        self.at += count as u64;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn the_newest_journal_is_written_anew_and_the_others_stay() {
        let dir = tempfile::tempdir().unwrap();
        let (store, temporary) = (dir.path().join("store"), dir.path().join("journal.tmp"));
        std::fs::create_dir(&store).unwrap();
        rewrite(&store, &temporary).unwrap();
        let paths = ["9.jnl", "10.jnl"].map(|name| store.join(name));
        let inodes = || paths.clone().map(|path| std::fs::metadata(path).unwrap().ino());
        for path in &paths {
            std::fs::write(path, path.to_str().unwrap()).unwrap();
        }
        let before = inodes();
        rewrite(&store, &temporary).unwrap();
        let after = inodes();
        assert_eq!(after[0], before[0]);
        assert_ne!(after[1], before[1]);
        for path in &paths {
            assert_eq!(std::fs::read_to_string(path).unwrap(), path.to_str().unwrap());
        }
        assert!(!temporary.exists());
    }
}
