//! What goes to an admin port and comes back: written once for both ends.

use ichido_ledger::StateName;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::Word;

/// The most claims on one page.
pub const PAGE_MAX: usize = 1_000;
/// How many claims are on a page unless the caller says otherwise.
const PAGE: usize = 100;

/// Which claim is meant: tenant and route where several have the same key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Which {
    pub key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
}

/// Which claims to list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListQuery {
    pub state: Option<StateName>,
    pub prefix: Option<String>,
    #[serde(default = "page")]
    pub limit: usize,
    pub cursor: Option<String>,
}

fn page() -> usize {
    PAGE
}

/// An operator's word.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResolveBody {
    pub key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    #[serde(rename = "as")]
    pub end: End,
    /// What repeats are answered, as JSON; kept as it was written.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Box<RawValue>>,
    /// What repeats are answered, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome_text: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum End {
    Done,
    Absent,
}

/// `null` is an outcome; none is none.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::deserialize(deserializer).map(Some)
}

impl ResolveBody {
    /// The word and whom it is about, or why they make no sense together.
    pub fn read(self) -> Result<(Which, Word), &'static str> {
        let outcome = match (self.outcome, self.outcome_text) {
            (Some(_), Some(_)) => return Err("outcome and outcome_text exclude each other"),
            (Some(json), None) => Some(json.get().to_owned()),
            (None, text) => text,
        };
        let word = match (self.end, outcome) {
            (End::Done, outcome) => Word::Done(outcome),
            (End::Absent, None) => Word::Absent,
            (End::Absent, Some(_)) => return Err("an outcome goes with \"as\":\"done\""),
        };
        Ok((Which { key: self.key, tenant: self.tenant, route: self.route }, word))
    }

    pub(super) fn write(which: Which, word: &Word) -> Self {
        let (end, outcome_text) = match word {
            Word::Done(outcome) => (End::Done, outcome.clone()),
            Word::Absent => (End::Absent, None),
        };
        Self { key: which.key, tenant: which.tenant, route: which.route, end, outcome: None, outcome_text }
    }
}

/// A key that is given back.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReleaseBody {
    pub key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    #[serde(default)]
    pub force: bool,
}

impl ReleaseBody {
    pub fn read(self) -> (Which, bool) {
        (Which { key: self.key, tenant: self.tenant, route: self.route }, self.force)
    }

    pub(super) fn write(which: Which, force: bool) -> Self {
        Self { key: which.key, tenant: which.tenant, route: which.route, force }
    }
}

/// A word that was taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Said {
    pub key: String,
    pub tenant: String,
    pub route: String,
    pub index: String,
    /// What holds now: done, absent or released.
    pub state: String,
}

/// Everything about a claim but its token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Shown(pub Map<String, Value>);

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Word, String> {
        let body: ResolveBody = serde_json::from_str(json).map_err(|error| error.to_string())?;
        body.read().map(|(_, word)| word).map_err(ToOwned::to_owned)
    }

    #[test]
    fn an_outcome_is_kept_as_it_was_written() {
        let done = |outcome: &str| Ok(Word::Done(Some(outcome.to_owned())));
        assert_eq!(
            read(r#"{"key":"k","as":"done","outcome":{"b": 12345678901234567890123, "a": 1.0}}"#),
            done(r#"{"b": 12345678901234567890123, "a": 1.0}"#)
        );
        assert_eq!(read(r#"{"key":"k","as":"done","outcome":null}"#), done("null"));
        assert_eq!(read(r#"{"key":"k","as":"done","outcome":"x"}"#), done(r#""x""#));
        assert_eq!(read(r#"{"key":"k","as":"done","outcome_text":"by hand"}"#), done("by hand"));
        assert_eq!(read(r#"{"key":"k","as":"done"}"#), Ok(Word::Done(None)));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (json, why) in [
            (r#"{"key":"k","as":"absent","outcome":1}"#, "goes with"),
            (r#"{"key":"k","as":"done","outcome":1,"outcome_text":"1"}"#, "exclude"),
            (r#"{"key":"k","as":"maybe"}"#, "maybe"),
            (r#"{"key":"k","as":"done","tenent":"t"}"#, "tenent"),
            (r#"{"as":"done"}"#, "key"),
        ] {
            let error = read(json).unwrap_err();
            assert!(error.contains(why), "{json}: {error}");
        }
    }

    #[test]
    fn a_word_survives_the_wire() {
        let which = Which { key: "k".to_owned(), tenant: Some(String::new()), route: None };
        for word in [Word::Done(Some("{\"id\": 1}".to_owned())), Word::Done(None), Word::Absent] {
            let json = serde_json::to_string(&ResolveBody::write(which.clone(), &word)).unwrap();
            let body: ResolveBody = serde_json::from_str(&json).unwrap();
            assert_eq!(body.read(), Ok((which.clone(), word)));
        }
    }
}
