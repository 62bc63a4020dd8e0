//! Packing and unpacking with gzip, in memory.

use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

/// Packs bytes; the same bytes give the same.
pub(crate) fn pack(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::new(6));
    // Writing to memory does not fail.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}

/// Unpacks bytes; stops after so many.
pub(crate) fn unpack(bytes: &[u8], most: u64) -> io::Result<Vec<u8>> {
    let mut unpacked = Vec::new();
    GzDecoder::new(bytes).take(most).read_to_end(&mut unpacked)?;
    Ok(unpacked)
}
