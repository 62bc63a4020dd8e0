//! The rules under test: the real ones, or the real ones with one planted flaw.
//!
//! A check that finds nothing proves little until it has been seen to find something. Each flaw here is a mistake
//! that is easy to make in a backend; for each, a test asserts which promise the checker finds broken.

use ichido_core::rules::{self, Change, Step};
use ichido_core::{Claim, ClaimRequest, Done, Nonce, Record, Settle, Settled, State, Timestamp, Token};

/// Which rules the ledger of the model follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rules {
    /// `ichido_core::rules`, as they are.
    Real,
    /// A lapsed lease is forgotten, so that the next caller gets a fresh grant: the classic lock with a timeout.
    LapseIsFree,
    /// The nonce is not compared: a caller whose reply was lost is its own duplicate.
    NonceIgnored,
    /// Completion compares no token: a zombie overwrites the outcome of the winner.
    CompleteComparesNothing,
    /// Completing again overwrites the first outcome.
    LastOutcomeWins,
    /// Release compares no token: a late release removes the claim of the next holder.
    ReleaseComparesNothing,
    /// The fingerprint is not compared: another request under the same key is taken for a repeat.
    FingerprintIgnored,
    /// Credentials are not compared: another caller's request is taken for a repeat.
    CallerIgnored,
    /// A nonce is granted its claim again even after its holder declared doubt.
    DeclaredDoubtGrantedAgain,
}

impl Rules {
    pub(crate) fn claim(
        self,
        current: Option<&Record>,
        request: &ClaimRequest,
        now: Timestamp,
    ) -> Step<Claim, Record> {
        match self {
            Rules::LapseIsFree => {
                let good =
                    |record: &&Record| !matches!(record.state, State::Running) || now < record.lease_until();
                rules::claim(current.filter(good), request, now)
            }
            Rules::NonceIgnored => {
                let forgotten = current.map(|record| Record { nonce: NOBODY, ..record.clone() });
                rules::claim(forgotten.as_ref(), request, now)
            }
            Rules::FingerprintIgnored => {
                let alike =
                    current.map(|record| Record { fingerprint: request.fingerprint, ..record.clone() });
                rules::claim(alike.as_ref(), request, now)
            }
            Rules::CallerIgnored => {
                let anyone = current.map(|record| Record { caller: request.caller, ..record.clone() });
                rules::claim(anyone.as_ref(), request, now)
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
        word: &Settle,
        now: Timestamp,
    ) -> Step<Settled, Record> {
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
        match (current, word) {
            (Some(record), Settle::Complete(outcome)) if overwrites(record) => {
                let done = Done { outcome: outcome.clone(), completed_at: now };
                let record = Record { state: State::Done(done), ..record.clone() };
                Step { answer: Settled::Applied, change: Change::Put(record) }
            }
            (Some(_), Settle::Release) if self == Rules::ReleaseComparesNothing => {
                Step { answer: Settled::Applied, change: Change::Remove }
            }
            _ => rules::settle(current, token, word, now),
        }
    }
}

/// A nonce that no caller of the model has.
const NOBODY: Nonce = Nonce::from_bytes([0xff; 16]);
