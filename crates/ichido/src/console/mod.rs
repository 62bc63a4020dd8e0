//! The console: pages on the admin port for people who look after a ledger and its deliveries.
//!
//! Pages are made on the server and work without a script; one small script keeps the overview live. Nothing is fetched
//! from elsewhere. Who may come in is the gate's business ([`crate::admin`]); here every form brings back a word that
//! only our pages know ([`form`]), and every page forbids what it does not need ([`page`]).
//!
//! A page asks for nothing that grows with the store: lists go by cursors, and what must be counted is counted beside
//! the pages ([`sampler`], [`shelf`]).

mod assets;
mod batch;
mod claim;
mod claims;
mod delivery;
pub(crate) mod desk;
mod figures;
mod form;
mod lang;
mod live;
mod overview;
mod page;
mod plot;
mod sampler;
mod session;
mod shelf;
mod sign_in;
mod words;

use std::sync::Arc;

use axum::Router;
use axum::response::Response;
use axum::routing::{get, post};
use http::{Method, Request, header};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use self::desk::Desk;
use self::sampler::Sampler;
pub(crate) use self::session::{Sessions, Visitor};
use crate::admin::{AdminToken, Served};

/// What the console shows besides the ledger.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    pub(crate) bodies: Bodies,
    /// The way to the daemon that delivers, if this process is one.
    pub(crate) desk: Option<Desk>,
}

/// Whether pages show what callers stored and sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Bodies {
    #[default]
    Masked,
    Shown,
}

/// What the pages share.
#[derive(Clone, Debug)]
pub(crate) struct Console {
    served: Served,
    token: Option<AdminToken>,
    sessions: Sessions,
    sampler: Arc<Sampler>,
    watchers: Arc<Semaphore>,
    tries: Arc<Semaphore>,
    stop: CancellationToken,
}

impl Console {
    /// A console that gathers what it shows until `stop`.
    pub(crate) fn start(
        served: Served,
        token: Option<AdminToken>,
        sessions: Sessions,
        stop: CancellationToken,
    ) -> Self {
        let sampler = Sampler::start(served.admin.clone(), stop.clone());
        let (watchers, tries) = (Semaphore::new(live::MOST), Semaphore::new(sign_in::TRIES));
        Self { served, token, sessions, sampler, watchers: watchers.into(), tries: tries.into(), stop }
    }

    pub(crate) fn routes(self) -> Router {
        Router::new()
            .route("/", get(overview::overview))
            .route("/live", get(live::live))
            .route("/claims", get(claims::claims))
            .route("/claims/one", get(claim::claim))
            .route("/claims/say", get(claim::confirm).post(claim::say))
            .route("/delivery", get(delivery::delivery))
            .route("/delivery/batch", get(batch::batch))
            .route("/delivery/resend", get(batch::confirm).post(batch::resend))
            .route("/sign-in", get(sign_in::page).post(sign_in::sign_in))
            .route("/sign-out", post(sign_in::sign_out))
            .route("/language", post(sign_in::language))
            .route(&format!("{}{{name}}", assets::PATH), get(assets::asset))
            .with_state(self)
    }

    fn desk(&self) -> Option<&Desk> {
        self.served.admin.console.desk.as_ref()
    }

    fn bodies(&self) -> Bodies {
        self.served.admin.console.bodies
    }
}

/// Whether a path is open to those who have not signed in.
pub(crate) fn is_open(path: &str) -> bool {
    matches!(path, "/sign-in" | "/language") || path.starts_with(assets::PATH)
}

/// Whether someone looks for a page, and not a program for an answer.
pub(crate) fn wants_page<B>(request: &Request<B>) -> bool {
    let accepted = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let is_api = request.uri().path().starts_with("/v1/");
    request.method() == Method::GET && !is_api && accepted.is_some_and(|kinds| kinds.contains("text/html"))
}

/// Sends someone to the sign-in page.
pub(crate) fn to_sign_in() -> Response {
    page::see("/sign-in")
}
