//! A trace in the process that serves the admin port: it looks into what this process has.

use ichido_core::{Clock, SystemClock};
use tokio::task::JoinError;

use super::{DeliverySource, Sources, Trace, trace};
use crate::audit_log::AuditLog;
use crate::delivery_control::DeliveryControl;
use crate::histories::Histories;
use crate::operator::{Local, Refusal, Remote};
use crate::state::{AppState, UsageSource};

const NO_DELIVERY: &str = "this process does not deliver; run `ichido trace` where the data directory is";
const NO_METER: &str = "this process has no meter";
const NO_LEDGER: &str = "this process has no ledger";

impl AppState {
    /// Follows an id. Only a few searches run at a time; others wait. A search that began also ends if nobody waits for it, so
    /// that callers who hang up do not start more of them.
    pub(crate) async fn trace(&self, id: &str) -> Result<Trace, JoinError> {
        let (app, id) = (self.clone(), id.to_owned());
        let permit = self.searches.clone().acquire_owned().await;
        self.actions
            .spawn(async move {
                let _permit = permit;
                app.search(&id).await
            })
            .await
    }

    async fn search(&self, id: &str) -> Trace {
        let (operator, console) = (self.operator(), &self.admin.console);
        let source = |delivery: &DeliveryControl| DeliverySource {
            layout: delivery.layout.clone(),
            receipt_retention: delivery.receipt_retention,
        };
        let sources = Sources {
            delivery: console.delivery.as_ref().map(source).ok_or_else(|| NO_DELIVERY.to_owned()),
            ledger: Ok(&operator),
            histories: self.admin.histories.clone(),
            audit: self.audit.clone(),
            meter: console.usage.clone().ok_or_else(|| NO_METER.to_owned()),
            export: console.export.clone().ok_or_else(|| NO_DELIVERY.to_owned()),
        };
        trace(&sources, id, self.admin.ledger.settings().clock.now()).await
    }
}

/// Follows an id in another process, through its admin port.
pub async fn trace_in(process: &Remote, id: &str) -> Result<Trace, Refusal> {
    process.read("/v1/trace", &[("id", id)]).await
}

/// Follows an id in a process that only meters usage.
pub(crate) async fn trace_in_meter(usage: &UsageSource, audit: &AuditLog, id: &str) -> Trace {
    let sources = Sources::<Local> {
        delivery: Err(NO_DELIVERY.to_owned()),
        ledger: Err(NO_LEDGER.to_owned()),
        histories: Histories::default(),
        audit: audit.clone(),
        meter: Ok(usage.clone()),
        export: Err(NO_DELIVERY.to_owned()),
    };
    trace(&sources, id, SystemClock::default().now()).await
}
