//! JSON pointers.

use std::fmt;
use std::str::FromStr;

use serde_json::Value;

use crate::parse_error::SourceError;

/// A JSON pointer (RFC 6901).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer(String);

impl Pointer {
    /// One that is written in this program.
    pub(crate) fn known(text: &'static str) -> Self {
        Self(text.to_owned())
    }

    /// The whole document.
    pub(crate) const fn whole() -> Self {
        Self(String::new())
    }

    /// The names and numbers on the way to this place.
    pub(crate) fn steps(&self) -> impl Iterator<Item = String> {
        self.0.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~"))
    }

    /// Takes the value at this place away.
    pub fn remove(&self, value: &mut Value) {
        let Some((parent, last)) = self.0.rsplit_once('/') else { return };
        let last = last.replace("~1", "/").replace("~0", "~");
        match value.pointer_mut(parent) {
            Some(Value::Object(fields)) => {
                fields.remove(&last);
            }
            Some(Value::Array(items)) => {
                // Its place is kept: the items behind it do not move.
                if let Some(item) = last.parse::<usize>().ok().and_then(|at| items.get_mut(at)) {
                    *item = Value::Null;
                }
            }
            _ => {}
        }
    }
}

impl FromStr for Pointer {
    type Err = SourceError;
    fn from_str(text: &str) -> Result<Self, SourceError> {
        let broken = text.split('~').skip(1).any(|rest| !rest.starts_with(['0', '1']));
        if !text.starts_with('/') || broken {
            return Err(SourceError::new(format!("{text:?} is not a JSON pointer such as /event/id")));
        }
        Ok(Self(text.to_owned()))
    }
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
    fn removal_keeps_the_places_of_the_others() {
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
