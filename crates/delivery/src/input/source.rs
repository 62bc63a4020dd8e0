//! The bytes of an input: counted as they are read, and decompressed if they are gzip.

use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;

const GZIP: [u8; 2] = [0x1f, 0x8b];

/// How much of an input was read.
#[derive(Clone, Debug)]
pub struct Progress {
    read: Arc<AtomicU64>,
    total: Option<u64>,
}

impl Progress {
    /// Bytes read so far, before decompression.
    pub fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// The length of the file; unknown for a pipe.
    pub fn total(&self) -> Option<u64> {
        self.total
    }
}

/// The decompressed bytes, and the progress of reading them.
pub(super) fn decompressed(
    reader: impl Read + Send + 'static,
    total: Option<u64>,
) -> io::Result<(Box<dyn BufRead + Send>, Progress)> {
    let progress = Progress { read: Arc::default(), total };
    let mut reader = CountingReader { reader, read: progress.read.clone() };
    let mut first = Vec::new();
    reader.by_ref().take(GZIP.len() as u64).read_to_end(&mut first)?;
    let is_gzip = first == GZIP;
    let complete = buffered(Cursor::new(first).chain(reader));
    // A gzip file may have several members.
    let bytes = if is_gzip { buffered(MultiGzDecoder::new(complete)) } else { complete };
    Ok((bytes, progress))
}

struct CountingReader<R> {
    reader: R,
    read: Arc<AtomicU64>,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

/// A reader that tracks its offset.
pub(super) struct OffsetReader<R> {
    reader: R,
    offset: u64,
}

impl<R> OffsetReader<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { reader, offset: 0 }
    }

    pub(super) fn offset(&self) -> u64 {
        self.offset
    }
}

impl<R: BufRead> Read for OffsetReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        self.offset += count as u64;
        Ok(count)
    }
}

impl<R: BufRead> BufRead for OffsetReader<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.reader.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.offset += amount as u64;
        self.reader.consume(amount);
    }
}

fn buffered(reader: impl Read + Send + 'static) -> Box<dyn BufRead + Send> {
    Box::new(BufReader::with_capacity(128 * 1024, reader))
}
