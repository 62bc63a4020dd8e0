//! What is reported.

use std::fmt;

use serde::Serialize;

use super::baseline::Basis;
use super::series::Series;

const HOUR_MS: u64 = 3_600_000;

/// What is unusual.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
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
#[derive(Clone, Debug, PartialEq, Serialize)]
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
    /// The command that shows the hours around it.
    pub command: String,
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
        // Decisions before the hour tell as much as those in it.
        let by = if is_instance { "instance" } else { "hour" };
        Finding {
            kind: self.kind,
            at,
            route: route.clone(),
            source: subject.clone().filter(|_| !is_instance),
            instance: subject.filter(|_| is_instance),
            observed: self.observed,
            usual: self.usual,
            text: self.sentence(first_hour, at),
            command: format!("ichido events history --by {by} --days 2"),
        }
    }

    fn sentence(&self, first_hour: u64, at: u64) -> String {
        let Series { route, name, .. } = self.series;
        let (hour, observed, usual) = (hour(at), number(self.observed), number(self.usual));
        let (share, usual_share) = (percent(self.observed), percent(self.usual));
        let source = match name.as_str() {
            "" => format!("{route:?}"),
            name => format!("source {name:?} on {route:?}"),
        };
        match self.evidence {
            Evidence::Volume(basis) => {
                let when = match basis {
                    Basis::HourOfWeek => "at this hour of the week",
                    Basis::HourOfDay => "at this hour of the day",
                    Basis::Overall => "in an hour",
                };
                format!("{source} had {observed} arrivals in the hour from {hour}; {usual} are usual {when}")
            }
            Evidence::Duplicates { arrivals } => format!(
                "{share} of {arrivals} arrivals from {source} in the hour from {hour} were duplicates; {usual_share} are usual, \
                 and a bot that answers too late causes more"
            ),
            Evidence::Silence { since } => format!(
                "nothing arrived from {source} since {}; {usual} arrivals are usual in that time",
                self::hour((first_hour + since as u64) * HOUR_MS)
            ),
            Evidence::Doubts => format!(
                "{observed} decisions on {route:?} in the hour from {hour} found a claim in doubt; {usual} are usual in an hour"
            ),
            Evidence::DuplicatesOfInstance { arrivals } => format!(
                "{share} of {arrivals} arrivals on {route:?} at instance {name:?} in the hour from {hour} were duplicates; \
                 {usual_share} at the other instances"
            ),
            Evidence::DoubtsOfInstance { arrivals } => format!(
                "{share} of {arrivals} arrivals on {route:?} at instance {name:?} in the hour from {hour} were in doubt; \
                 {usual_share} at the other instances"
            ),
            Evidence::ShareOfInstance => format!(
                "instance {name:?} got {observed} arrivals on {route:?} in the hour from {hour}; its usual share would be {usual}"
            ),
        }
    }
}

fn hour(at_ms: u64) -> String {
    let at = i64::try_from(at_ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    at.map_or_else(|| "?".to_owned(), |at| at.strftime("%Y-%m-%dT%H:%MZ").to_string())
}

fn number(value: f64) -> String {
    if value < 10.0 && value.fract() != 0.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

fn percent(share: f64) -> String {
    format!("{} %", number(share * 100.0))
}
