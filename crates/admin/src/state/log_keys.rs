//! How keys are written to the log.

use ichido_serve::Failure;

/// How the keys of events stand in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogKeys {
    /// As what stores call them: a caller's key may be a secret of theirs.
    Hashed,
    /// As callers wrote them.
    Verbatim,
}

impl LogKeys {
    /// Reads the setting.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        match text {
            "hashed" => Ok(Self::Hashed),
            "verbatim" => Ok(Self::Verbatim),
            _ => Err(Failure::usage("claims.log_keys must be \"hashed\" or \"verbatim\"")),
        }
    }
}
