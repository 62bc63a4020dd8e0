//! `ichido gateway`: an API in any language sits behind it and becomes safe to retry.

mod cors;
mod forward;
mod forwarded_headers;
pub mod jwt;
mod pool;
mod server;
pub mod settings;
mod socket;
mod tunnel;

use std::sync::Arc;
use std::time::Duration;

use ichido_http::{IdempotencyLayer, Journal, Route, Rules};
use ichido_ledger::Ledger;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use self::cors::Cors;
use self::forward::Forward;
use self::server::Front;
use crate::settings::{Gateway as Settings, Upstream, unchecked};
use ichido_serve::Failure;
use ichido_serve::descriptors::Descriptors;
use ichido_serve::ledger::Settings as LedgerSettings;
use ichido_serve::ledger::run_sweeper;
use ichido_serve::listener::{Limits, Protocol};

/// A gateway that has its port.
pub struct Bound {
    listener: TcpListener,
    settings: Settings,
}

/// A gateway that is ready to serve.
pub struct Gateway {
    front: Front,
    layer: IdempotencyLayer,
    ledger: Ledger,
    journal: Option<Arc<Journal>>,
    grace: Duration,
}

impl Bound {
    /// Takes the port first: a port that is taken must not cost the ledger's opening.
    pub async fn bind(settings: Settings) -> Result<Self, Failure> {
        let listener = TcpListener::bind(settings.listen)
            .await
            .map_err(|error| Failure::usage(format!("gateway.listen {}: {error}", settings.listen)))?;
        Ok(Self { listener, settings })
    }

    pub fn address_as_url(&self) -> String {
        let scheme = if self.settings.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.listener.local_addr().unwrap_or(self.settings.listen))
    }

    /// What is protected, for people.
    pub fn routes(&self) -> String {
        let routes: Vec<_> = self.settings.rules.routes.iter().map(Route::describe).collect();
        routes.join("; ")
    }

    /// Where requests go, for people.
    pub fn upstream(&self) -> String {
        let upstream = &self.settings.upstream;
        format!("{}://{}{}", upstream.scheme, upstream.authority, upstream.prefix)
    }

    /// The service behind, and whether this process is not ready without it.
    pub fn asked_upstream(&self) -> (Upstream, bool) {
        (self.settings.upstream.clone(), self.settings.ready_needs_upstream)
    }

    /// Whether a route goes on with a local ledger during an outage.
    pub fn wants_fallback(&self) -> bool {
        self.settings.wants_fallback()
    }

    /// Puts the parts together around a ledger, and the same with its fallback if there is one.
    pub async fn assemble(
        self,
        ledger: Ledger,
        fallback: Option<Ledger>,
        of: &LedgerSettings,
    ) -> Result<Gateway, Failure> {
        let Self { listener, settings } = self;
        let fallback = fallback.filter(|_| settings.wants_fallback());
        // An embedded ledger is as near as a journal beside it would be.
        let journal = match of.is_local() {
            true => None,
            false => Some(Arc::new(Journal::open(&settings.journal_dir).map_err(|error| {
                Failure::usage(format!("gateway.journal_dir {}: {error}", settings.journal_dir.display()))
            })?)),
        };
        for warning in settings.rules.routes.iter().filter_map(unchecked) {
            tracing::warn!("{warning}");
        }
        let tenant = &settings.rules.tenant;
        tracing::info!(rule = tenant.describe(), caution = tenant.caution(), "whose key a request uses");
        let notes = settings.rules.routes.iter().any(|route| !route.metadata.is_empty());
        let descriptors = Descriptors::from_current_limit();
        let count = |most: u64| usize::try_from(most).unwrap_or(usize::MAX);
        let limits = Limits {
            connections_max: count(settings.connections_max.unwrap_or(descriptors.connections)),
            protocol: Protocol::Auto {
                streams_max: u32::try_from(settings.rules.inflight_max_per_connection).unwrap_or(u32::MAX),
            },
            ..Limits::default()
        };
        let rules = Rules { body_files_max: descriptors.bodies, ..settings.rules };
        let policy_path: Arc<str> = rules.policy_path.as_str().into();
        let forward = Forward::new(&settings.upstream, &rules.routes, count(descriptors.upstream))?;
        let cors = Cors::new(&rules.routes, settings.origins).map(Arc::new);
        let layer = IdempotencyLayer::with(ledger.clone(), rules, fallback, journal.clone());
        if notes {
            tracing::info!(instance = layer.instance(), "notes on events call this instance so");
        }
        let front = Front {
            listener,
            tls: settings.tls.map(TlsAcceptor::from),
            forward,
            layer: layer.clone(),
            policy_path,
            cors,
            trusted_proxies: settings.trusted_proxies,
            limits,
        };
        Ok(Gateway { front, layer, ledger, journal, grace: settings.shutdown })
    }
}

impl Gateway {
    pub fn journal(&self) -> Option<Arc<Journal>> {
        self.journal.clone()
    }

    /// Serves until told to stop; then ends what is under way, and lets go of the ledger.
    pub async fn serve(self, stop: CancellationToken) {
        let background = stop.child_token();
        let sweeping = tokio::spawn(run_sweeper(self.ledger.clone(), background.clone()));
        let draining =
            self.journal.clone().map(|journal| tokio::spawn(journal.run(self.ledger.clone(), background)));
        let tunnels = self.front.forward.tunnels();
        let deadline = self.front.serve(stop, self.grace).await;
        // What was granted runs to its end although its client may be gone.
        let drained = tokio::time::timeout_at(deadline, self.layer.drain());
        let ((), drained) = tokio::join!(tunnels.drain(deadline), drained);
        if drained.is_err() {
            tracing::warn!(
                under_way = self.layer.in_flight(),
                "keyed requests did not end in time; their claims will be in doubt"
            );
        }
        let _ = sweeping.await;
        if let Some(draining) = draining {
            let _ = draining.await;
        }
        if let Some(journal) = self.journal.filter(|journal| !journal.is_empty()) {
            tracing::warn!(waiting = journal.len(), dir = %journal.dir().display(), "the completion journal is left on disk; the next start hands it in");
        }
    }
}
