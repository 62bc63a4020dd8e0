//! `ichido gateway`: a reverse proxy that makes the API behind it safe to retry.

mod ask;
mod cors;
mod forward;
mod forwarded_headers;
mod jwt;
mod pool;
mod reload;
mod server;
pub mod settings;
mod socket;
mod tunnel;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use ichido_http::{IdempotencyLayer, Journal, Route, Rules, SpanSink};
use ichido_ledger::Ledger;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

pub use self::ask::{ReloadedQuestions, UpstreamQuestions};
use self::cors::Cors;
use self::forward::Forward;
pub use self::reload::{Prepared, Reloader};
use self::server::{Generation, Server};
use crate::settings::{Settings, log_cautions};
use ichido_serve::Failure;
use ichido_serve::descriptors::Descriptors;
use ichido_serve::ledger::{Settings as LedgerSettings, run_sweeper};
use ichido_serve::listener::{Limits, Listener, Protocol};
use ichido_serve::tls::Certificate;

/// A gateway that is bound to its port.
pub struct Bound {
    socket: TcpListener,
    settings: Settings,
}

/// A gateway that is ready to serve.
pub struct Gateway {
    server: Server,
    layer: IdempotencyLayer,
    ledger: Ledger,
    journal: Option<Arc<Journal>>,
    drain_timeout: Duration,
    reloader: Reloader,
}

impl Bound {
    /// Binds the port. This comes before the ledger is opened, so that a port in use is found early.
    pub async fn bind(settings: Settings) -> Result<Self, Failure> {
        let socket = TcpListener::bind(settings.listen)
            .await
            .map_err(|error| Failure::usage(format!("gateway.listen {}: {error}", settings.listen)))?;
        Ok(Self { socket, settings })
    }

    /// The URL of the gateway.
    pub fn url(&self) -> String {
        let scheme = if self.settings.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.socket.local_addr().unwrap_or(self.settings.listen))
    }

    /// A description of the routes, for the start-up line.
    pub fn describe_routes(&self) -> String {
        let routes: Vec<_> = self.settings.rules.routes.iter().map(Route::describe).collect();
        routes.join("; ")
    }

    /// The URL of the upstream, for the start-up line.
    pub fn upstream_url(&self) -> String {
        let upstream = &self.settings.upstream;
        format!("{}://{}{}", upstream.scheme, upstream.authority, upstream.prefix)
    }

    /// Whether the process is ready only if the upstream accepts connections.
    pub fn ready_needs_upstream(&self) -> bool {
        self.settings.ready_needs_upstream
    }

    /// Whether a route uses the fallback during an outage.
    pub fn needs_fallback(&self) -> bool {
        self.settings.wants_fallback()
    }

    /// Builds the gateway. `fallback` is the ledger with its fallback, if the process has one. `spans` gets a span for each
    /// request, if requests are traced.
    pub async fn build(
        self,
        ledger: Ledger,
        fallback: Option<Ledger>,
        ledger_settings: &LedgerSettings,
        spans: Option<Arc<dyn SpanSink>>,
    ) -> Result<Gateway, Failure> {
        let Self { socket, settings } = self;
        // A local ledger is as close as a journal would be, and needs none.
        let journal = match ledger_settings.is_local() {
            true => None,
            false => Some(Arc::new(Journal::open(&settings.journal_dir).map_err(|error| {
                Failure::usage(format!("gateway.journal_dir {}: {error}", settings.journal_dir.display()))
            })?)),
        };
        log_cautions(&settings.rules);
        let has_metadata = settings.rules.routes.iter().any(|route| !route.metadata.is_empty());
        let descriptors = Descriptors::from_current_limit();
        let as_count = |max: u64| usize::try_from(max).unwrap_or(usize::MAX);
        let limits = Limits {
            connections_max: as_count(settings.connections_max.unwrap_or(descriptors.connections)),
            protocol: Protocol::Auto {
                streams_max: u32::try_from(settings.rules.inflight_max_per_connection).unwrap_or(u32::MAX),
            },
            ..Limits::default()
        };
        let rules = Rules { body_files_max: descriptors.bodies, ..settings.rules };
        let fixed = reload::Fixed {
            body_files_max: rules.body_files_max,
            inflight_max_per_connection: rules.inflight_max_per_connection,
            has_fallback: fallback.is_some(),
        };
        let forward = Forward::new(&settings.upstream, &rules.routes, as_count(descriptors.upstream))?;
        let policy_path = rules.policy_path.clone();
        let cors = Cors::new(&rules.routes, settings.origins);
        let layer = IdempotencyLayer::with(ledger.clone(), rules, fallback, journal.clone());
        let layer = spans.map_or(layer.clone(), |spans| layer.traced(spans));
        if has_metadata {
            tracing::info!(instance = layer.instance(), "event metadata uses this instance id");
        }
        let (tls, certificate) = settings.tls.map(|tls| Certificate::replaceable(&tls)).unzip();
        let generation = Generation {
            layer: layer.clone(),
            forward,
            upstream: settings.upstream,
            policy_path,
            cors,
            trusted_proxies: settings.trusted_proxies,
        };
        let (generations, in_force) = watch::channel(Arc::new(generation));
        let server = Server {
            listener: Listener { name: "gateway", socket, tls: tls.map(TlsAcceptor::from), limits },
            generations: in_force,
        };
        let reloader = Reloader { generations, certificate, fixed };
        Ok(Gateway { server, layer, ledger, journal, drain_timeout: settings.shutdown, reloader })
    }
}

impl Gateway {
    /// The completion journal, if the ledger is remote.
    pub fn journal(&self) -> Option<Arc<Journal>> {
        self.journal.clone()
    }

    /// Replaces the settings while the gateway serves.
    pub fn reloader(&self) -> Reloader {
        self.reloader.clone()
    }

    /// Serves until `stop`, then finishes the requests in progress for at most `shutdown_seconds`.
    pub fn serve(self, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let background = stop.child_token();
            let sweeper = tokio::spawn(run_sweeper(self.ledger.clone(), background.clone()));
            let journal_task = self
                .journal
                .clone()
                .map(|journal| tokio::spawn(journal.run(self.ledger.clone(), background)));
            // All generations share their tunnels.
            let tunnels = self.reloader.tunnels();
            let deadline = self.server.serve(stop, self.drain_timeout).await;
            // Requests that hold a claim run to their end, even if their clients are gone.
            let drained = tokio::time::timeout_at(deadline, self.layer.drain());
            let ((), drained) = tokio::join!(tunnels.drain(deadline), drained);
            if drained.is_err() {
                tracing::warn!(
                    in_flight = self.layer.in_flight(),
                    "keyed requests did not finish in time; their claims will be in doubt"
                );
            }
            let _ = sweeper.await;
            if let Some(journal_task) = journal_task {
                let _ = journal_task.await;
            }
            if let Some(journal) = self.journal.filter(|journal| !journal.is_empty()) {
                tracing::warn!(
                    pending = journal.len(),
                    dir = %journal.dir().display(),
                    "completion journal is not empty; the next start writes it to the ledger"
                );
            }
        })
    }
}
