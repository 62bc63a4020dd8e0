//! How near duplicates of events are found: the table `similar` of a gateway route and of `[claims]`.

use ichido_http::{Mode, Pointer, SimilarRule};
use ichido_settings::{Invalid, duration};
use ichido_similar::Options;
use schemars::JsonSchema;
use serde::Deserialize;

/// The smallest and largest threshold. Below it, most messages of one kind would be similar.
const THRESHOLDS: std::ops::RangeInclusive<f64> = 0.5..=1.0;

/// The table as it was written.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawSimilar {
    /// JSON pointers to the texts that are compared, such as `/event/text`. Required.
    fields: Vec<String>,
    /// From this similarity on, two texts are near duplicates: 0.5 to 1.
    threshold: f64,
    /// How long a text is remembered: `90s`, `10m`, `6h`, `1d`.
    window: String,
    /// `observe` (near duplicates are reported) or `enforce` (they are not handled).
    mode: String,
    /// How many texts are remembered. Beyond it, the oldest are forgotten.
    #[schemars(range(min = 1, max = 10_000_000))]
    texts_max: u64,
    /// The memory that they may take. Beyond it, the oldest are forgotten.
    #[schemars(range(min = 1_048_576, max = 68_719_476_736_u64))]
    memory_max_bytes: u64,
}

impl Default for RawSimilar {
    fn default() -> Self {
        let options = Options::default();
        Self {
            fields: Vec::new(),
            threshold: options.threshold,
            window: "10m".to_owned(),
            mode: Mode::Observe.as_str().to_owned(),
            texts_max: options.texts_max as u64,
            memory_max_bytes: options.bytes_max as u64,
        }
    }
}

impl RawSimilar {
    /// Checks the table, which is called `name`.
    pub fn check(self, name: &str) -> Result<SimilarRule, Invalid> {
        let field = |field: &str| format!("{name}.{field}");
        if self.fields.is_empty() {
            return Err(Invalid::new(
                field("fields"),
                "is not set; name the texts to compare, such as [\"/event/text\"]",
            ));
        }
        let pointer = |text: &String| -> Result<Pointer, Invalid> {
            text.parse()
                .map_err(|error: ichido_http::ParseError| Invalid::new(field("fields"), error.to_string()))
        };
        if !THRESHOLDS.contains(&self.threshold) {
            let problem = format!("is {}; expected a number from 0.5 to 1", self.threshold);
            return Err(Invalid::new(field("threshold"), problem));
        }
        let mode = self.mode.parse();
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        Ok(SimilarRule {
            fields: self.fields.iter().map(pointer).collect::<Result<_, _>>()?,
            options: Options {
                threshold: self.threshold,
                window: duration(&field("window"), &self.window)?,
                texts_max: count(self.texts_max),
                bytes_max: count(self.memory_max_bytes),
            },
            mode: mode
                .map_err(|error: ichido_http::ParseError| Invalid::new(field("mode"), error.to_string()))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<SimilarRule, String> {
        let raw: RawSimilar = serde_json::from_str(text).unwrap();
        raw.check("similar").map_err(|invalid| invalid.to_string())
    }

    #[test]
    fn each_mistake_is_named() {
        let rule = check(r#"{"fields":["/text"]}"#).unwrap();
        assert_eq!((rule.options, rule.mode), (Options::default(), Mode::Observe));
        for (text, expected) in [
            ("{}", "similar.fields: is not set"),
            (r#"{"fields":["text"]}"#, "similar.fields: \"text\" is not a JSON pointer"),
            (
                r#"{"fields":["/t"],"threshold":0.4}"#,
                "similar.threshold: is 0.4; expected a number from 0.5 to 1",
            ),
            (r#"{"fields":["/t"],"threshold":1.1}"#, "similar.threshold: is 1.1"),
            (r#"{"fields":["/t"],"window":"0m"}"#, "similar.window: is zero"),
            (r#"{"fields":["/t"],"window":"10"}"#, "similar.window: is \"10\""),
            (
                r#"{"fields":["/t"],"mode":"block"}"#,
                "similar.mode: \"block\" is not one of: enforce, observe",
            ),
        ] {
            let error = check(text).unwrap_err();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }
}
