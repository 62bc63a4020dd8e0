//! Callers: who claimed a key, so that nobody else gets its outcome.
//!
//! A caller is identified by its credentials. They are secrets, so only a digest is stored. It is salted with the index of
//! the claim, so that it does not link two claims of one caller.

use crate::Index;
use crate::digest::{digest, digest_of};

digest! {
    /// A digest of the credentials of a request. A request without credentials has a caller too.
    Caller
}

impl Caller {
    /// The caller with these credentials, for the claim with this index.
    pub fn of<'a>(index: Index, credentials: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let salt: [&[u8]; 2] = [b"caller", index.as_bytes()];
        Self(digest_of(salt.into_iter().chain(credentials.into_iter().map(|part| -> &[u8] { part }))))
    }

    /// Whether a request comes from a different caller than the recorded one. A request without a caller is not compared. A
    /// record without a caller was made when callers were not compared, so any caller differs from it.
    pub fn is_other(requesting: Option<Caller>, recorded: Option<Caller>) -> bool {
        requesting.is_some() && requesting != recorded
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Key;

    #[test]
    fn a_caller_is_identified_by_its_credentials_within_one_claim() {
        let index = |text: &str| Key::unscoped(text).unwrap().index();
        let of = |key, credentials: &[&'static str]| {
            Caller::of(index(key), credentials.iter().map(|text| text.as_bytes()))
        };
        let caller = of("k", &["Bearer a"]);
        assert_eq!(caller, of("k", &["Bearer a"]));
        assert_ne!(caller, of("k", &["Bearer b"]));
        assert_ne!(caller, of("other", &["Bearer a"]), "a digest must not link two claims");
        assert_ne!(caller, of("k", &["Bearer", " a"]));
        assert_eq!(caller.to_string().parse(), Ok(caller));
    }

    #[test]
    fn only_a_request_with_a_caller_is_compared() {
        let caller = |byte| Some(Caller::from_bytes([byte; 32]));
        assert!(!Caller::is_other(caller(1), caller(1)));
        assert!(Caller::is_other(caller(1), caller(2)));
        assert!(Caller::is_other(caller(1), None));
        assert!(!Caller::is_other(None, caller(1)));
        assert!(!Caller::is_other(None, None));
    }
}
