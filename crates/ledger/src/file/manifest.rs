//! A look at the engine's tables before the engine opens them.
//!
//! Each keyspace has a file `current` that names its manifest (`vN`, the list of its tables) and holds the manifest's
//! checksum. The engine does not check it: it believes a damaged list, removes the tables that are not on it, or asks
//! for as much memory as a damaged length says, and a keyspace without `current` is removed altogether. So the
//! checksums are checked here first, and then those of each listed table's own table of contents. What lies in the
//! tables is checked by the engine block by block, whenever it is read.
//!
//! The format is that of lsm-tree 3: little-endian; `current` is `8 N │ 16 xxh3 of vN │ 1 zero`; an archive (`vN` and
//! tables) ends with its contents `"TOC!" │ 4 count │ (8 position │ 8 length │ 2 length │ name)*` and
//! `"SFA!" │ 1 │ 0 │ 16 xxh3 of the contents │ 8 position of the contents │ 8 length`.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_128;

const TRAILER_BYTES: usize = 38;
/// A table's contents have a handful of short entries.
const CONTENTS_MAX: u64 = 1024 * 1024;

/// Why the tables are not to be opened.
#[derive(Debug, thiserror::Error)]
#[error("{}: {what}", .path.display())]
pub(super) struct Error {
    path: PathBuf,
    what: String,
}

/// Checks the manifests of all keyspaces in `store`. While its format is being `raised`, the last of them may be one that
/// was just being made when that was interrupted: the engine removes it.
pub(super) fn examine(store: &Path, raised: bool) -> Result<(), Error> {
    let keyspaces = store.join("keyspaces");
    let mut found = Vec::new();
    for entry in fs::read_dir(&keyspaces).map_err(|error| unreadable(&keyspaces, error))? {
        let path = entry.map_err(|error| unreadable(&keyspaces, error))?.path();
        if !path.is_dir() {
            continue;
        }
        let number = path.file_name().and_then(|name| name.to_str()?.parse::<u64>().ok());
        found.push((number.ok_or_else(|| flaw(&path, "it is not the engine's"))?, path));
    }
    found.sort_unstable();
    if raised {
        found.pop_if(|(_, path)| is_unfinished(path));
    }
    found.iter().try_for_each(|(_, path)| keyspace(path))
}

/// A keyspace that never had a table.
fn is_unfinished(dir: &Path) -> bool {
    let is_empty = |tables: &Path| fs::read_dir(tables).map_or(true, |mut tables| tables.next().is_none());
    !dir.join("current").exists() && is_empty(&dir.join("tables"))
}

fn keyspace(dir: &Path) -> Result<(), Error> {
    let path = dir.join("current");
    let current = fs::read(&path).map_err(|error| unreadable(&path, error))?;
    let (Some(number), Some(checksum), 25) = (le_u64(&current, 0), le_u128(&current, 8), current.len())
    else {
        return Err(flaw(&path, "it has the wrong length"));
    };
    let path = dir.join(format!("v{number}"));
    let manifest = fs::read(&path).map_err(|error| unreadable(&path, error))?;
    if xxh3_128(&manifest) != checksum {
        return Err(flaw(&path, "its checksum is wrong"));
    }
    let tables = tables(&manifest).ok_or_else(|| flaw(&path, "its list of tables cannot be read"))?;
    for table in tables {
        let path = dir.join("tables").join(table.to_string());
        check_table(&path)?;
    }
    Ok(())
}

/// The tables that a manifest lists.
fn tables(manifest: &[u8]) -> Option<Vec<u64>> {
    let trailer = manifest.len().checked_sub(TRAILER_BYTES)?;
    let contents = usize::try_from(le_u64(manifest, trailer + 22)?).ok()?;
    let mut at = section(manifest.get(contents..trailer)?, b"tables")?;
    let mut take = |count: usize| {
        let bytes = manifest.get(at..at + count);
        at += count;
        bytes
    };
    let mut tables = Vec::new();
    for _ in 0..*take(1)?.first()? {
        for _ in 0..*take(1)?.first()? {
            for _ in 0..u32::from_le_bytes(*take(4)?.first_chunk()?) {
                tables.push(le_u64(take(33)?, 0)?);
            }
        }
    }
    Some(tables)
}

/// Where a section begins.
fn section(contents: &[u8], wanted: &[u8]) -> Option<usize> {
    let count = u32::from_le_bytes(*contents.get(4..)?.first_chunk()?);
    let mut rest = contents.get(8..)?;
    for _ in 0..count {
        let length = usize::from(u16::from_le_bytes(*rest.get(16..)?.first_chunk()?));
        if rest.get(18..18 + length)? == wanted {
            return usize::try_from(le_u64(rest, 0)?).ok();
        }
        rest = rest.get(18 + length..)?;
    }
    None
}

fn check_table(path: &Path) -> Result<(), Error> {
    let file = File::open(path).map_err(|error| unreadable(path, error))?;
    let length = file.metadata().map_err(|error| unreadable(path, error))?.len();
    let mut trailer = [0; TRAILER_BYTES];
    let end = length.checked_sub(TRAILER_BYTES as u64).ok_or_else(|| flaw(path, "it is cut short"))?;
    file.read_exact_at(&mut trailer, end).map_err(|error| unreadable(path, error))?;
    let contents = le_u64(&trailer, 22).filter(|start| *start < end && end - start <= CONTENTS_MAX);
    let (true, Some(start)) = (trailer.starts_with(b"SFA!\x01\x00"), contents) else {
        return Err(flaw(path, "its end is damaged"));
    };
    let mut contents = vec![0; usize::try_from(end - start).unwrap_or(0)];
    file.read_exact_at(&mut contents, start).map_err(|error| unreadable(path, error))?;
    if le_u128(&trailer, 6) != Some(xxh3_128(&contents)) {
        return Err(flaw(path, "the checksum of its contents is wrong"));
    }
    Ok(())
}

fn le_u64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn le_u128(bytes: &[u8], at: usize) -> Option<u128> {
    Some(u128::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn flaw(path: &Path, what: &str) -> Error {
    Error { path: path.to_owned(), what: what.to_owned() }
}

fn unreadable(path: &Path, error: io::Error) -> Error {
    flaw(path, &error.to_string())
}
