//! The gateway as a component of a process.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use ichido_gateway::{Bound, Reloader};
use ichido_http::SpanSink;
use ichido_serve::ledger::{ProcessLedger, Settings as LedgerSettings};
use ichido_serve::{Audience, Component, Failure, Probe, try_connect};

/// Assembles the gateway, and what replaces its settings. It is ready once the completions that an outage left behind are
/// in the ledger.
pub(crate) async fn component(
    bound: Bound,
    shared: &ProcessLedger,
    ledger: &LedgerSettings,
    spans: Option<Arc<dyn SpanSink>>,
    stop: CancellationToken,
) -> Result<(Component, Reloader), Failure> {
    let summary = format!(
        "gateway listening on {}, {} → {}",
        bound.url(),
        bound.describe_routes(),
        bound.upstream_url()
    );
    let is_needed = bound.ready_needs_upstream();
    let gateway = bound.build(shared.ledger.clone(), shared.for_routes(), ledger, spans).await?;
    let mut probes = Vec::new();
    if let Some(journal) = gateway.journal() {
        let probe: Probe = Arc::new(move || {
            let result = match journal.len() {
                0 => Ok(()),
                1 => Err("1 completion is waiting for the ledger".to_owned()),
                waiting => Err(format!("{waiting} completions are waiting for the ledger")),
            };
            Box::pin(std::future::ready(result))
        });
        probes.push(("completion journal", Audience::Readyz, probe));
    }
    let reloader = gateway.reloader();
    let reloaded = reloader.clone();
    let probe: Probe = Arc::new(move || {
        let upstream = reloaded.upstream();
        Box::pin(async move {
            try_connect(upstream.authority.as_str(), upstream.authority.host(), upstream.port()).await
        })
    });
    probes.push(("upstream", if is_needed { Audience::Readyz } else { Audience::Operators }, probe));
    let work = Box::pin(async move {
        gateway.serve(stop).await;
        Ok(())
    });
    Ok((Component { summary, probes, work }, reloader))
}
