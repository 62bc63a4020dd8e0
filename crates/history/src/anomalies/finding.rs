//! What is reported.

use std::fmt;

use serde::{Deserialize, Serialize};
use url::form_urlencoded;

use super::baseline::Basis;
use super::sentences;
use super::series::Series;

pub(super) const HOUR_MS: u64 = 3_600_000;

/// What is unusual.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Many more or many fewer arrivals than usual.
    Volume,
    /// A larger share of duplicates than usual.
    Duplicates,
    /// Nothing arrives where there is always traffic.
    Silence,
    /// Many claims in doubt.
    InDoubt,
    /// One instance differs from the others.
    Instance,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 5] = [Kind::Volume, Kind::Duplicates, Kind::Silence, Kind::InDoubt, Kind::Instance];

    /// The name in output and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Volume => "volume",
            Kind::Duplicates => "duplicates",
            Kind::Silence => "silence",
            Kind::InDoubt => "in-doubt",
            Kind::Instance => "instance",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

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

/// A finding before it is described.
#[derive(Clone, Copy, Debug)]
pub(super) struct Raw<'a> {
    pub(super) kind: Kind,
    pub(super) series: &'a Series,
    /// The hour, from the first one of the series.
    pub(super) at: usize,
    pub(super) observed: f64,
    pub(super) usual: f64,
    pub(super) evidence: Evidence,
}

/// The numbers that only some sentences need.
#[derive(Clone, Copy, Debug)]
pub(super) enum Evidence {
    Volume(Basis),
    Duplicates { arrivals: u32 },
    Silence { since: usize },
    Doubts,
    DuplicatesOfInstance { arrivals: u32 },
    DoubtsOfInstance { arrivals: u32 },
    ShareOfInstance,
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
