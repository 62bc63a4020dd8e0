//! Why an operator's request was refused: as a response of the admin port, as that response read back, and as the exit
//! of a command.

use http::StatusCode;
use ichido_core::{CurrentState, LimitError};
use ichido_ledger::{Effect, Error, Kind};

use crate::audit_log;
use ichido_core::error_chain;
use ichido_serve::problem::{Body, Extensions};
use ichido_serve::{Failure, Problem};

const NO_SUCH_CLAIM: &str = "no-such-claim";
const NO_SUCH_EVENT: &str = "no-such-event";
const AMBIGUOUS: &str = "several-claims";
const RUNNING: &str = "claim-running";
const NOT_COMPLETED: &str = "claim-not-completed";
const CHANGED: &str = "claim-changed";
const CANNOT_ASK: &str = "cannot-ask";
const LEFT_AS_IT_IS: &str = "left-as-it-is";
const OUTSIDE_LIMITS: &str = "outside-limits";
const UNUSABLE_VALUE: &str = "unusable-value";
const UNSUPPORTED: &str = "unsupported";
const LEDGER_UNAVAILABLE: &str = "ledger-unavailable";
const LEDGER_FAILED: &str = "ledger-failed";
const AUDIT_UNAVAILABLE: &str = "audit-unavailable";
const AUDIT_INCOMPLETE: &str = "audit-incomplete";

const CHANGED_SINCE: &str = "it is no longer the claim that was shown; look at it again";

/// Why an operator's request was refused.
#[derive(Debug)]
pub enum Refusal {
    /// No claim matches.
    NoSuchClaim,
    /// The event is not marked, or the mark that was seen is gone.
    NoSuchEvent,
    /// Several claims match.
    Ambiguous {
        /// How many.
        count: usize,
    },
    /// The lease is valid, and the release was not forced.
    Running,
    /// Only a completed claim can be forgotten. An open one is resolved or released.
    NotCompleted(ClaimState),
    /// The state of the claim does not allow this.
    WrongState(ClaimState),
    /// The claim is not the one that was seen: its holder came back, or there is a newer one.
    Changed,
    /// The service cannot be asked about the claim, or its answer does not allow what was confirmed.
    CannotAsk(String),
    /// The ledger failed.
    Ledger(Error),
    /// The audit log cannot be written. Nothing was done.
    AuditUnavailable(String),
    /// The action was carried out, but the audit log lacks its result.
    AuditIncomplete(String),
    /// The process that holds the ledger failed, or could not be reached.
    Failed(Failure),
}

/// The current state of a claim that was not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimState {
    Absent,
    Running,
    InDoubt,
    Done,
}

impl ClaimState {
    const ALL: [Self; 4] = [Self::Absent, Self::Running, Self::InDoubt, Self::Done];

    fn name(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Running => "running",
            Self::InDoubt => "in-doubt",
            Self::Done => "done",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    fn explanation(self) -> &'static str {
        match self {
            Self::Absent => "the claim no longer exists",
            Self::Running => "it is running with a valid lease",
            Self::InDoubt => "it is in doubt",
            Self::Done => "it is done, and a stored outcome cannot be changed",
        }
    }

