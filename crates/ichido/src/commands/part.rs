//! A part of a process that stays: what it says of itself, what it is asked, and its work.

use std::pin::Pin;

use crate::admin::{Audience, Probe, Readiness};
use crate::exit::Failure;

/// Ends when the process is asked to end.
pub(super) type Work = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>>;

/// A part that is ready to start.
pub(super) struct Part {
    /// What it does, for the line at the start.
    pub(super) says: String,
    /// What it is asked, and who must know the answer.
    pub(super) probes: Vec<(&'static str, Audience, Probe)>,
    /// Works until the process is asked to end.
    pub(super) work: Work,
}

impl Part {
    /// Its work alone. What the probes hold ends here: a journal that lives on keeps leases, and the ledger waits for them.
    pub(super) fn into_work(self) -> Work {
        self.work
    }

    /// The readiness of a process that has this part as well.
    pub(super) fn asked(&self, readiness: Readiness) -> Readiness {
        let probes = self.probes.iter();
        probes.fold(readiness, |readiness, (name, audience, probe)| {
            readiness.and(name, *audience, probe.clone())
        })
    }
}
