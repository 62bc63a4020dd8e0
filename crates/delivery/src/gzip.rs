//! Gzip in memory.

use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

/// Compresses bytes. The output is deterministic.
pub(crate) fn compress(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::new(6));
    // Writing to a Vec does not fail.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}

/// Decompresses at most `limit` bytes.
pub(crate) fn decompress(bytes: &[u8], limit: u64) -> io::Result<Vec<u8>> {
    let mut decompressed = Vec::new();
    GzDecoder::new(bytes).take(limit).read_to_end(&mut decompressed)?;
    Ok(decompressed)
}
