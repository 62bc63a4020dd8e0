//! Settles claims in doubt by asking the service behind the gateway.

use std::sync::Arc;

use ichido_admin::audit_log::Actor;
use ichido_admin::operator::{Audited, Local};
use ichido_admin::{HintReceiver, settle_doubts};
use ichido_http::AskService;
use ichido_ledger::Ledger;
use ichido_serve::Failure;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::settings::Settings;

/// Starts to settle them, until `stop`.
pub(crate) fn start(
    settings: &Settings,
    ledger: Ledger,
    service: Arc<dyn AskService>,
    hints: HintReceiver,
    stop: CancellationToken,
) -> Result<JoinHandle<()>, Failure> {
    let operator = Local { ledger, histories: settings.histories()?, service: Some(service.clone()) };
    let audited = Audited { operator, audit: settings.audit()?, actor: Actor::process() };
    Ok(tokio::spawn(settle_doubts(audited, service, hints, stop)))
}
