//! Callers: who asked for a key, so that nobody else is given its answer.
//!
//! A caller is known by its credentials. They are secrets, so only a digest is kept, salted with the claim's index: two
//! claims of one caller cannot be linked by it.

use crate::Index;
use crate::digest::{digest, digest_of};

digest! {
    /// A digest of the credentials that a request carried. No credentials at all are a caller too.
    Caller
}

impl Caller {
    /// The caller with these credentials, as the claim under `index` knows it.
    pub fn of<'a>(index: Index, credentials: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let salt: [&[u8]; 2] = [b"caller", index.as_bytes()];
        Self(digest_of(salt.into_iter().chain(credentials.into_iter().map(|part| -> &[u8] { part }))))
    }

    /// Whether a request comes from another caller than the one on record. A request without a caller is not judged; a
    /// record without one was made where callers were not compared, so whoever has one now is another.
    pub fn is_other(asking: Option<Caller>, recorded: Option<Caller>) -> bool {
        asking.is_some() && asking != recorded
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Key;

    #[test]
    fn a_caller_is_known_by_its_credentials_within_one_claim() {
        let index = |text: &str| Key::unscoped(text).unwrap().index();
        let of = |key, credentials: &[&'static str]| {
            Caller::of(index(key), credentials.iter().map(|text| text.as_bytes()))
        };
        let caller = of("k", &["Bearer a"]);
        assert_eq!(caller, of("k", &["Bearer a"]));
        assert_ne!(caller, of("k", &["Bearer b"]));
        assert_ne!(caller, of("other", &["Bearer a"]), "claims must not be linked by it");
        assert_ne!(caller, of("k", &["Bearer", " a"]));
        assert_eq!(caller.to_string().parse(), Ok(caller));
    }

    #[test]
    fn only_a_request_with_a_caller_is_judged() {
        let caller = |byte| Some(Caller::from_bytes([byte; 32]));
        assert!(!Caller::is_other(caller(1), caller(1)));
        assert!(Caller::is_other(caller(1), caller(2)));
        assert!(Caller::is_other(caller(1), None));
        assert!(!Caller::is_other(None, caller(1)));
        assert!(!Caller::is_other(None, None));
    }
}
