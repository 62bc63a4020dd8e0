//! A part of a process that stays: what it says of itself, what it is asked, and its work.

use std::pin::Pin;

use crate::{Audience, Failure, Probe, Readiness};

/// Ends when the process is asked to end.
pub type Work = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>>;

/// A part that is ready to start.
pub struct Component {
    /// What it does, for the line at the start.
    pub says: String,
    /// What it is asked, and who must know the answer.
    pub probes: Vec<(&'static str, Audience, Probe)>,
    /// Works until the process is asked to end.
    pub work: Work,
}

impl Component {
    /// Its work alone. What the probes hold ends here: a journal that lives on keeps leases, and the ledger waits for them.
    pub fn into_work(self) -> Work {
        self.work
    }

    /// The readiness of a process that has this part as well.
    pub fn asked(&self, readiness: Readiness) -> Readiness {
        let probes = self.probes.iter();
        probes.fold(readiness, |readiness, (name, audience, probe)| {
            readiness.and(name, *audience, probe.clone())
        })
    }
}
