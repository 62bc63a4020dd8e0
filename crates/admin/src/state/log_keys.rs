//! How keys are written to the log.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How event keys appear in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum LogKeys {
    /// As the hash under which stores know them: a key may be a secret of its caller.
    #[default]
    Hashed,
    /// As callers wrote them.
    Verbatim,
}
