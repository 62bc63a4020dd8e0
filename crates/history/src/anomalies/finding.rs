//! What is reported.

use serde::{Deserialize, Serialize};
use url::form_urlencoded;

use super::baseline::HOUR_MS;
use super::evidence::Raw;
use super::kind::Kind;
use super::sentences;
use super::series::Series;

/// Something unusual in one hour.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// What is unusual.
    pub kind: Kind,
    /// The start of the hour, in milliseconds since 1970.
    pub at: u64,
    /// The route.
    pub route: String,
    /// The source, unless the finding is about a whole route or an instance.
    pub source: Option<String>,
    /// The instance that differs.
    pub instance: Option<String>,
    /// What was counted, or a share between 0 and 1.
    pub observed: f64,
    /// What is usual.
    pub usual: f64,
    /// All of it as one sentence.
    pub text: String,
    /// The same in Japanese, for the console.
    #[serde(skip)]
    pub text_ja: String,
    /// The command that shows the hours around it.
    pub command: String,
    /// The page of the console that shows the hour: its path, query and fragment.
    pub page: String,
}

impl Raw<'_> {
    pub(super) fn describe(self, first_hour: u64) -> Finding {
        let Series { route, name, .. } = self.series;
        let at = (first_hour + self.at as u64) * HOUR_MS;
        let is_instance = self.kind == Kind::Instance;
        let subject = (self.kind != Kind::InDoubt).then(|| name.clone());
        let source = subject.clone().filter(|_| !is_instance);
        let instance = subject.filter(|_| is_instance);
        // Decisions before the hour tell as much as those in it.
        let by = if is_instance { "instance" } else { "hour" };
        Finding {
            kind: self.kind,
            at,
            observed: self.observed,
            usual: self.usual,
            text: sentences::english(&self, first_hour, at),
            text_ja: sentences::japanese(&self, first_hour, at),
            command: format!("ichido events history --by {by} --days 2"),
            page: page(at, route, source.as_deref(), instance.as_deref()),
            route: route.clone(),
            source,
            instance,
        }
    }
}

/// The history of one source for as long as its baseline; of a route or an instance, which have many sources, for a week.
fn page(at: u64, route: &str, source: Option<&str>, instance: Option<&str>) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("days", if source.is_some() { "30" } else { "7" }).append_pair("route", route);
    for (name, value) in [("source", source), ("instance", instance)] {
        query.extend_pairs(value.map(|value| (name, value)));
    }
    format!("/history?{}#hour", query.append_pair("at", &at.to_string()).finish())
}
