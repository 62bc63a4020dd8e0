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
pub mod desk;
mod figures;
mod form;
mod health;
mod lang;
mod live;
mod overview;
mod page;
mod plot;
mod sampler;
mod session;
mod shelf;
mod sign_in;
mod usage;
mod words;

use std::sync::Arc;

use axum::Router;
use axum::extract::FromRef;
use axum::response::Response;
use axum::routing::{get, post};
use http::{Method, Request, header};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use self::desk::Desk;
use self::sampler::Sampler;
pub use self::session::{Sessions, Visitor};
pub use self::usage::Usage;
use crate::{AdminToken, Served};

/// What the console shows besides the ledger.
#[derive(Debug, Default)]
pub struct Parts {
    pub bodies: Bodies,
    /// The way to the daemon that delivers, if this process is one.
    pub desk: Option<Desk>,
    /// What a meter counted, if this process has one.
    pub usage: Option<Usage>,
}

/// Whether pages show what callers stored and sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bodies {
    #[default]
    Masked,
    Shown,
}

/// What every page needs, whatever the process does.
#[derive(Clone, Debug)]
pub struct Frame {
    token: Option<AdminToken>,
    sessions: Sessions,
    tries: Arc<Semaphore>,
    sections: Sections,
}

/// Which parts of the console this process has.
#[derive(Clone, Copy, Debug, Default)]
struct Sections {
    ledger: bool,
    delivery: bool,
    usage: bool,
}

impl Frame {
    fn new(token: Option<AdminToken>, sessions: Sessions, sections: Sections) -> Self {
        Self { token, sessions, tries: Semaphore::new(sign_in::TRIES).into(), sections }
    }

    fn routes(self) -> Router {
        Router::new()
            .route("/sign-in", get(sign_in::page).post(sign_in::sign_in))
            .route("/sign-out", post(sign_in::sign_out))
            .route("/language", post(sign_in::language))
            .route(&format!("{}{{name}}", assets::PATH), get(assets::asset))
            .with_state(self)
    }
}

/// What the pages about a ledger and its deliveries share.
#[derive(Clone, Debug)]
pub struct Console {
    frame: Frame,
    served: Served,
    sampler: Arc<Sampler>,
    watchers: Arc<Semaphore>,
    stop: CancellationToken,
}

impl FromRef<Console> for Frame {
    fn from_ref(console: &Console) -> Self {
        console.frame.clone()
    }
}

impl Console {
    /// A console that gathers what it shows until `stop`.
    pub fn start(
        served: Served,
        token: Option<AdminToken>,
        sessions: Sessions,
        stop: CancellationToken,
    ) -> Self {
        let parts = &served.admin.console;
        let sections =
            Sections { ledger: true, delivery: parts.desk.is_some(), usage: parts.usage.is_some() };
        let frame = Frame::new(token, sessions, sections);
        let sampler = Sampler::start(served.admin.clone(), stop.clone());
        Self { frame, served, sampler, watchers: Semaphore::new(live::MOST).into(), stop }
    }

    pub fn routes(self) -> Router {
        let usage = self.served.admin.console.usage.clone();
        let usage =
            usage.map(|usage| usage::routes(self.frame.clone(), usage, self.served.admin.meters.clone()));
        self.frame.clone().routes().merge(usage.unwrap_or_default()).merge(
            Router::new()
                .route("/", get(overview::overview))
                .route("/live", get(live::live))
                .route("/claims", get(claims::claims))
                .route("/claims/one", get(claim::claim))
                .route("/claims/say", get(claim::confirm).post(claim::say))
                .route("/delivery", get(delivery::delivery))
                .route("/delivery/batch", get(batch::batch))
                .route("/delivery/resend", get(batch::confirm).post(batch::resend))
                .with_state(self),
        )
    }

    fn desk(&self) -> Option<&Desk> {
        self.served.admin.console.desk.as_ref()
    }

    fn bodies(&self) -> Bodies {
        self.served.admin.console.bodies
    }
}

/// The pages of a process that only counts usage.
pub fn of_meter(
    token: Option<AdminToken>,
    sessions: Sessions,
    usage: Usage,
    meters: PrometheusHandle,
) -> Router {
    let frame = Frame::new(token, sessions, Sections { usage: true, ..Sections::default() });
    let first = get(async || page::see("/usage"));
    frame.clone().routes().merge(usage::routes(frame, usage, meters)).route("/", first)
}

/// Whether a path is open to those who have not signed in.
pub fn is_open(path: &str) -> bool {
    matches!(path, "/sign-in" | "/language") || path.starts_with(assets::PATH)
}

/// Whether someone looks for a page, and not a program for an answer.
pub fn wants_page<B>(request: &Request<B>) -> bool {
    let accepted = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let is_api = request.uri().path().starts_with("/v1/");
    request.method() == Method::GET && !is_api && accepted.is_some_and(|kinds| kinds.contains("text/html"))
}

/// Sends someone to the sign-in page.
pub fn to_sign_in() -> Response {
    page::see("/sign-in")
}
