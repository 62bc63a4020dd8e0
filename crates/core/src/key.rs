//! Keys: a caller's name for an operation, within the scope of a tenant and a route.
//!
//! The index is the SHA-256 of length-prefixed parts, so that no choice of characters in a tenant, route or key makes two
//! different keys collide. It is computed once; the text is kept for operators.
//!
//! The text of a key can be erased. What is left is its index, which is enough to find the record. Stores write it as a
//! text of a form that no caller can use.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

use serde::Serialize;

use crate::digest::digest_of;
use crate::{LimitError, Limits, ParseIdError, to_hex};

/// Starts the text of an erased key; its index follows.
const ERASED: &str = "erased:";

/// The hash that identifies a key in every store.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Index([u8; 32]);

impl Index {
    /// Creates an index from its bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    fn of(domain: &str, parts: &[&str]) -> Self {
        Self(digest_of(std::iter::once(&domain).chain(parts)))
    }

    /// The index in the text of an erased key.
    fn of_erased(text: &str) -> Option<Self> {
        text.strip_prefix(ERASED)?.parse().ok()
    }
}

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_hex(&self.0))
    }
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Index({}…)", hex::encode(&self.0[..6]))
    }
}

impl FromStr for Index {
    type Err = ParseIdError;
    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).map_err(|_| ParseIdError { digits: 64 })?;
        Ok(Self(bytes))
    }
}

/// The tenant and route of a key. The same text in a different scope is a different key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct Scope {
    /// The owner of the key; may be empty.
    pub tenant: String,
    /// The operation that the key is for; may be empty.
    pub route: String,
}

impl Scope {
    /// Creates a scope.
    pub fn new(tenant: impl Into<String>, route: impl Into<String>) -> Self {
        Self { tenant: tenant.into(), route: route.into() }
    }
}

/// The key of a claim.
#[derive(Clone)]
pub struct Key {
    index: Index,
    parts: Arc<Parts>,
}

struct Parts {
    scope: Scope,
    text: Box<str>,
}

impl Key {
    /// Creates a key in a scope. The text must have 1 to 1,024 bytes.
    pub fn new(scope: Scope, text: impl Into<String>) -> Result<Self, LimitError> {
        let text: String = text.into();
        check_text("key", &text)?;
        LimitError::bytes("tenant", scope.tenant.len(), Limits::STANDARD.scope_bytes)?;
        LimitError::bytes("route", scope.route.len(), Limits::STANDARD.scope_bytes)?;
        let index = Index::of("claim", &[&scope.tenant, &scope.route, &text]);
        Ok(Self { index, parts: Arc::new(Parts { scope, text: text.into_boxed_str() }) })
    }

    /// The key that a store has written: of an erased key, only the index is left.
    pub fn stored(scope: Scope, text: impl Into<String>) -> Result<Self, LimitError> {
        let text: String = text.into();
        match Index::of_erased(&text) {
            Some(index) => Ok(Self { index, parts: Arc::new(Parts { scope, text: text.into_boxed_str() }) }),
            None => Self::new(scope, text),
        }
    }

    /// The same key without its text and scope.
    #[must_use]
    pub fn erased(&self) -> Self {
        let parts = Parts { scope: Scope::default(), text: erased_text(self.index).into_boxed_str() };
        Self { index: self.index, parts: Arc::new(parts) }
    }

    /// Whether its text was erased.
    pub fn is_erased(&self) -> bool {
        Index::of_erased(&self.parts.text).is_some()
    }

    /// Creates a key in the empty scope.
    pub fn unscoped(text: impl Into<String>) -> Result<Self, LimitError> {
        Self::new(Scope::default(), text)
    }

    /// The index, which stores use.
    pub fn index(&self) -> Index {
        self.index
    }

    /// The text, as the caller wrote it.
    pub fn text(&self) -> &str {
        &self.parts.text
    }

    /// The scope.
    pub fn scope(&self) -> &Scope {
        &self.parts.scope
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.index == other.index
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.index.hash(state);
    }
}

/// Prints the index only: the text may be a secret of the caller.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:?})", self.index)
    }
}

/// The key of a mark. Marks have their own key space and no scope.
#[derive(Clone)]
pub struct MarkKey {
    index: Index,
    text: Arc<str>,
}

impl MarkKey {
    /// Creates a key for a mark, of 1 to 1,024 bytes.
    pub fn new(text: impl Into<Arc<str>>) -> Result<Self, LimitError> {
        let text: Arc<str> = text.into();
        check_text("key", &text)?;
        Ok(Self { index: Index::of("mark", &[&text]), text })
    }

