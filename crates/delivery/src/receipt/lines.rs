//! Reads receipt files in blocks of whole lines, so that a search looks at megabytes at once and not at lines.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::Path;

use memchr::{memchr, memrchr};

use super::name_day;
use crate::disk;

/// The longest line that is read. Most of a receipt are the ids of its records. A longer line is skipped.
const LINE_BYTES_MAX: usize = 16 << 20;
const BLOCK_BYTES: usize = 1 << 20;

/// The names of all receipt files, oldest day first. None if the directory does not exist.
pub(super) fn names(dir: &Path) -> io::Result<Vec<String>> {
    let mut names = disk::file_names(dir)?;
    names.retain(|name| name_day(name).is_some());
    names.sort_unstable();
    Ok(names)
}

/// Opens a file. `None`: it has expired in the meantime, or is not a regular file.
pub(super) fn open(path: &Path) -> io::Result<Option<File>> {
    match disk::open_regular(OpenOptions::new().read(true), path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound || disk::is_irregular(&error) => Ok(None),
        other => other.map(Some),
    }
}

/// Calls `see` with blocks of whole lines, until it breaks. The last line may be torn. Memory is bounded by the longest
/// line.
pub(super) fn each_block(
    mut file: impl Read,
    mut see: impl FnMut(&[u8]) -> ControlFlow<()>,
) -> io::Result<()> {
    let mut buffer = vec![0; BLOCK_BYTES];
    let (mut filled, mut is_skipping) = (0, false);
    loop {
        let read = match file.read(&mut buffer[filled..]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        if read == 0 {
            if filled > 0 && !is_skipping {
                let _ = see(&buffer[..filled]);
            }
            return Ok(());
        }
        let end = memrchr(b'\n', &buffer[filled..filled + read]).map(|end| filled + end + 1);
        filled += read;
        let Some(end) = end else {
            if filled == LINE_BYTES_MAX {
                // A line this long is no receipt.
                (filled, is_skipping) = (0, true);
            } else if filled == buffer.len() {
                buffer.resize(2 * filled, 0);
            }
            continue;
        };
        let skipped = if is_skipping { memchr(b'\n', &buffer).map_or(0, |at| at + 1) } else { 0 };
        is_skipping = false;
        if skipped < end && see(&buffer[skipped..end]).is_break() {
            return Ok(());
        }
        buffer.copy_within(end..filled, 0);
        filled -= end;
    }
}

/// The lines of a block, without their line breaks.
pub(super) fn lines(block: &[u8]) -> impl Iterator<Item = &[u8]> {
    block.split(|byte| *byte == b'\n').filter(|line| !line.is_empty())
}

/// The line of a block that contains this position.
pub(super) fn line_at(block: &[u8], at: usize) -> (usize, usize) {
    let start = memrchr(b'\n', &block[..at]).map_or(0, |before| before + 1);
    let end = memchr(b'\n', &block[at..]).map_or(block.len(), |after| at + after);
    (start, end)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a few bytes at a time, so that blocks end in the middle of lines.
    struct Dribble<'a>(&'a [u8], usize);

    impl Read for Dribble<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let length = self.1.min(self.0.len()).min(buffer.len());
            let (now, later) = self.0.split_at(length);
            buffer[..length].copy_from_slice(now);
            self.0 = later;
            Ok(length)
        }
    }

    fn read(text: &[u8], step: usize) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        each_block(Dribble(text, step), |block| {
            found.extend(lines(block).map(<[u8]>::to_vec));
            ControlFlow::Continue(())
        })
        .unwrap();
        found
    }

    #[test]
    fn blocks_end_with_lines_however_the_file_is_read() {
        let expected = [&b"one"[..], b"two", b"three", b"torn"];
        for step in 1..20 {
            assert_eq!(read(b"one\ntwo\n\nthree\ntorn", step), expected, "{step}");
        }
    }

    #[test]
    fn line_beyond_the_limit_is_skipped() {
        let mut text = b"one\n".to_vec();
        text.extend(std::iter::repeat_n(b'x', LINE_BYTES_MAX + 17));
        text.extend(b"\ntwo\nthree");
        assert_eq!(read(&text, 1 << 19), [&b"one"[..], b"two", b"three"]);
    }

    #[test]
    fn line_is_found_by_a_position_in_it() {
        let block = b"one\ntwo\nthree";
        for (at, line) in [(0, "one"), (3, "one"), (4, "two"), (12, "three")] {
            let (start, end) = line_at(block, at);
            assert_eq!(&block[start..end], line.as_bytes(), "{at}");
        }
    }
}
