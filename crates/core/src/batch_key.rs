//! The idempotency key of a batch of records.

use std::cmp::Ordering;

use sha2::{Digest, Sha256};

use crate::to_hex;

/// The key of a batch: the record keys, sorted by UTF-16 code unit and joined with commas, as a SHA-256 digest in
/// lower-case hex. Sorting by UTF-16 code unit is what JavaScript does, so other programs compute the same key. An
/// empty batch has an empty key.
pub fn batch_key<'a>(keys: impl IntoIterator<Item = &'a str>) -> String {
    let mut keys: Vec<&str> = keys.into_iter().collect();
    keys.sort_by(|one, other| by_utf16(one, other));
    let Some((first, rest)) = keys.split_first() else { return String::new() };
    let mut digest = Sha256::new_with_prefix(first);
    for key in rest {
        digest.update(",");
        digest.update(key);
    }
    to_hex(&digest.finalize())
}

/// Compares two strings as JavaScript's `sort` does, by UTF-16 code unit.
///
/// UTF-8 bytes sort by code point. That differs in one case: characters beyond U+FFFF (first byte F0 or above) come before
/// U+E000 to U+FFFF (first byte EE or EF), because their first surrogate is smaller.
#[inline]
pub fn by_utf16(one: &str, other: &str) -> Ordering {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let rank = |byte: u8| match byte {
        0xf0.. => (0xed, byte),
        _ => (byte, 0),
    };
    match one.iter().zip(other).find(|(one, other)| one != other) {
        Some((one, other)) => rank(*one).cmp(&rank(*other)),
        None => one.len().cmp(&other.len()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(serde::Deserialize)]
    struct Vectors {
        batch_keys: Vec<Vector>,
    }

    #[derive(serde::Deserialize)]
    struct Vector {
        name: String,
        input: Vec<String>,
        output: String,
    }

    #[test]
    fn batch_keys_match_the_test_vectors() {
        let vectors: Vectors =
            serde_json::from_str(include_str!("../tests/vectors/batch-keys.json")).unwrap();
        assert_eq!(vectors.batch_keys.len(), 7);
        for vector in vectors.batch_keys {
            assert_eq!(batch_key(vector.input.iter().map(String::as_str)), vector.output, "{}", vector.name);
        }
    }

    #[test]
    fn surrogates_sort_before_the_end_of_the_basic_plane() {
        assert_eq!(by_utf16("\u{1f600}", "\u{ff5e}"), Ordering::Less);
        assert_eq!(by_utf16("\u{1f600}", "\u{d7ff}"), Ordering::Greater);
        assert_eq!(by_utf16("a", "ab"), Ordering::Less);
    }

    proptest! {
        #[test]
        fn order_is_that_of_utf16(one in "[a-z\u{d7fe}-\u{1f601}]{0,4}", other in "[a-z\u{d7fe}-\u{1f601}]{0,4}") {
            prop_assert_eq!(by_utf16(&one, &other), one.encode_utf16().cmp(other.encode_utf16()));
        }

        #[test]
        fn batch_key_does_not_depend_on_the_order(mut keys in prop::collection::vec(".{0,8}", 0..6)) {
            let key = batch_key(keys.iter().map(String::as_str));
            keys.reverse();
            prop_assert_eq!(key, batch_key(keys.iter().map(String::as_str)));
        }
    }
}