    /// The key that a store has written: of an erased key, only the index is left.
    pub fn stored(text: impl Into<Arc<str>>) -> Result<Self, LimitError> {
        let text: Arc<str> = text.into();
        match Index::of_erased(&text) {
            Some(index) => Ok(Self { index, text }),
            None => Self::new(text),
        }
    }

    /// The same key without its text.
    #[must_use]
    pub fn erased(&self) -> Self {
        Self { index: self.index, text: erased_text(self.index).into() }
    }

    /// Whether its text was erased.
    pub fn is_erased(&self) -> bool {
        Index::of_erased(&self.text).is_some()
    }

    /// The index, which stores use.
    pub fn index(&self) -> Index {
        self.index
    }

    /// The text, as the caller wrote it.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl PartialEq for MarkKey {
    fn eq(&self, other: &Self) -> bool {
        self.index == other.index
    }
}

impl Eq for MarkKey {}

impl Hash for MarkKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.index.hash(state);
    }
}

impl fmt::Debug for MarkKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MarkKey({:?})", self.index)
    }
}

fn erased_text(index: Index) -> String {
    format!("{ERASED}{index}")
}

fn check_text(what: &'static str, text: &str) -> Result<(), LimitError> {
    if text.is_empty() {
        return Err(LimitError::Empty { what });
    }
    // Otherwise a caller could reach the claim of another one by its index.
    if Index::of_erased(text).is_some() {
        return Err(LimitError::Reserved { what, name: text.to_owned() });
    }
    LimitError::bytes(what, text.len(), Limits::STANDARD.key_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(tenant: &str, route: &str, text: &str) -> Key {
        Key::new(Scope::new(tenant, route), text).unwrap()
    }

    #[test]
    fn separators_in_parts_do_not_make_keys_collide() {
        assert_ne!(key("a", "b:c", "d"), key("a:b", "c", "d"));
        assert_ne!(key("a", "", "bc"), key("a", "b", "c"));
        assert_ne!(key("", "ab", "c"), key("ab", "", "c"));
        assert_ne!(key("a\0b", "c", "d"), key("a", "b\0c", "d"));
        assert_eq!(key("a", "b", "c"), key("a", "b", "c"));
    }

    #[test]
    fn marks_and_claims_do_not_share_a_key_space() {
        assert_ne!(Key::unscoped("k").unwrap().index(), MarkKey::new("k").unwrap().index());
    }

    #[test]
    fn empty_and_oversized_keys_are_refused() {
        assert_eq!(Key::unscoped("").unwrap_err().to_string(), "key is empty");
        let long = "k".repeat(1025);
        assert_eq!(
            Key::unscoped(long.clone()).unwrap_err().to_string(),
            "key is 1025 bytes; at most 1024 are allowed"
        );
        assert!(Key::new(Scope::new(long, ""), "k").unwrap_err().to_string().starts_with("tenant is 1025"));
    }

    #[test]
    fn erased_key_is_found_by_its_text_and_no_caller_can_write_one() {
        let (known, event) = (key("tenant", "POST /orders", "k1"), MarkKey::new("Ev1").unwrap());
        let erased = known.erased();
        assert_eq!((&erased, erased.scope()), (&known, &Scope::default()));
        assert!(erased.is_erased() && !known.is_erased());
        assert_eq!(Key::stored(Scope::default(), erased.text()).unwrap(), known);
        assert_eq!(Key::stored(known.scope().clone(), "k1").unwrap(), known);
        assert_eq!(erased.erased().text(), erased.text());
        assert_eq!(MarkKey::stored(event.erased().text()).unwrap(), event);
        assert!(event.erased().is_erased() && !MarkKey::stored("Ev1").unwrap().is_erased());
        let refused = Key::new(Scope::new("other", ""), erased.text()).unwrap_err();
        assert!(refused.to_string().starts_with("key \"erased:dabeea"), "{refused}");
        assert!(MarkKey::new(event.erased().text()).is_err());
        assert!(Key::unscoped("erased:yes").is_ok());
    }

    /// The index is stored: changing it would change the format.
    #[test]
    fn the_index_is_stable() {
        assert_eq!(
            key("tenant", "POST /orders", "k1").index().to_string(),
            "dabeea1e895c7bbceb9f8dacc563c662fb8c2a38298fc86e88a7ed7fb22b153e"
        );
    }
}
