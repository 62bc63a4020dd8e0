//! The admin port: is the process alive, is it ready, what does it count; the claim API ([`api`]), and an operator's view
//! of the claims.
//!
//! Whoever reaches this port may end doubts and give keys back, so it is on loopback, or demands a token. A browser on
//! the same machine is no operator: calls under a foreign name or from a foreign page are refused ([`gate`]).
//!
//! A process binds first ([`Bound::bind`]), opens its ledger under [`Bound::reach`], so that `ichido ledger …` finds the
//! port through the store, and then serves ([`Bound::serve`]).

mod api;
mod claims;
pub mod console;
mod gate;
mod health;
mod listen;
mod object;
mod openapi;
pub mod operator;
mod token;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRef};
use axum::middleware::map_response;
use axum::routing::{get, post};
use ichido_ledger::Ledger;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio_util::task::TaskTracker;

pub use self::api::Api;
pub use self::gate::{Gate, HOLDER};
pub use self::listen::{Bound, Peer};
pub use self::token::{Access, AdminToken, TOKEN_VARIABLE};
use crate::operator::{Local, Refusal, Said, Which, Word};
use ichido_serve::Failure;
use ichido_serve::problem::{self, Body, Facts};
use ichido_serve::{Problem, Readiness, Verdict, metrics};

/// The target of the log lines that record what operators did.
pub const AUDIT: &str = "ichido::audit";

/// How the keys of events stand in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogKeys {
    /// As what stores call them: a caller's key may be a secret of theirs.
    Hashed,
    /// As callers wrote them.
    Verbatim,
}

impl LogKeys {
    /// Reads the setting.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        match text {
            "hashed" => Ok(Self::Hashed),
            "verbatim" => Ok(Self::Verbatim),
            _ => Err(Failure::usage("claims.log_keys must be \"hashed\" or \"verbatim\"")),
        }
    }
}

/// The largest body that an operator sends.
const BODY_BYTES: usize = 1024 * 1024;
/// How long a body may take to arrive.
pub const BODY_PATIENCE: Duration = Duration::from_secs(30);

/// What an admin port serves.
#[derive(Debug)]
pub struct Admin {
    /// The ledger that operators look after.
    pub ledger: Ledger,
    /// The claim API, whose ledger may have a fallback.
    pub api: Api,
    /// What `/readyz` asks.
    pub readiness: Readiness,
    /// What `/metrics` prints.
    pub meters: PrometheusHandle,
    /// What the console shows besides.
    pub console: console::Parts,
}

/// Alive, ready, and what was counted: what every admin port tells.
#[derive(Clone, Debug)]
pub struct Health {
    /// What `/readyz` asks.
    pub readiness: Readiness,
    /// What `/metrics` prints.
    pub meters: PrometheusHandle,
}

impl FromRef<Served> for Health {
    fn from_ref(served: &Served) -> Self {
        Self { readiness: served.admin.readiness.clone(), meters: served.admin.meters.clone() }
    }
}

/// What the handlers share.
#[derive(Clone, Debug)]
pub struct Served {
    pub admin: Arc<Admin>,
    /// Actions that are under way: they are waited for at the end.
    pub actions: TaskTracker,
}

impl Served {
    pub fn operator(&self) -> Local {
        Local(self.admin.ledger.clone())
    }

    /// Takes an operator's word on a claim in doubt.
    pub async fn resolve(&self, peer: Peer, which: Which, word: Word) -> Result<Said, Refusal> {
        let operator = self.operator();
        self.to_the_end(async move {
            let action = match word {
                Word::Done(_) => "resolve as done",
                Word::Absent => "resolve as absent",
            };
            let found = operator.to_resolve(&which).await;
            let index = claims::index_of(&which, &found);
            let said = match found {
                Ok(found) => operator.resolve_found(found, &word).await,
                Err(refusal) => Err(refusal),
            };
            claims::audit(peer, action, &index, &said);
            said
        })
        .await
    }

    /// Gives a key back.
    pub async fn release(&self, peer: Peer, which: Which, force: bool) -> Result<Said, Refusal> {
        let operator = self.operator();
        self.to_the_end(async move {
            let action = if force { "release by force" } else { "release" };
            let found = operator.to_release(&which).await;
            let index = claims::index_of(&which, &found);
            let said = match found {
                Ok(found) => operator.release_found(found, force).await,
                Err(refusal) => Err(refusal),
            };
            claims::audit(peer, action, &index, &said);
            said
        })
        .await
    }

    /// Carries an action out to its end and its line in the audit, also if the caller hangs up.
    async fn to_the_end<T: Send + 'static>(
        &self,
        action: impl Future<Output = Result<T, Refusal>> + Send + 'static,
    ) -> Result<T, Refusal> {
        self.actions.spawn(action).await.unwrap_or_else(|error| {
            tracing::error!(%error, "an action broke off");
            Err(Refusal::Failed(Failure::internal("the action broke off")))
        })
    }
}

/// The paths of a process that has no ledger.
fn health_router(health: Health) -> Router {
    Router::new()
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(health::metrics))
        .fallback(problem::no_such_page)
        .method_not_allowed_fallback(problem::no_such_method)
        .with_state(health)
}

fn router(served: Served) -> Router {
    Router::new()
        .route("/v1/events/check", post(api::check))
        .route("/v1/claims", get(claims::list).post(api::claim))
        .route("/v1/claims/renew", post(api::renew))
        .route("/v1/claims/complete", post(api::complete))
        .route("/v1/claims/release", post(api::release))
        .route("/v1/claims/doubt", post(api::doubt))
        .route("/v1/claims/one", get(claims::one))
        .route("/v1/claims/resolve", post(claims::resolve))
        .route("/v1/claims/release-by-operator", post(claims::release))
        .route("/v1/ledger/sweep", post(claims::sweep))
        .route("/v1/ledger/stats", get(claims::stats))
        .route("/v1/ledger/capabilities", get(claims::capabilities))
        .layer(map_response(metrics::count_error))
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(health::metrics))
        .route("/openapi.json", get(openapi::described))
        .fallback(problem::no_such_page)
        .method_not_allowed_fallback(problem::no_such_method)
        .layer(DefaultBodyLimit::max(BODY_BYTES))
        .with_state(served)
}
