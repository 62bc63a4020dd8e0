//! Why an operator's call was not carried out, in the three forms it takes: an answer of the admin port, that answer
//! read again, and the end of a command.

use http::StatusCode;
use ichido_core::{CurrentState, LimitError};
use ichido_ledger::{Effect, Error};

use ichido_core::error_chain;
use ichido_serve::problem::{Body, Extensions};
use ichido_serve::{ExitClass, Failure, Problem};

/// Why not.
#[derive(Debug)]
pub enum Refusal {
    /// No claim is meant by that.
    NoSuchClaim,
    /// Several claims are meant.
    Ambiguous { count: usize },
    /// The lease is good, and the caller did not insist.
    Running,
    /// The claim is not in a state that the word can end.
    WrongState(ClaimState),
    /// The ledger failed.
    Ledger(Error),
    /// The holder's ledger or the way to it failed.
    Failed(Failure),
}

/// The state in which a claim was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimState {
    Absent,
    Running,
    InDoubt,
    Done,
}

const STATES: [(ClaimState, &str, &str); 4] = [
    (ClaimState::Absent, "absent", "there is no such claim any more"),
    (ClaimState::Running, "running", "it is running and its lease is good"),
    (ClaimState::InDoubt, "in-doubt", "it is in doubt"),
    (ClaimState::Done, "done", "it is done, and a recorded outcome is not changed"),
];

impl ClaimState {
    fn name(self) -> &'static str {
        STATES[self as usize].1
    }

    fn explanation(self) -> &'static str {
        STATES[self as usize].2
    }
}

impl From<CurrentState> for ClaimState {
    fn from(now: CurrentState) -> Self {
        match now {
            CurrentState::Absent => ClaimState::Absent,
            CurrentState::Running => ClaimState::Running,
            CurrentState::InDoubt => ClaimState::InDoubt,
            CurrentState::Done(_) => ClaimState::Done,
        }
    }
}

impl Refusal {
    /// How a command ends that was refused so.
    pub fn into_failure(self, key: &str) -> Failure {
        match self {
            Refusal::NoSuchClaim => Failure::internal(format!(
                "there is no such claim with the key {key:?} (`ichido ledger list --prefix …` shows what there is)"
            )),
            Refusal::Ambiguous { count } => Failure::usage(format!(
                "{count} claims have the key {key:?}; say which with --tenant and --route (`ichido ledger list --prefix …` shows them)"
            )),
            Refusal::Running => Failure::internal(format!(
                "{key:?} is running and its lease is good; --force if you know that its holder is gone and nothing happened"
            )),
            Refusal::WrongState(state) => {
                Failure::internal(format!("{key:?} was left as it is: {}", state.explanation()))
            }
            Refusal::Ledger(error) => error.into(),
            Refusal::Failed(failure) => failure,
        }
    }

    /// Reads an answer that [`Problem::from`] wrote; nothing if another part of the port wrote it.
    pub(super) fn from_problem(body: &Body) -> Option<Self> {
        Some(match body.code() {
            NO_SUCH_CLAIM => Refusal::NoSuchClaim,
            AMBIGUOUS => Refusal::Ambiguous { count: body.extensions.count? },
            RUNNING => Refusal::Running,
            LEFT_AS_IT_IS => Refusal::WrongState(state_named(body.extensions.state.as_deref()?)?),
            OUTSIDE_LIMITS | LEDGER_UNAVAILABLE => Refusal::Failed(Failure::usage(body.detail())),
            LEDGER_FAILED => Refusal::Failed(Failure::internal(body.detail())),
            _ => return None,
        })
    }

    /// In a word, for the audit.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Refusal::NoSuchClaim => NO_SUCH_CLAIM,
            Refusal::Ambiguous { .. } => AMBIGUOUS,
            Refusal::Running => RUNNING,
            Refusal::WrongState(_) => LEFT_AS_IT_IS,
            Refusal::Ledger(error) if error.effect() == Effect::Unknown => "perhaps",
            Refusal::Ledger(_) | Refusal::Failed(_) => "failed",
        }
    }
}

