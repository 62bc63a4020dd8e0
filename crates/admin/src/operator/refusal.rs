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
    Several { count: usize },
    /// The lease is good, and the caller did not insist.
    Running,
    /// The claim is not in a state that the word can end.
    Left(Left),
    /// The ledger failed.
    Ledger(Error),
    /// The holder's ledger or the way to it failed.
    Failed(Failure),
}

/// The state in which a claim was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    Absent,
    Running,
    InDoubt,
    Done,
}

const LEFT: [(Left, &str, &str); 4] = [
    (Left::Absent, "absent", "there is no such claim any more"),
    (Left::Running, "running", "it is running and its lease is good"),
    (Left::InDoubt, "in-doubt", "it is in doubt"),
    (Left::Done, "done", "it is done, and a recorded outcome is not changed"),
];

impl Left {
    fn word(self) -> &'static str {
        LEFT[self as usize].1
    }

    fn why(self) -> &'static str {
        LEFT[self as usize].2
    }
}

impl From<CurrentState> for Left {
    fn from(now: CurrentState) -> Self {
        match now {
            CurrentState::Absent => Left::Absent,
            CurrentState::Running => Left::Running,
            CurrentState::InDoubt => Left::InDoubt,
            CurrentState::Done(_) => Left::Done,
        }
    }
}

impl Refusal {
    /// How a command ends that was refused so.
    pub fn about(self, key: &str) -> Failure {
        match self {
            Refusal::NoSuchClaim => Failure::internal(format!(
                "there is no such claim with the key {key:?} (`ichido ledger list --prefix …` shows what there is)"
            )),
            Refusal::Several { count } => Failure::usage(format!(
                "{count} claims have the key {key:?}; say which with --tenant and --route (`ichido ledger list --prefix …` shows them)"
            )),
            Refusal::Running => Failure::internal(format!(
                "{key:?} is running and its lease is good; --force if you know that its holder is gone and nothing happened"
            )),
            Refusal::Left(left) => Failure::internal(format!("{key:?} was left as it is: {}", left.why())),
            Refusal::Ledger(error) => error.into(),
            Refusal::Failed(failure) => failure,
        }
    }

    /// Reads an answer that [`Problem::from`] wrote; nothing if another part of the port wrote it.
    pub(super) fn read(body: &Body) -> Option<Self> {
        Some(match body.code() {
            NO_SUCH_CLAIM => Refusal::NoSuchClaim,
            SEVERAL => Refusal::Several { count: body.extensions.count? },
            RUNNING => Refusal::Running,
            LEFT_AS_IT_IS => Refusal::Left(left(body.extensions.state.as_deref()?)?),
            OUTSIDE_LIMITS | LEDGER_UNAVAILABLE => Refusal::Failed(Failure::usage(body.detail())),
            LEDGER_FAILED => Refusal::Failed(Failure::internal(body.detail())),
            _ => return None,
        })
    }

    /// In a word, for the audit.
    pub fn word(&self) -> &'static str {
        match self {
            Refusal::NoSuchClaim => NO_SUCH_CLAIM,
            Refusal::Several { .. } => SEVERAL,
            Refusal::Running => RUNNING,
            Refusal::Left(_) => LEFT_AS_IT_IS,
            Refusal::Ledger(error) if error.effect() == Effect::Unknown => "perhaps",
            Refusal::Ledger(_) | Refusal::Failed(_) => "failed",
        }
    }
}

const NO_SUCH_CLAIM: &str = "no-such-claim";
const SEVERAL: &str = "several-claims";
const RUNNING: &str = "claim-running";
const LEFT_AS_IT_IS: &str = "left-as-it-is";
const OUTSIDE_LIMITS: &str = "outside-limits";
const LEDGER_UNAVAILABLE: &str = "ledger-unavailable";
const LEDGER_FAILED: &str = "ledger-failed";

fn left(word: &str) -> Option<Left> {
    LEFT.iter().find(|row| row.1 == word).map(|row| row.0)
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let word = refusal.word();
        match refusal {
            Refusal::NoSuchClaim => Problem::new(StatusCode::NOT_FOUND, word, "There is no such claim"),
            Refusal::Several { count } => {
                Problem::new(StatusCode::CONFLICT, word, "Several claims have this key")
                    .detail(format!("{count} claims have this key; say which with tenant and route."))
                    .extensions(Extensions { count: Some(count), ..Extensions::default() })
            }
            Refusal::Running => Problem::new(StatusCode::CONFLICT, word, "The claim is running").detail(
                "Its lease is good; \"force\":true if you know that its holder is gone and nothing happened.",
            ),
            Refusal::Left(left) => Problem::new(StatusCode::CONFLICT, word, "The claim was left as it is")
                .detail(format!("The claim was left as it is: {}.", left.why()))
                .extensions(Extensions { state: Some(left.word().to_owned()), ..Extensions::default() }),
            Refusal::Ledger(error) => of_ledger(error),
            Refusal::Failed(failure) => {
                Problem::new(StatusCode::INTERNAL_SERVER_ERROR, LEDGER_FAILED, "The ledger failed")
                    .detail(failure.to_string())
            }
        }
    }
}

/// The word goes by what the command line would end with, so that it ends alike from afar.
fn of_ledger(error: Error) -> Problem {
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
        Refusal::read(&serde_json::from_slice(&body).unwrap()).unwrap()
    }

    /// A command ends alike, whether its ledger is here or held by another process.
    #[tokio::test]
    async fn a_refusal_ends_a_command_alike_from_afar() {
        let cases: [fn() -> Refusal; 11] = [
            || Refusal::NoSuchClaim,
            || Refusal::Several { count: 3 },
            || Refusal::Running,
            || Refusal::Left(Left::Absent),
            || Refusal::Left(Left::Running),
            || Refusal::Left(Left::InDoubt),
            || Refusal::Left(Left::Done),
            || Error::new(Kind::Unavailable, "looking").into(),
            || Error::new(Kind::Corrupt("broken".to_owned()), "looking").into(),
            || Error::new(Kind::Contended, "looking").into(),
            || LimitError::Empty { what: "key" }.into(),
        ];
        for case in cases {
            let (here, there) = (case().about("k"), sent(case()).await.about("k"));
            assert_eq!((here.to_string(), here.class()), (there.to_string(), there.class()));
        }
    }
}
