//! Metadata: names and values that a caller stores with a claim or mark, for operators and other consumers.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{LimitError, Limits};

/// Names and values, sorted by name.
#[derive(Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, String>")]
pub struct Metadata(BTreeMap<String, String>);

/// Attribute names that ledgers use themselves in tables shared with other consumers.
const RESERVED: [&str; 3] = ["event_key", "processed_at", "ttl"];

impl TryFrom<BTreeMap<String, String>> for Metadata {
    type Error = LimitError;

    fn try_from(pairs: BTreeMap<String, String>) -> Result<Self, LimitError> {
        Self::new(pairs)
    }
}

impl Metadata {
    /// Creates metadata. Refuses names that ledgers use themselves, and more than the size limit.
    pub fn new(pairs: impl IntoIterator<Item = (String, String)>) -> Result<Self, LimitError> {
        let map: BTreeMap<_, _> = pairs.into_iter().collect();
        let mut size = 0;
        for (name, value) in &map {
            if name.is_empty() {
                return Err(LimitError::Empty { what: "metadata name" });
            }
            if RESERVED.contains(&name.as_str()) || name.starts_with("ichido_") {
                return Err(LimitError::Reserved { what: "metadata name", name: name.clone() });
            }
            size += name.len() + value.len();
        }
        LimitError::bytes("metadata", size, Limits::STANDARD.metadata_bytes)?;
        Ok(Self(map))
    }

    /// The pairs, sorted by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The value for a name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Only the pair with this name, if there is one.
    pub(crate) fn only(&self, name: &str) -> Self {
        Self(
            self.0
                .get_key_value(name)
                .map(|(name, value)| (name.clone(), value.clone()))
                .into_iter()
                .collect(),
        )
    }

    /// Whether there is no metadata.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Prints the names only: values may be personal data.
impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metadata")?;
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, value: &str) -> Result<Metadata, LimitError> {
        Metadata::new([(name.to_owned(), value.to_owned())])
    }

    #[test]
    fn reserved_names_are_refused() {
        assert_eq!(of("ttl", "1").unwrap_err().to_string(), "metadata name \"ttl\" is reserved");
        assert!(of("ichido_nonce", "1").is_err());
        assert!(of("", "1").is_err());
        assert!(of("file_id", &"x".repeat(9000)).is_err());
        assert_eq!(of("file_id", "F1").unwrap().get("file_id"), Some("F1"));
    }
}
