//! The rules under test: the real ones, or the real ones with one deliberate flaw.
//!
//! A check that finds nothing proves little until it has been shown to find something. Each flaw is a mistake that is easy
//! to make in a backend. For each, a test asserts which promise the checker finds broken.

use ichido_core::rules::{self, Change, Decision};
use ichido_core::{Claim, ClaimRequest, Done, Nonce, Record, Settle, Settled, State, Timestamp, Token};

/// The rules that the ledger of the model follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rules {
    /// `ichido_core::rules`, unchanged.
    Real,
    /// A lapsed lease is removed, and the next caller gets a new grant: the classic lock with a timeout.
    LapseIsFree,
    /// The nonce is not compared: a caller whose reply was lost blocks itself.
    NonceIgnored,
    /// Completion does not compare the token: a zombie overwrites the outcome of the winner.
    CompleteComparesNothing,
    /// A second completion overwrites the first outcome.
    LastOutcomeWins,
    /// Release does not compare the token: a late release removes the claim of the next holder.
    ReleaseComparesNothing,
    /// The fingerprint is not compared: a different request with the same key is taken for a retry.
    FingerprintIgnored,
    /// Callers are not compared: the request of a different caller is taken for a retry.
    CallerIgnored,
    /// A nonce is granted its claim again even after its holder has declared it in doubt.
    DeclaredDoubtGrantedAgain,
}

impl Rules {
    pub(crate) fn claim(
        self,
        current: Option<&Record>,
        request: &ClaimRequest,
        now: Timestamp,
    ) -> Decision<Claim, Record> {
        match self {
            Rules::LapseIsFree => {
                let is_valid =
                    |record: &&Record| !matches!(record.state, State::Running) || now < record.lease_until();
                rules::claim(current.filter(is_valid), request, now)
            }
            Rules::NonceIgnored => {
                let without_nonce = current.map(|record| Record { nonce: UNUSED_NONCE, ..record.clone() });
                rules::claim(without_nonce.as_ref(), request, now)
            }
            Rules::FingerprintIgnored => {
                let same_request =
                    current.map(|record| Record { fingerprint: request.fingerprint, ..record.clone() });
                rules::claim(same_request.as_ref(), request, now)
            }
            Rules::CallerIgnored => {
                let same_caller = current.map(|record| Record { caller: request.caller, ..record.clone() });
                rules::claim(same_caller.as_ref(), request, now)
            }
            Rules::DeclaredDoubtGrantedAgain => {
                let undeclared = current.map(|record| match &record.state {
                    State::InDoubt(_) => Record { state: State::Running, ..record.clone() },
                    State::Running | State::Done(_) => record.clone(),
                });
                rules::claim(undeclared.as_ref(), request, now)
            }
            Rules::Real
            | Rules::CompleteComparesNothing
            | Rules::LastOutcomeWins
            | Rules::ReleaseComparesNothing => rules::claim(current, request, now),
        }
    }

    pub(crate) fn settle(
        self,
        current: Option<&Record>,
        token: Token,
        action: &Settle,
        now: Timestamp,
    ) -> Decision<Settled, Record> {
        let overwrites = |record: &Record| match self {
            Rules::CompleteComparesNothing => record.token != token,
            Rules::LastOutcomeWins => record.token == token,
            Rules::Real
            | Rules::LapseIsFree
            | Rules::NonceIgnored
            | Rules::ReleaseComparesNothing
            | Rules::FingerprintIgnored
            | Rules::CallerIgnored
            | Rules::DeclaredDoubtGrantedAgain => false,
        };
        match (current, action) {
            (Some(record), Settle::Complete(outcome)) if overwrites(record) => {
                let done = Done { outcome: outcome.clone(), completed_at: now };
                let record = Record { state: State::Done(done), ..record.clone() };
                Decision { result: Settled::Applied, change: Change::Put(record) }
            }
            (Some(_), Settle::Release) if self == Rules::ReleaseComparesNothing => {
                Decision { result: Settled::Applied, change: Change::Remove }
            }
            _ => rules::settle(current, token, action, now),
        }
    }
}

/// A nonce that no caller of the model has.
const UNUSED_NONCE: Nonce = Nonce::from_bytes([0xff; 16]);
