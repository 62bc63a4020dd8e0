//! Fingerprints tell a retry from a different request with the same key.

use crate::digest::{digest, digest_of};

digest! {
    /// A digest of a request.
    Fingerprint
}

impl Fingerprint {
    /// For callers that do not compare requests.
    pub const NONE: Fingerprint = Fingerprint([0; 32]);

    /// The SHA-256 of length-prefixed parts.
    pub fn of<P: AsRef<[u8]>>(parts: impl IntoIterator<Item = P>) -> Self {
        Self(digest_of(parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundaries_between_parts_count() {
        assert_ne!(Fingerprint::of(["ab", "c"]), Fingerprint::of(["a", "bc"]));
        assert_eq!(Fingerprint::of(["ab", "c"]), Fingerprint::of(["ab", "c"]));
        assert_ne!(Fingerprint::of(["", ""]), Fingerprint::NONE);
    }
}