    /// Why a claim in this state is not forgotten.
    fn not_forgotten(self) -> String {
        format!(
            "it was not forgotten: {}, and only a completed claim can be forgotten; resolve it once you know whether the effect happened",
            self.explanation()
        )
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
    /// The failure with which a command exits.
    pub fn into_failure(self, key: &str) -> Failure {
        match self {
            Refusal::NoSuchClaim => Failure::internal(format!(
                "no claim has the key {key:?} (`ichido ledger list --prefix …` shows the claims)"
            )),
            Refusal::Ambiguous { count } => Failure::usage(format!(
                "{count} claims have the key {key:?}; select one with --tenant and --route (`ichido ledger list --prefix …` shows them)"
            )),
            Refusal::Running => Failure::internal(format!(
                "{key:?} is running with a valid lease; use --force only if its holder is gone and the effect did not happen"
            )),
            Refusal::NoSuchEvent => Failure::internal(format!(
                "no event has the key {key:?} (`ichido events list --prefix …` shows the events)"
            )),
            Refusal::NotCompleted(state) => {
                Failure::internal(format!("{key:?}: {} (`ichido ledger resolve`)", state.not_forgotten()))
            }
            Refusal::WrongState(state) => {
                Failure::internal(format!("{key:?} was not changed: {}", state.explanation()))
            }
            Refusal::Changed => Failure::internal(format!("{key:?} was not changed: {CHANGED_SINCE}")),
            Refusal::CannotAsk(why) => Failure::internal(format!("{key:?} was not changed: {why}")),
            Refusal::Ledger(error) => error.into(),
            Refusal::AuditUnavailable(detail) => Failure::usage(detail),
            Refusal::AuditIncomplete(detail) => Failure::internal(detail),
            Refusal::Failed(failure) => failure,
        }
    }

    /// The intent of an action cannot be recorded, so nothing is done.
    pub fn not_begun(error: audit_log::Error) -> Self {
        Refusal::AuditUnavailable(format!("{}; nothing was done", error_chain(&error)))
    }

    /// The action was carried out, but its result cannot be recorded.
    pub fn not_recorded(error: &audit_log::Error) -> Self {
        let error = error_chain(error);
        Refusal::AuditIncomplete(format!(
            "the action was carried out, but its result was not recorded: {error}"
        ))
    }

    /// The state of a claim after it was refused to change it, if it is known.
    pub(super) fn state_left(&self, before: &str) -> Option<String> {
        match self {
            Refusal::WrongState(state) | Refusal::NotCompleted(state) => Some(state.name().to_owned()),
            Refusal::Running | Refusal::Changed | Refusal::CannotAsk(_) => Some(before.to_owned()),
            Refusal::NoSuchClaim | Refusal::NoSuchEvent => Some(ClaimState::Absent.name().to_owned()),
            Refusal::Ledger(error) if error.effect() == Effect::None => Some(before.to_owned()),
            Refusal::Ledger(_)
            | Refusal::Ambiguous { .. }
            | Refusal::AuditUnavailable(_)
            | Refusal::AuditIncomplete(_)
            | Refusal::Failed(_) => None,
        }
    }

    /// Reads back a response that [`Problem::from`] wrote. `None` if another part of the port wrote it.
    pub(super) fn from_problem(body: &Body) -> Option<Self> {
        Some(match body.code() {
            NO_SUCH_CLAIM => Refusal::NoSuchClaim,
            NO_SUCH_EVENT => Refusal::NoSuchEvent,
            AMBIGUOUS => Refusal::Ambiguous { count: body.extensions.count? },
            RUNNING => Refusal::Running,
            NOT_COMPLETED => Refusal::NotCompleted(ClaimState::from_name(body.extensions.state.as_deref()?)?),
            LEFT_AS_IT_IS => Refusal::WrongState(ClaimState::from_name(body.extensions.state.as_deref()?)?),
            CHANGED => Refusal::Changed,
            CANNOT_ASK => Refusal::CannotAsk(body.detail().to_owned()),
            AUDIT_UNAVAILABLE => Refusal::AuditUnavailable(body.detail().to_owned()),
            AUDIT_INCOMPLETE => Refusal::AuditIncomplete(body.detail().to_owned()),
            OUTSIDE_LIMITS | UNUSABLE_VALUE | UNSUPPORTED | LEDGER_UNAVAILABLE => {
                Refusal::Failed(Failure::usage(body.detail()))
            }
            LEDGER_FAILED => Refusal::Failed(Failure::internal(body.detail())),
            _ => return None,
        })
    }

    /// The code for the audit log.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Refusal::NoSuchClaim => NO_SUCH_CLAIM,
            Refusal::NoSuchEvent => NO_SUCH_EVENT,
            Refusal::NotCompleted(_) => NOT_COMPLETED,
            Refusal::Ambiguous { .. } => AMBIGUOUS,
            Refusal::Running => RUNNING,
            Refusal::WrongState(_) => LEFT_AS_IT_IS,
            Refusal::Changed => CHANGED,
            Refusal::CannotAsk(_) => CANNOT_ASK,
            Refusal::AuditUnavailable(_) => AUDIT_UNAVAILABLE,
            Refusal::AuditIncomplete(_) => AUDIT_INCOMPLETE,
            Refusal::Ledger(error) if error.effect() == Effect::Unknown => "perhaps",
            Refusal::Ledger(_) | Refusal::Failed(_) => "failed",
        }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let code = refusal.code();
        match refusal {
            Refusal::NoSuchClaim => Problem::new(StatusCode::NOT_FOUND, code, "There is no such claim"),
            Refusal::Ambiguous { count } => {
                Problem::new(StatusCode::CONFLICT, code, "Several claims have this key")
                    .detail(format!("{count} claims have this key; select one with tenant and route."))
                    .extensions(Extensions { count: Some(count), ..Extensions::default() })
            }
            Refusal::Running => Problem::new(StatusCode::CONFLICT, code, "The claim is running").detail(
                "Its lease is valid; set \"force\":true only if its holder is gone and the effect did not happen.",
            ),
            Refusal::NoSuchEvent => Problem::new(StatusCode::NOT_FOUND, code, "There is no such event"),
            Refusal::NotCompleted(state) => {
                Problem::new(StatusCode::CONFLICT, code, "The claim is not completed")
                    .detail(format!("The claim is open: {}.", state.not_forgotten()))
                    .extensions(Extensions { state: Some(state.name().to_owned()), ..Extensions::default() })
            }
            Refusal::WrongState(state) => {
                Problem::new(StatusCode::CONFLICT, code, "The claim was not changed")
                    .detail(format!("The claim was not changed: {}.", state.explanation()))
                    .extensions(Extensions { state: Some(state.name().to_owned()), ..Extensions::default() })
            }
            Refusal::Changed => Problem::new(StatusCode::CONFLICT, code, "The claim has changed")
                .detail(format!("The claim was not changed: {CHANGED_SINCE}.")),
            Refusal::CannotAsk(why) => {
                Problem::new(StatusCode::CONFLICT, code, "The service's answer does not settle the claim").detail(why)
            }
            Refusal::Ledger(error) => ledger_problem(&error),
            Refusal::AuditUnavailable(detail) => {
                Problem::new(StatusCode::SERVICE_UNAVAILABLE, code, "The audit log cannot be written").detail(detail)
            }
            Refusal::AuditIncomplete(detail) => {
                Problem::new(StatusCode::INTERNAL_SERVER_ERROR, code, "The result was not recorded").detail(detail)
            }
            Refusal::Failed(failure) => {
                Problem::new(StatusCode::INTERNAL_SERVER_ERROR, LEDGER_FAILED, "The ledger failed")
                    .detail(failure.to_string())
            }
        }
    }
}

