//! Values that are never printed.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Deserializer};

/// A password, token or signing key. It has no `Display` and no `Serialize`, and `Debug` shows asterisks.
#[derive(Clone)]
pub struct Secret(SecretString);

impl Secret {
    /// The secret itself, for the one place that sends it.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }

    /// The secret, for crates that use `secrecy`.
    pub fn into_inner(self) -> SecretString {
        self.0
    }
}

impl From<String> for Secret {
    fn from(secret: String) -> Self {
        Self(secret.into())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

impl JsonSchema for Secret {
    fn schema_name() -> Cow<'static, str> {
        "Secret".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "x-secret": true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_does_not_print_it() {
        assert_eq!(format!("{:?}", Some(Secret::from("hunter2".to_owned()))), "Some(***)");
    }
}
