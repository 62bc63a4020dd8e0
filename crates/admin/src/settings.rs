//! `[admin]`, `[claims]` and `[console]`: where the admin port listens, who may use it and what it shows.

use ichido_settings::Secret;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Bodies, LogKeys};

/// `[admin]` as it was written.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawAdmin {
    /// Where the admin port of `ichido gateway`, `run` and `meter` listens, or `off`. Default: `127.0.0.1:9090`.
    #[schemars(extend("x-env" = "ICHIDO_ADMIN_LISTEN"))]
    pub listen: Option<String>,
    /// The token that operators and callers of the claim API present. Required if the port is not on loopback.
    #[schemars(extend("x-env" = "ICHIDO_ADMIN_TOKEN", "x-env-only" = true, "x-never-empty" = true))]
    pub token: Option<Secret>,
    /// A second token, which opens the console and the metrics for reading.
    #[schemars(extend("x-env" = "ICHIDO_ADMIN_READ_TOKEN", "x-env-only" = true, "x-never-empty" = true))]
    pub read_token: Option<Secret>,
}

/// `[claims]` as it was written.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawClaims {
    /// How event keys appear in the log.
    #[schemars(extend("x-env" = "ICHIDO_CLAIMS_LOG_KEYS"))]
    pub log_keys: LogKeys,
}

/// `[console]` as it was written.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawConsole {
    /// Whether pages show stored responses and records.
    #[schemars(extend("x-env" = "ICHIDO_CONSOLE_BODIES"))]
    pub bodies: Bodies,
}
