//! The key of a batch: the same contract as delivery's, which computes it for what it sends.

use sha2::{Digest, Sha256};

use super::{DIGITS, by_utf16};

/// The key of a batch of records with these keys: sorted by UTF-16 code unit, joined with commas, SHA-256 in lower-case hex. No
/// keys give the empty text.
pub fn batch_key<'a>(keys: impl IntoIterator<Item = &'a str>) -> String {
    let mut keys: Vec<&str> = keys.into_iter().collect();
    keys.sort_by(|one, other| by_utf16(one, other));
    let Some((first, rest)) = keys.split_first() else { return String::new() };
    let mut hash = Sha256::new_with_prefix(first);
    for key in rest {
        hash.update(",");
        hash.update(key);
    }
    let halves = hash.finalize().into_iter().flat_map(|byte| [byte >> 4, byte & 15]);
    halves.map(|half| char::from(DIGITS[usize::from(half)])).collect()
}
