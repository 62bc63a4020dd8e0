//! Maps by the index of a key.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use ichido_core::Index;

/// A map by index. The index is a SHA-256 already; eight of its bytes are hash enough.
pub(crate) type IndexMap<V> = HashMap<Index, V, BuildHasherDefault<IndexHasher>>;

/// Takes the first eight bytes it is given.
#[derive(Debug, Default)]
pub(crate) struct IndexHasher(u64);

impl Hasher for IndexHasher {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(head) = bytes.first_chunk() {
            self.0 ^= u64::from_ne_bytes(*head);
        }
    }

    /// The length of an array is no news.
    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}
