//! The meter as a component of a process.

use std::sync::Arc;
use std::time::Duration;

use ichido_core::SystemClock;
use ichido_meter::http::ServiceOptions;
use ichido_meter::{Access, Budget, Options, Service, Store};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::components::budgets::BudgetWatch;
use crate::settings::Settings as ProcessSettings;
use ichido_admin::{Gate, UsageSource, serve_router};
use ichido_core::error_chain;
use ichido_meter::settings::Settings;
use ichido_serve::listener::{Limits, Listener, Protocol};
use ichido_serve::tls::Certificate;
use ichido_serve::{Audience, Component, Failure, Probe};

/// Concurrent connections. Clients are senders, each with a few connections.
const CONNECTIONS_MAX: usize = 256;
/// Concurrent requests on one HTTP/2 connection.
const STREAMS_MAX: u32 = 32;

/// A meter whose port is bound.
pub(crate) struct Bound {
    listener: TcpListener,
    settings: Settings,
}

/// A meter that is ready to serve.
pub(crate) struct Meter {
    listener: Listener,
    service: Service,
    store: Arc<dyn Store>,
    tenants: Vec<String>,
    budgets: Vec<Budget>,
    watch: Option<BudgetWatch>,
    gate: Option<Gate>,
    grace: Duration,
    certificate: Option<Certificate>,
}

impl Bound {
    /// Binds the port before the database is opened, so that a port in use is noticed first.
    pub(crate) async fn bind(settings: Settings) -> Result<Self, Failure> {
        let listener = TcpListener::bind(settings.listen)
            .await
            .map_err(|error| Failure::usage(format!("meter.listen {}: {error}", settings.listen)))?;
        Ok(Self { listener, settings })
    }

    /// The address, database and tenants, for the start line.
    pub(crate) fn describe(&self) -> String {
        let Settings { tls, listen, database, profile, access, .. } = &self.settings;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let address = self.listener.local_addr().unwrap_or(*listen);
        let tenants = match access {
            Access::Open => "one tenant without a token".to_owned(),
            Access::Tokens(tokens) => format!("{} tenants", tokens.tenants()),
        };
        format!("{scheme}://{address}, database {}, {profile}, {tenants}", database.location())
    }

    /// Opens the database, and creates what is missing.
    pub(crate) async fn open(
        self,
        process: &ProcessSettings,
        stop: &CancellationToken,
    ) -> Result<Meter, Failure> {
        let Self { listener, settings } = self;
        let store = ichido_meter::open(settings.database.url(), Options { profile: settings.profile })
            .await
            .map_err(|error| Failure::usage(error_chain(&error)).at(&settings.database.location()))?;
        // Without tokens, pages in a browser on this machine must not get access, as at the admin port.
        let gate = match settings.access {
            Access::Open => Some(Gate::new(settings.listen, None, None)),
            Access::Tokens(_) => None,
        };
        let tenants = settings.access.tenants();
        let watch = BudgetWatch::new(process, &settings.budgets, store.clone(), stop)?;
        let service = ichido_meter::service(ServiceOptions {
            store: store.clone(),
            access: settings.access,
            profile: settings.profile,
            body_max_bytes: settings.body_max_bytes,
            clock: Arc::new(SystemClock::default()),
        });
        let limits = Limits {
            connections_max: CONNECTIONS_MAX,
            protocol: Protocol::Auto { streams_max: STREAMS_MAX },
            ..Limits::default()
        };
        let (tls, certificate) = settings.tls.map(|tls| Certificate::replaceable(&tls)).unzip();
        let listener = Listener { name: "meter", socket: listener, tls: tls.map(TlsAcceptor::from), limits };
        let (budgets, grace) = (settings.budgets, settings.shutdown);
        Ok(Meter { listener, service, store, tenants, budgets, watch, gate, grace, certificate })
    }

    /// Opens the meter as a component, and returns the usage that it counts, and its certificate.
    pub(crate) async fn component(
        self,
        process: &ProcessSettings,
        stop: CancellationToken,
    ) -> Result<(Component, UsageSource, Option<Certificate>), Failure> {
        let summary = format!("meter listening on {}", self.describe());
        let meter = self.open(process, &stop).await?;
        let (usage, certificate) = (meter.usage(), meter.certificate.clone());
        let probes = vec![("meter", Audience::Readyz, meter.probe())];
        let work = Box::pin(async move {
            meter.serve(stop).await;
            Ok(())
        });
        Ok((Component { summary, probes, work }, usage, certificate))
    }
}

impl Meter {
    /// Whether the database can be used, for `/readyz`.
    pub(crate) fn probe(&self) -> Probe {
        let store = self.store.clone();
        Arc::new(move || {
            let store = store.clone();
            Box::pin(async move { store.check().await.map_err(|error| error.to_string()) })
        })
    }

    /// The counted usage, for the console.
    pub(crate) fn usage(&self) -> UsageSource {
        UsageSource::new(self.store.clone(), self.tenants.clone(), self.budgets.clone())
    }

    /// Serves until `stop`, then finishes requests that are running and closes the database.
    pub(crate) async fn serve(self, stop: CancellationToken) {
        let Self { listener, service, gate, grace, watch, .. } = self;
        let watching = watch.map(|watch| tokio::spawn(watch.run(stop.clone())));
        let deadline = serve_router(listener, service.router.clone(), gate, stop, grace).await;
        if let Some(watching) = watching {
            let _ = watching.await;
        }
        // Batches that were accepted are counted, even if their senders are gone.
        if tokio::time::timeout_at(deadline, service.close()).await.is_err() {
            tracing::warn!("batches were not counted in time; their senders will retry");
        }
    }
}
