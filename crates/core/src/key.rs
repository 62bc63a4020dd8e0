//! Keys: what the caller calls an operation, within the scope of who it is and where it asks.
//!
//! The index is the SHA-256 over length-prefixed parts: no choice of separators in a tenant, route or key can make
//! two different keys meet. It is computed once and carried along; the text is kept for people.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

use serde::Serialize;

use crate::digest::digest_of;
use crate::{LimitError, Limits, ParseIdError, to_hex};

/// Thirty-two bytes that stand for a key in every store.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Index([u8; 32]);

impl Index {
    /// From its bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    fn of(domain: &str, parts: &[&str]) -> Self {
        Self(digest_of(std::iter::once(&domain).chain(parts)))
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
        hex::decode_to_slice(text, &mut bytes).map_err(|_| ParseIdError)?;
        Ok(Self(bytes))
    }
}

/// Who asks, and where: the same key text in another scope is another key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct Scope {
    /// Whose key it is; may be empty.
    pub tenant: String,
    /// Which operation it is for; may be empty.
    pub route: String,
}

impl Scope {
    /// A scope of both parts.
    pub fn new(tenant: impl Into<String>, route: impl Into<String>) -> Self {
        Self { tenant: tenant.into(), route: route.into() }
    }
}

/// The name of a claim.
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
    /// A key in a scope. The text must be 1 to 1,024 bytes.
    pub fn new(scope: Scope, text: impl Into<String>) -> Result<Self, LimitError> {
        let text: String = text.into();
        check_text("key", &text)?;
        LimitError::bytes("tenant", scope.tenant.len(), Limits::STANDARD.scope_bytes)?;
        LimitError::bytes("route", scope.route.len(), Limits::STANDARD.scope_bytes)?;
        let index = Index::of("claim", &[&scope.tenant, &scope.route, &text]);
        Ok(Self { index, parts: Arc::new(Parts { scope, text: text.into_boxed_str() }) })
    }

    /// A key in the empty scope.
    pub fn unscoped(text: impl Into<String>) -> Result<Self, LimitError> {
        Self::new(Scope::default(), text)
    }

    /// What stores use.
    pub fn index(&self) -> Index {
        self.index
    }

    /// What the caller wrote.
    pub fn text(&self) -> &str {
        &self.parts.text
    }

    /// Who and where.
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

/// Logs show the index only: a caller's key may be a secret of theirs.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:?})", self.index)
    }
}

/// The name of a mark. Marks have a key space of their own and no scope.
#[derive(Clone)]
pub struct MarkKey {
    index: Index,
    text: Arc<str>,
}

impl MarkKey {
    /// A mark's key of 1 to 1,024 bytes.
    pub fn new(text: impl Into<Arc<str>>) -> Result<Self, LimitError> {
        let text: Arc<str> = text.into();
        check_text("key", &text)?;
        Ok(Self { index: Index::of("mark", &[&text]), text })
    }

    /// What stores use.
    pub fn index(&self) -> Index {
        self.index
    }

    /// What the caller wrote.
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

fn check_text(what: &'static str, text: &str) -> Result<(), LimitError> {
    if text.is_empty() {
        return Err(LimitError::Empty { what });
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
    fn separators_in_parts_do_not_make_keys_meet() {
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
    fn empty_and_oversized_keys_are_refused_by_name() {
        assert_eq!(Key::unscoped("").unwrap_err().to_string(), "key is empty");
        let long = "k".repeat(1025);
        assert_eq!(
            Key::unscoped(long.clone()).unwrap_err().to_string(),
            "key is 1025 bytes; at most 1024 are allowed"
        );
        assert!(Key::new(Scope::new(long, ""), "k").unwrap_err().to_string().starts_with("tenant is 1025"));
    }

    /// The index is on disk: a change here is a new format.
    #[test]
    fn the_index_is_stable() {
        assert_eq!(
            key("tenant", "POST /orders", "k1").index().to_string(),
            "dabeea1e895c7bbceb9f8dacc563c662fb8c2a38298fc86e88a7ed7fb22b153e"
        );
    }
}
