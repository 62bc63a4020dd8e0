//! `[anomalies]`: whether unusual hours are reported, and how soon.

use ichido_settings::Invalid;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[anomalies]` as it was written.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawAnomalies {
    /// Whether `ichido gateway`, `claims` and `run` look for unusual hours in their history, and send notices of them.
    #[schemars(extend("x-env" = "ICHIDO_ANOMALIES_ENABLED"))]
    pub enabled: bool,
    /// How unusual an hour must be. `high` finds more, also more that is harmless.
    pub sensitivity: Sensitivity,
    /// A finding that goes on is reported again only after it was absent for so many hours.
    #[schemars(range(min = 1, max = 168))]
    pub cool_down_hours: u32,
}

impl Default for RawAnomalies {
    fn default() -> Self {
        Self { enabled: true, sensitivity: Sensitivity::Medium, cool_down_hours: 24 }
    }
}

/// How unusual an hour must be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Sensitivity {
    /// Six standard deviations.
    Low,
    /// Four standard deviations.
    #[default]
    Medium,
    /// Three standard deviations.
    High,
}

impl Sensitivity {
    pub(super) fn deviations(self) -> f64 {
        match self {
            Sensitivity::Low => 6.0,
            Sensitivity::Medium => 4.0,
            Sensitivity::High => 3.0,
        }
    }
}

/// How findings are made.
#[derive(Clone, Copy, Debug)]
pub struct AnomalySettings {
    /// Whether a server reports them.
    pub is_enabled: bool,
    /// How unusual an hour must be.
    pub sensitivity: Sensitivity,
    /// How long a finding must be absent before it is reported again.
    pub cool_down_hours: u32,
}

impl RawAnomalies {
    /// Checks the section.
    pub fn check(self) -> Result<AnomalySettings, Invalid> {
        if !(1..=168).contains(&self.cool_down_hours) {
            return Err(Invalid::new("anomalies.cool_down_hours", "must be between 1 and 168"));
        }
        Ok(AnomalySettings {
            is_enabled: self.enabled,
            sensitivity: self.sensitivity,
            cool_down_hours: self.cool_down_hours,
        })
    }
}
