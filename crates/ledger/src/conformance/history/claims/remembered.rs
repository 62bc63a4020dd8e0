//! What the model remembers of a claim.

use ichido_core::{Caller, DoubtReason, Fingerprint, Nonce, Outcome, Record, Token};

use super::super::time_window::Span;

/// A claim as the model remembers it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Kept {
    pub(super) fingerprint: Fingerprint,
    pub(super) caller: Option<Caller>,
    pub(super) nonce: Nonce,
    pub(super) token: Token,
    pub(super) attempt: u32,
    pub(super) renewals: u32,
    pub(super) lease_ms: u64,
    pub(super) retention_ms: u64,
    /// When the lease was granted or renewed.
    pub(super) renewed: Span,
    pub(super) said: Said,
}

/// What was last said of the claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Said {
    Running,
    Doubt(String),
    Done { outcome: Outcome, at: Span },
}

impl Kept {
    pub(super) fn is(&self, record: &Record) -> bool {
        let said = match (&self.said, &record.state) {
            (Said::Running, ichido_core::State::Running) => true,
            (Said::Doubt(reason), ichido_core::State::InDoubt(doubt)) => {
                doubt.reason == DoubtReason::Declared(reason.clone())
            }
            (Said::Done { outcome, .. }, ichido_core::State::Done(done)) => done.outcome == *outcome,
            (Said::Running | Said::Doubt(_) | Said::Done { .. }, _) => false,
        };
        said && (self.nonce, self.token, self.fingerprint) == (record.nonce, record.token, record.fingerprint)
            && self.caller == record.caller
            && (self.attempt, self.renewals) == (record.attempt, record.renewals)
            && (self.lease_ms, self.retention_ms) == (record.lease_ms, record.retention_ms)
    }
}