const NO_SUCH_CLAIM: &str = "no-such-claim";
const AMBIGUOUS: &str = "several-claims";
const RUNNING: &str = "claim-running";
const LEFT_AS_IT_IS: &str = "left-as-it-is";
const OUTSIDE_LIMITS: &str = "outside-limits";
const LEDGER_UNAVAILABLE: &str = "ledger-unavailable";
const LEDGER_FAILED: &str = "ledger-failed";

fn state_named(name: &str) -> Option<ClaimState> {
    STATES.iter().find(|row| row.1 == name).map(|row| row.0)
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let code = refusal.code();
        match refusal {
            Refusal::NoSuchClaim => Problem::new(StatusCode::NOT_FOUND, code, "There is no such claim"),
            Refusal::Ambiguous { count } => {
                Problem::new(StatusCode::CONFLICT, code, "Several claims have this key")
                    .detail(format!("{count} claims have this key; say which with tenant and route."))
                    .extensions(Extensions { count: Some(count), ..Extensions::default() })
            }
            Refusal::Running => Problem::new(StatusCode::CONFLICT, code, "The claim is running").detail(
                "Its lease is good; \"force\":true if you know that its holder is gone and nothing happened.",
            ),
            Refusal::WrongState(state) => {
                Problem::new(StatusCode::CONFLICT, code, "The claim was left as it is")
                    .detail(format!("The claim was left as it is: {}.", state.explanation()))
                    .extensions(Extensions { state: Some(state.name().to_owned()), ..Extensions::default() })
            }
            Refusal::Ledger(error) => ledger_problem(error),
            Refusal::Failed(failure) => {
                Problem::new(StatusCode::INTERNAL_SERVER_ERROR, LEDGER_FAILED, "The ledger failed")
                    .detail(failure.to_string())
            }
        }
    }
}

/// The word goes by what the command line would end with, so that it ends alike from afar.
fn ledger_problem(error: Error) -> Problem {
    let detail = error_chain(&error);
    let limit = matches!(error.kind(), ichido_ledger::Kind::Limit(_));
    let problem = match Failure::from(error).class() {
        ExitClass::Usage if limit => {
            Problem::new(StatusCode::UNPROCESSABLE_ENTITY, OUTSIDE_LIMITS, "A value is outside its limits")
        }
        ExitClass::Usage => {
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, LEDGER_UNAVAILABLE, "The ledger cannot be used now")
        }
        // The last two are not a ledger's.
        ExitClass::Internal | ExitClass::Undelivered | ExitClass::Failed => {
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, LEDGER_FAILED, "The ledger failed")
        }
    };
    problem.detail(detail)
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Refusal::Ledger(error)
    }
}

impl From<LimitError> for Refusal {
    fn from(error: LimitError) -> Self {
        Refusal::Ledger(error.into())
    }
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse;
    use http_body_util::BodyExt;
    use ichido_ledger::Kind;

    use super::*;

    async fn sent(refusal: Refusal) -> Refusal {
        let response = Problem::from(refusal).into_response();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        Refusal::from_problem(&serde_json::from_slice(&body).unwrap()).unwrap()
    }

    /// A command ends alike, whether its ledger is here or held by another process.
    #[tokio::test]
    async fn a_refusal_ends_a_command_alike_from_afar() {
        let cases: [fn() -> Refusal; 11] = [
            || Refusal::NoSuchClaim,
            || Refusal::Ambiguous { count: 3 },
            || Refusal::Running,
            || Refusal::WrongState(ClaimState::Absent),
            || Refusal::WrongState(ClaimState::Running),
            || Refusal::WrongState(ClaimState::InDoubt),
            || Refusal::WrongState(ClaimState::Done),
            || Error::new(Kind::Unavailable, "looking").into(),
            || Error::new(Kind::Corrupt("broken".to_owned()), "looking").into(),
            || Error::new(Kind::Contended, "looking").into(),
            || LimitError::Empty { what: "key" }.into(),
        ];
        for case in cases {
            let (here, there) = (case().into_failure("k"), sent(case()).await.into_failure("k"));
            assert_eq!((here.to_string(), here.class()), (there.to_string(), there.class()));
        }
    }
}