/// The problem matches the exit code of a local command, so that a command exits the same through the admin port.
fn ledger_problem(error: &Error) -> Problem {
    let detail = error_chain(error);
    let problem = match error.kind() {
        Kind::Limit(_) => {
            Problem::new(StatusCode::UNPROCESSABLE_ENTITY, OUTSIDE_LIMITS, "A value is outside its limits")
        }
        Kind::Settings(_) => {
            Problem::new(StatusCode::UNPROCESSABLE_ENTITY, UNUSABLE_VALUE, "A value cannot be used")
        }
        Kind::Unsupported(_) => {
            Problem::new(StatusCode::NOT_IMPLEMENTED, UNSUPPORTED, "The ledger does not support this")
        }
        Kind::Unavailable
        | Kind::Throttled
        | Kind::Timeout
        | Kind::Full { .. }
        | Kind::DataLost(_)
        | Kind::InUse(_)
        | Kind::Schema(_)
        | Kind::Denied(_) => {
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, LEDGER_UNAVAILABLE, "The ledger is not available")
        }
        Kind::Contended | Kind::Corrupt(_) | Kind::Closed => {
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

    use super::*;

    async fn sent(refusal: Refusal) -> Refusal {
        let response = Problem::from(refusal).into_response();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        Refusal::from_problem(&serde_json::from_slice(&body).unwrap()).unwrap()
    }

    /// A command exits the same whether this process or another one holds the ledger.
    #[tokio::test]
    async fn refusal_ends_a_command_the_same_through_the_admin_port() {
        let cases: [fn() -> Refusal; 20] = [
            || Refusal::NoSuchClaim,
            || Refusal::NoSuchEvent,
            || Refusal::NotCompleted(ClaimState::Running),
            || Refusal::NotCompleted(ClaimState::InDoubt),
            || Refusal::Ambiguous { count: 3 },
            || Refusal::Running,
            || Refusal::WrongState(ClaimState::Absent),
            || Refusal::WrongState(ClaimState::Running),
            || Refusal::WrongState(ClaimState::InDoubt),
            || Refusal::WrongState(ClaimState::Done),
            || Error::new(Kind::Unavailable, "looking").into(),
            || Error::new(Kind::Corrupt("broken".to_owned()), "looking").into(),
            || Error::new(Kind::Contended, "looking").into(),
            || Error::new(Kind::Settings("/backup is not empty".to_owned()), "copying").into(),
            || Error::new(Kind::Unsupported("only file: ledgers".to_owned()), "copying").into(),
            || Refusal::Changed,
            || Refusal::CannotAsk("500 is no answer".to_owned()),
            || Refusal::AuditUnavailable("cannot write".to_owned()),
            || Refusal::AuditIncomplete("cannot write".to_owned()),
            || LimitError::Empty { what: "key" }.into(),
        ];
        for case in cases {
            let (here, there) = (case().into_failure("k"), sent(case()).await.into_failure("k"));
            assert_eq!((here.to_string(), here.class()), (there.to_string(), there.class()));
        }
    }
}
