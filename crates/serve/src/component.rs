//! A component: a part of a process that runs until the process is asked to stop (gateway, meter, sender, export).

use std::pin::Pin;

use crate::failure::Failure;
use crate::readiness::{Audience, Probe, Readiness};

/// The work of a component. It finishes when the process is asked to stop.
pub type Work = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>>;

/// A component that is ready to start.
pub struct Component {
    /// What the component does, for the start-up line.
    pub summary: String,
    /// The readiness probes of the component.
    pub probes: Vec<(&'static str, Audience, Probe)>,
    /// Runs until the process is asked to stop.
    pub work: Work,
}

impl Component {
    /// Returns the work and drops the probes. A probe may hold the completion journal, which keeps leases that the ledger
    /// waits for when it closes.
    pub fn into_work(self) -> Work {
        self.work
    }

    /// Adds the probes of this component to `readiness`.
    pub fn add_probes(&self, readiness: Readiness) -> Readiness {
        let probes = self.probes.iter();
        probes.fold(readiness, |readiness, (name, audience, probe)| {
            readiness.with(name, *audience, probe.clone())
        })
    }
}
