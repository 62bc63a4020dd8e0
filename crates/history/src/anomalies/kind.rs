//! The kinds of findings.

use std::fmt;

use serde::{Deserialize, Serialize};

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
