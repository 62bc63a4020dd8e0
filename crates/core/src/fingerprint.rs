//! Fingerprints tell a repeat from another request that reuses the key.

use crate::digest::{digest, digest_of};

digest! {
    /// A digest of what was asked for.
    Fingerprint
}

impl Fingerprint {
    /// For callers that do not compare what was asked.
    pub const NONE: Fingerprint = Fingerprint([0; 32]);

    /// The SHA-256 over length-prefixed parts.
    pub fn of<P: AsRef<[u8]>>(parts: impl IntoIterator<Item = P>) -> Self {
        Self(digest_of(parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_border_between_parts_counts() {
        assert_ne!(Fingerprint::of(["ab", "c"]), Fingerprint::of(["a", "bc"]));
        assert_eq!(Fingerprint::of(["ab", "c"]), Fingerprint::of(["ab", "c"]));
        assert_ne!(Fingerprint::of(["", ""]), Fingerprint::NONE);
    }
}
