//! JSON pointers (RFC 6901).

use std::fmt;
use std::str::FromStr;

use serde_json::Value;

use crate::parse_error::ParseError;

/// A JSON pointer (RFC 6901).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer(String);

impl Pointer {
    /// A pointer that is known to be valid.
    pub(crate) fn known(text: &'static str) -> Self {
        Self(text.to_owned())
    }

    /// The whole document.
    pub(crate) const fn whole() -> Self {
        Self(String::new())
    }

    /// The unescaped reference tokens.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = String> {
        self.0.split('/').skip(1).map(unescape)
    }

    /// Removes the value that this points to. An array item becomes null, so that the items after it keep their index.
    pub fn remove(&self, value: &mut Value) {
        let Some((parent, last)) = self.0.rsplit_once('/') else { return };
        let last = unescape(last);
        match value.pointer_mut(parent) {
            Some(Value::Object(fields)) => {
                fields.remove(&last);
            }
            Some(Value::Array(items)) => {
                if let Some(item) = last.parse::<usize>().ok().and_then(|index| items.get_mut(index)) {
                    *item = Value::Null;
                }
            }
            _ => {}
        }
    }
}

impl FromStr for Pointer {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let has_bad_escape = text.split('~').skip(1).any(|rest| !rest.starts_with(['0', '1']));
        if !text.starts_with('/') || has_bad_escape {
            return Err(ParseError::new(format!("{text:?} is not a JSON pointer such as /event/id")));
        }
        Ok(Self(text.to_owned()))
    }
}

fn unescape(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn removal_does_not_move_other_values() {
        let mut value = json!({"a": [1, 2, 3], "b": {"c/d": 1, "e": 2}});
        pointer("/a/1").remove(&mut value);
        pointer("/b/c~1d").remove(&mut value);
        pointer("/x/y").remove(&mut value);
        assert_eq!(value, json!({"a": [1, null, 3], "b": {"e": 2}}));
    }

    fn pointer(text: &str) -> Pointer {
        text.parse().unwrap()
    }
}
