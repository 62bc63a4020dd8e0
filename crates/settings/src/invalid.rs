//! A setting that cannot be used.

/// Which setting is wrong, and why. [`crate::Sources::explain`] adds where its value came from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting}: {problem}")]
pub struct Invalid {
    /// The setting's path, such as `gateway.routes[0].match`.
    pub setting: String,
    /// What is wrong with it and what to write instead. It never contains the value.
    pub problem: String,
}

impl Invalid {
    /// This setting, for this reason.
    pub fn new(setting: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { setting: setting.into(), problem: problem.into() }
    }
}
