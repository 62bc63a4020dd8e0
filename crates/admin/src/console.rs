//! The console: pages on the admin port for people who look after a ledger and its deliveries.
//!
//! Pages are made on the server and work without a script; one small script keeps the overview live. Nothing is fetched
//! from elsewhere. Who may come in is the gate's business ([`crate::auth`]); here every form brings back a word that
//! only our pages know ([`form`]), and every page forbids what it does not need ([`page`]).
//!
//! A page asks for nothing that grows with the store: lists go by cursors, and what must be counted is counted beside
//! the pages ([`sampler`], [`directory_cache`]).

mod assets;
mod batch;
mod claim;
mod claims;
mod delivery;
mod directory_cache;
mod form;
mod health;
mod language;
mod live_updates;
mod overview;
mod page;
mod plot;
mod sampler;
mod sign_in;
mod totals;
mod translations;
mod usage;

use std::sync::Arc;

use axum::Router;
use axum::extract::FromRef;
use axum::routing::{get, post};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use self::sampler::Sampler;
use crate::auth::{ASSETS, AdminToken, Sessions};
use crate::browser::see;
use crate::delivery_control::Desk;
use crate::state::{Bodies, Served, Usage};

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
            .route(&format!("{}{{name}}", ASSETS), get(assets::asset))
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
        Self { frame, served, sampler, watchers: Semaphore::new(live_updates::MOST).into(), stop }
    }

    pub fn routes(self) -> Router {
        let usage = self.served.admin.console.usage.clone();
        let usage =
            usage.map(|usage| usage::routes(self.frame.clone(), usage, self.served.admin.meters.clone()));
        self.frame.clone().routes().merge(usage.unwrap_or_default()).merge(
            Router::new()
                .route("/", get(overview::overview))
                .route("/live", get(live_updates::live))
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
    let first = get(async || see("/usage"));
    frame.clone().routes().merge(usage::routes(frame, usage, meters)).route("/", first)
}
