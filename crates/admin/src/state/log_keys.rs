//! How event keys appear in the log.

use ichido_serve::Failure;

/// How event keys appear in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogKeys {
    /// As the index under which stores know them, because a key may be a secret of the caller.
    Hashed,
    /// As the caller wrote them.
    Verbatim,
}

impl LogKeys {
    /// Parses the setting.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        match text {
            "hashed" => Ok(Self::Hashed),
            "verbatim" => Ok(Self::Verbatim),
            _ => Err(Failure::usage("claims.log_keys must be \"hashed\" or \"verbatim\"")),
        }
    }
}
