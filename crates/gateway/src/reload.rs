//! Replaces the settings of a gateway while it serves.
//!
//! New requests follow the new settings, also on open connections; requests in progress finish with the old ones. What
//! counts requests (limits, budgets, metrics, the tasks that a shutdown waits for) is shared, so it carries on.

use std::sync::Arc;

use ichido_http::{Outage, Rules};
use tokio::sync::watch;

use crate::ask::ReloadedQuestions;
use crate::cors::Cors;
use crate::server::Generation;
use crate::settings::{Settings, Upstream, log_cautions};
use crate::tunnel::Tunnels;
use ichido_serve::Failure;
use ichido_serve::tls::Certificate;

/// Replaces the settings of a running gateway.
#[derive(Clone, Debug)]
pub struct Reloader {
    pub(crate) generations: watch::Sender<Arc<Generation>>,
    pub(crate) certificate: Option<Certificate>,
    pub(crate) fixed: Fixed,
}

/// What stays as it was when the gateway started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fixed {
    pub(crate) body_files_max: u64,
    pub(crate) inflight_max_per_connection: usize,
    pub(crate) has_fallback: bool,
}

/// Settings that are ready to take effect.
#[derive(Debug)]
pub struct Prepared {
    generation: Generation,
    tls: Option<Arc<rustls::ServerConfig>>,
    /// Settings that this reload cannot change, in addition to [`NEEDS_RESTART`](crate::settings::NEEDS_RESTART).
    pub needs_restart: Vec<String>,
}

impl Reloader {
    /// Builds everything that can fail. Nothing takes effect yet.
    pub fn prepare(&self, settings: Settings) -> Result<Prepared, Failure> {
        let needs_restart = self.needs_restart(&settings);
        let old = self.generations.borrow().clone();
        let rules = Rules {
            body_files_max: self.fixed.body_files_max,
            inflight_max_per_connection: self.fixed.inflight_max_per_connection,
            ..settings.rules
        };
        let generation = Generation {
            forward: old.forward.with_upstream(&settings.upstream, &rules.routes)?,
            upstream: settings.upstream,
            policy_path: rules.policy_path.clone(),
            cors: Cors::new(&rules.routes, settings.origins),
            trusted_proxies: settings.trusted_proxies,
            layer: old.layer.with_rules(rules),
        };
        Ok(Prepared { generation, tls: settings.tls, needs_restart })
    }

    /// Puts the settings into effect for new requests and new connections.
    pub fn apply(&self, prepared: Prepared) {
        if let (Some(certificate), Some(tls)) = (&self.certificate, &prepared.tls) {
            certificate.replace(tls);
        }
        log_cautions(prepared.generation.layer.rules());
        let old = self.generations.send_replace(Arc::new(prepared.generation));
        old.forward.retire();
    }

    /// Asks the upstream about effects in doubt, as the settings in force say.
    pub fn questions(&self) -> ReloadedQuestions {
        ReloadedQuestions(self.generations.subscribe())
    }

    /// The upstream in force.
    pub fn upstream(&self) -> Upstream {
        self.generations.borrow().upstream.clone()
    }

    pub(crate) fn tunnels(&self) -> Tunnels {
        self.generations.borrow().forward.tunnels()
    }

    fn needs_restart(&self, settings: &Settings) -> Vec<String> {
        let mut named = Vec::new();
        if settings.tls.is_some() != self.certificate.is_some() {
            named.extend(["gateway.tls_cert_file", "gateway.tls_key_file"].map(ToOwned::to_owned));
        }
        // Without a fallback, such a route responds 503 in an outage.
        if !self.fixed.has_fallback {
            let routes = settings.rules.routes.iter().enumerate();
            let waiting = routes.filter(|(_, route)| route.outage == Outage::Fallback);
            named.extend(waiting.map(|(index, _)| format!("gateway.routes[{index}].outage")));
        }
        named
    }
}
