//! The control question: does the question find an effect that is known to have happened?
//!
//! A mistyped path, a service that is being deployed, or a load balancer without a service all answer 404, to everything.
//! So before `absent` is believed, the same question is asked about a completed request of the same route, whose stored
//! response was a success. If the service does not find that one either, its answer is worth nothing.

use ichido_core::{Key, Outcome, Scope, State};
use ichido_http::{Answer, AskService, StoredResponse};
use ichido_ledger::{Ledger, Query, StateName};

use super::questions;

/// Pages of completed claims that are searched for one of the same route, and claims on each.
const PAGES_MAX: usize = 5;
const PAGE: usize = 200;
/// Completed claims that are asked about. What they did may have been deleted since.
const ASKED_MAX: usize = 3;

/// What the control question showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// The service finds an effect that is known to have happened.
    Found,
    /// It does not.
    NotFound,
    /// There is no completed request to ask about.
    Nothing,
}

impl Control {
    /// Its name in JSON.
    pub(super) fn name(self) -> &'static str {
        match self {
            Control::Found => "found",
            Control::NotFound => "not-found",
            Control::Nothing => "nothing",
        }
    }

    /// Why `absent` is not believed.
    pub(crate) fn why_not(self) -> &'static str {
        match self {
            Control::Found => "",
            Control::NotFound => "it does not find a completed request of the same route either",
            Control::Nothing => "no completed request of the same route shows that the question works",
        }
    }

    /// What an operator should know.
    pub(super) fn caution(self) -> &'static str {
        match self {
            Control::Found => "",
            Control::NotFound => {
                ". Careful: the service does not find a completed request of this route either, so its answer may mean nothing"
            }
            Control::Nothing => ". Careful: no completed request of this route shows that the question works",
        }
    }
}

/// Asks about completed requests with the same scope, until the service finds one.
pub(crate) async fn control(ledger: &Ledger, service: &dyn AskService, doubtful: &Key) -> Control {
    let mut asked = 0;
    let mut query = Query { state: Some(StateName::Done), prefix: None, limit: PAGE, cursor: None };
    for _ in 0..PAGES_MAX {
        let Ok(page) = ledger.list(&query).await else { break };
        let scope = doubtful.scope();
        for claim in
            page.claims.iter().filter(|claim| claim.route == scope.route && claim.tenant == scope.tenant)
        {
            let Ok(key) = Key::new(Scope::new(&claim.tenant, &claim.route), claim.key.clone()) else {
                continue;
            };
            if !is_success(ledger, &key).await {
                continue;
            }
            let found = questions::ask(service, &key).await;
            if found.is_ok_and(|found| matches!(found.answer, Answer::Done(_))) {
                return Control::Found;
            }
            asked += 1;
            if asked == ASKED_MAX {
                return Control::NotFound;
            }
        }
        query.cursor = page.cursor;
        if query.cursor.is_none() {
            break;
        }
    }
    if asked > 0 { Control::NotFound } else { Control::Nothing }
}

/// Whether the stored response of a request says that it did what it was asked to.
async fn is_success(ledger: &Ledger, key: &Key) -> bool {
    let Ok(Some(record)) = ledger.get(key).await else { return false };
    let State::Done(done) = &record.state else { return false };
    match &done.outcome {
        Outcome::Kept(bytes) => {
            StoredResponse::read(bytes).is_ok_and(|response| response.status.is_success())
        }
        Outcome::Tombstone(_) => false,
    }
}
