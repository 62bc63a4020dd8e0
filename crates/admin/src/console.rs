//! The console: pages for operators who look after a ledger and its deliveries.
//!
//! The server renders the pages, and they work without JavaScript; one small script keeps the overview live. Nothing
//! is loaded from elsewhere. Access is checked in [`crate::auth`]. In addition, every form carries a CSRF token
//! ([`form`]), and every page has a strict content security policy ([`crate::browser`]).
//!
//! No page does work that grows with the store: lists use cursors, and counting happens in the background
//! ([`sampler`], [`directory_cache`]).

mod anomalies;
mod ask;
mod assets;
mod attention;
mod batch;
mod claim;
mod claims;
mod delivery;
mod directory_cache;
mod events;
mod form;
mod health;
mod history;
mod language;
mod live_updates;
mod not_found;
mod overview;
mod page;
mod plot;
mod problem_types;
mod sampler;
mod sign_in;
mod slo;
mod timeline;
mod totals;
mod trace;
mod translations;
mod triage;
mod usage;

use std::sync::Arc;

use axum::Router;
use axum::extract::FromRef;
use axum::routing::{get, post};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use self::sampler::Sampler;
use self::trace::Searched;
use crate::audit_log::AuditLog;
use crate::auth::{ASSETS_PATH, Sessions, Tokens};
use crate::browser::see_other;
use crate::delivery_control::DeliveryControl;
use crate::settings::Settings;
use crate::state::{AppState, Bodies, UsageSource};

/// What every page needs, whatever the process does.
#[derive(Clone, Debug)]
pub(crate) struct PageContext {
    tokens: Option<Tokens>,
    /// Whether this port uses TLS.
    over_tls: bool,
    audit: AuditLog,
    sessions: Sessions,
    sign_in_attempts: Arc<Semaphore>,
    sections: Sections,
}

/// The sections of the console that this process has.
#[derive(Clone, Copy, Debug, Default)]
struct Sections {
    ledger: bool,
    history: bool,
    delivery: bool,
    usage: bool,
}

impl PageContext {
    fn new(settings: Settings, sessions: Sessions, sections: Sections) -> Self {
        let Settings { tokens, tls, audit, trusted_user: _ } = settings;
        let sign_in_attempts = Semaphore::new(sign_in::ATTEMPTS_MAX).into();
        Self { tokens, over_tls: tls.is_some(), audit, sessions, sign_in_attempts, sections }
    }

    fn routes(self) -> Router {
        Router::new()
            .route("/sign-in", get(sign_in::page).post(sign_in::sign_in))
            .route("/sign-out", post(sign_in::sign_out))
            .route("/language", post(sign_in::language))
            .route(&format!("{}{{name}}", ASSETS_PATH), get(assets::asset))
            .with_state(self)
    }
}

/// State of the pages about a ledger and its deliveries.
#[derive(Clone, Debug)]
pub(crate) struct Console {
    context: PageContext,
    app: AppState,
    sampler: Arc<Sampler>,
    live_pages: Arc<Semaphore>,
    stop: CancellationToken,
}

impl FromRef<Console> for PageContext {
    fn from_ref(console: &Console) -> Self {
        console.context.clone()
    }
}

impl Console {
    /// Starts the background work of the console, which ends with `stop`.
    pub(crate) fn start(
        app: AppState,
        settings: Settings,
        sessions: Sessions,
        stop: CancellationToken,
    ) -> Self {
        let options = &app.admin.console;
        let sections = Sections {
            ledger: true,
            history: !app.admin.histories.is_empty(),
            delivery: options.delivery.is_some(),
            usage: options.usage.is_some(),
        };
        let context = PageContext::new(settings, sessions, sections);
        let sampler = Sampler::start(app.admin.clone(), stop.clone());
        Self { context, app, sampler, live_pages: Semaphore::new(live_updates::LIVE_PAGES_MAX).into(), stop }
    }

    /// Adds the pages to the routes of the API.
    pub(crate) fn with_routes_of(self, api: Router) -> Router {
        let context = self.context.clone();
        not_found::with_pages(api.merge(self.routes()), context)
    }

    fn routes(self) -> Router {
        let usage = self.app.admin.console.usage.clone();
        let usage =
            usage.map(|usage| usage::routes(self.context.clone(), usage, self.app.admin.metrics.clone()));
        let trace = trace::routes(self.context.clone(), Searched::App(self.app.clone()));
        self.context.clone().routes().merge(usage.unwrap_or_default()).merge(trace).merge(
            Router::new()
                .route("/", get(overview::overview))
                .route("/live", get(live_updates::live))
                .route("/system", get(overview::system))
                .route("/claims", get(claims::claims))
                .route("/claims/one", get(claim::claim))
                .route("/claims/ask", post(ask::ask))
                .route("/claims/triage", get(triage::triage).post(triage::resolve))
                .route("/claims/resolve", get(claim::confirm).post(claim::resolve))
                .route("/events", get(events::events))
                .route("/events/one", get(events::event))
                .route("/events/forget", get(events::confirm).post(events::forget))
                .route("/history", get(history::history))
                .route("/history/timeline", get(timeline::timeline))
                .route("/delivery", get(delivery::delivery))
                .route("/delivery/slo", get(slo::slo))
                .route("/delivery/batch", get(batch::batch))
                .route("/delivery/resend", get(batch::confirm).post(batch::resend))
                .with_state(self),
        )
    }

    fn delivery_control(&self) -> Option<&DeliveryControl> {
        self.app.admin.console.delivery.as_ref()
    }

    fn bodies(&self) -> Bodies {
        self.app.admin.console.bodies
    }
}

/// The pages of a process that only meters usage.
pub(crate) fn meter_routes(
    settings: Settings,
    sessions: Sessions,
    usage: UsageSource,
    metrics: PrometheusHandle,
) -> Router {
    let context = PageContext::new(settings, sessions, Sections { usage: true, ..Sections::default() });
    let first = get(async || see_other("/usage"));
    let trace = trace::routes(context.clone(), Searched::Meter(usage.clone()));
    context.clone().routes().merge(trace).merge(usage::routes(context, usage, metrics)).route("/", first)
}
