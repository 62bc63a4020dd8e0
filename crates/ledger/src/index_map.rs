//! Maps from the index of a key.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use ichido_core::Index;

/// A map from index to `V`. An index is a SHA-256 already: eight of its bytes are hash enough.
pub(crate) type IndexMap<V> = HashMap<Index, V, BuildHasherDefault<IndexHasher>>;

/// Uses the first eight bytes it is given.
#[derive(Debug, Default)]
pub(crate) struct IndexHasher(u64);

impl Hasher for IndexHasher {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(head) = bytes.first_chunk() {
            self.0 ^= u64::from_ne_bytes(*head);
        }
    }

    /// The length prefix of an array carries no information.
    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}
