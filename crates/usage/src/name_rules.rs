//! Normalizes names before anything is added up: two spellings of one model must not become two records with the
//! same id.
//!
//! First the general rule: trim, lower-case, and keep only what follows the last `/` of a provider (Dify writes
//! `langgenius/openai/openai`); an empty name becomes `unknown`. Then a table of aliases for providers. Then the
//! rules from the settings; the first that matches applies.

use thiserror::Error;

/// What an empty name becomes.
pub const UNKNOWN: &str = "unknown";

/// Aliases of providers.
const PROVIDERS: [(&str, &str); 5] = [
    ("aws-bedrock", "aws"),
    ("claude", "anthropic"),
    ("gemini", "google"),
    ("grok", "xai"),
    ("openai", "openai"),
];

/// How names are normalized.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameRules {
    providers: Vec<Rule>,
    models: Vec<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    name: String,
    prefix: bool,
    becomes: String,
}

/// Why a rule is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// The rule matches nothing, or everything.
    #[error("the name {0:?} to replace is empty")]
    NoName(String),
    /// The replacement is not a normalized name.
    #[error(
        "the replacement for {name:?} must be in lower case, without surrounding spaces and without '|', not {becomes:?}"
    )]
    NotNormal {
        /// The name to replace.
        name: String,
        /// The invalid replacement.
        becomes: String,
    },
    /// Two rules match the same name.
    #[error("there are two rules for {0:?}")]
    Twice(String),
}

impl NameRules {
    /// Adds rules to the general rule and the table. A rule is a pair of a name, or a prefix followed by `*`, and
    /// its replacement.
    pub fn new<'a>(
        providers: impl IntoIterator<Item = (&'a str, &'a str)>,
        models: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, Error> {
        Ok(Self { providers: rules(providers)?, models: rules(models)? })
    }

    /// Normalizes the name of a provider.
    pub fn provider(&self, raw: &str) -> String {
        let last = raw.rsplit('/').next().unwrap_or_default();
        let plain = plain(last);
        let tabled =
            PROVIDERS.iter().find(|(name, _)| *name == plain).map(|(_, becomes)| (*becomes).to_owned());
        replaced(&self.providers, tabled.unwrap_or(plain))
    }

    /// Normalizes the name of a model.
    pub fn model(&self, raw: &str) -> String {
        replaced(&self.models, plain(raw))
    }
}

fn plain(name: &str) -> String {
    match name.trim() {
        "" => UNKNOWN.to_owned(),
        name => name.to_lowercase(),
    }
}

fn replaced(rules: &[Rule], name: String) -> String {
    let fits = |rule: &&Rule| match rule.prefix {
        true => name.starts_with(&rule.name),
        false => name == rule.name,
    };
    match rules.iter().find(fits) {
        Some(rule) => rule.becomes.clone(),
        None => name,
    }
}

fn rules<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Vec<Rule>, Error> {
    let mut rules: Vec<Rule> = Vec::new();
    for (raw, becomes) in pairs {
        let lower = raw.trim().to_lowercase();
        let (name, prefix) = match lower.strip_suffix('*') {
            Some(name) => (name, true),
            None => (lower.as_str(), false),
        };
        if name.is_empty() {
            return Err(Error::NoName(raw.to_owned()));
        }
        if becomes.is_empty() || becomes != becomes.trim().to_lowercase() || becomes.contains('|') {
            return Err(Error::NotNormal { name: raw.to_owned(), becomes: becomes.to_owned() });
        }
        if rules.iter().any(|rule| rule.name == name && rule.prefix == prefix) {
            return Err(Error::Twice(raw.to_owned()));
        }
        rules.push(Rule { name: name.to_owned(), prefix, becomes: becomes.to_owned() });
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provider_is_its_last_segment_in_lower_case_without_aliases() {
        let names = NameRules::default();
        for (raw, name) in [
            ("langgenius/openai/openai", "openai"),
            (" OpenAI ", "openai"),
            ("aws-bedrock", "aws"),
            ("langgenius/claude/Claude", "anthropic"),
            ("gemini", "google"),
            ("grok", "xai"),
            ("bedrock", "bedrock"),
            ("", UNKNOWN),
            ("  ", UNKNOWN),
            ("langgenius/", UNKNOWN),
            ("ÀÉ", "àé"),
        ] {
            assert_eq!(names.provider(raw), name, "{raw:?}");
        }
    }

    #[test]
    fn model_keeps_its_slashes() {
        let names = NameRules::default();
        assert_eq!(names.model(" Meta-Llama/Llama-3 "), "meta-llama/llama-3");
        assert_eq!(names.model("\t"), UNKNOWN);
    }

    #[test]
    fn rules_apply_last_and_the_first_match_wins() {
        let names = NameRules::new(
            [("AWS", "amazon"), ("azure*", "microsoft")],
            [("gpt-4o-2024-05-13", "gpt-4o-first"), ("gpt-4o-*", "gpt-4o")],
        )
        .unwrap();
        assert_eq!(names.provider("aws-bedrock"), "amazon");
        assert_eq!(names.provider("langgenius/azure_openai/azure_openai"), "microsoft");
        assert_eq!(names.model("GPT-4o-2024-05-13"), "gpt-4o-first");
        assert_eq!(names.model("gpt-4o-mini"), "gpt-4o");
        assert_eq!(names.model("gpt-4o"), "gpt-4o");
    }

    #[test]
    fn invalid_rule_is_named() {
        let error = |name, becomes| NameRules::new([(name, becomes)], []).unwrap_err().to_string();
        assert!(error("*", "x").contains("empty"));
        for becomes in ["", "X", " x", "a|b"] {
            assert!(error("y", becomes).contains("\"y\""), "{becomes}");
        }
        assert_eq!(NameRules::new([], [("a", "b"), ("A ", "c")]).unwrap_err(), Error::Twice("A ".to_owned()));
    }

    #[test]
    fn normalizing_twice_changes_nothing() {
        let names = NameRules::default();
        for raw in ["langgenius/claude/claude", "AWS-Bedrock", "a/ b", ""] {
            let once = names.provider(raw);
            assert_eq!(names.provider(&once), once);
        }
    }
}
