//! What the model remembers of a claim.

use ichido_core::{Caller, DoubtReason, Fingerprint, Nonce, Outcome, Record, Token};

use super::super::time_window::TimeWindow;

/// A claim as the model remembers it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Remembered {
    pub(super) fingerprint: Fingerprint,
    pub(super) caller: Option<Caller>,
    pub(super) nonce: Nonce,
    pub(super) token: Token,
    pub(super) attempt: u32,
    pub(super) renewals: u32,
    pub(super) lease_ms: u64,
    pub(super) retention_ms: u64,
    /// When the lease was granted or renewed.
    pub(super) renewed: TimeWindow,
    pub(super) state: RememberedState,
}

/// The last recorded state of the claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum RememberedState {
    Running,
    Doubt(String),
    Done { outcome: Outcome, at: TimeWindow },
}

impl Remembered {
    pub(super) fn is(&self, record: &Record) -> bool {
        let state = match (&self.state, &record.state) {
            (RememberedState::Running, ichido_core::State::Running) => true,
            (RememberedState::Doubt(reason), ichido_core::State::InDoubt(doubt)) => {
                doubt.reason == DoubtReason::Declared(reason.clone())
            }
            (RememberedState::Done { outcome, .. }, ichido_core::State::Done(done)) => {
                done.outcome == *outcome
            }
            (RememberedState::Running | RememberedState::Doubt(_) | RememberedState::Done { .. }, _) => false,
        };
        state
            && (self.nonce, self.token, self.fingerprint) == (record.nonce, record.token, record.fingerprint)
            && self.caller == record.caller
            && (self.attempt, self.renewals) == (record.attempt, record.renewals)
            && (self.lease_ms, self.retention_ms) == (record.lease_ms, record.retention_ms)
    }
}
