//! What `send`, `spool`, `failed`, `export` and the delivery component share: a sender, and the result of a run.

use std::sync::Arc;

use ichido_core::{Clock, SystemClock, SystemEntropy};
use ichido_delivery::counters::Counters;
use ichido_delivery::notice::{self, Channel, Notices};
use ichido_delivery::notifier::Notifier;
use ichido_delivery::sender::{Dependencies, Sender};
use ichido_delivery::settings::Settings;
use ichido_delivery::store::{BatchDir, Store};
use ichido_delivery::tls_roots::TlsRoots;
use ichido_delivery::token::Token;
use ichido_delivery::transport::HttpTransport;
use ichido_settings::Invalid;
use tokio_util::sync::CancellationToken;

use crate::output::count;
use crate::settings::Settings as ProcessSettings;
use ichido_serve::{ExitClass, Failure};

/// The warning if nobody would be notified of a batch in failed.
pub(crate) const NO_CHANNEL: &str = "no notification channel is configured: notices go to the log only (set SLACK_WEBHOOK_URL, SMTP_URL, \
     NOTIFY_WEBHOOK_URL or NOTIFY_COMMAND)";

/// The connections to the outside: the receiver, and the channels for notices.
pub(crate) struct Connections {
    transport: HttpTransport,
    channels: Vec<Box<dyn Channel>>,
}

impl Connections {
    /// Reads the files that the settings name. Connects to nothing, and changes nothing.
    pub(crate) fn open(process: &ProcessSettings, settings: &Settings) -> Result<Self, Failure> {
        let notices = process.notices()?;
        let opened = || -> Result<Self, Invalid> {
            let token = Token::open(settings.token.clone())?;
            let roots = TlsRoots::read(settings.ca_file.as_deref())?;
            let transport = HttpTransport::new(settings.transport.clone(), &roots, token)?;
            let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
            Ok(Self { transport, channels: notice::channels(&notices, &roots, &clock)? })
        };
        opened().map_err(|invalid| process.failure(&invalid))
    }
}

/// A sender, ready to send. Invalid settings are reported before anything is changed.
pub(crate) fn sender(
    process: &ProcessSettings,
    settings: &Settings,
    stop: CancellationToken,
) -> Result<Sender, Failure> {
    let Connections { transport, channels } = Connections::open(process, settings)?;
    if channels.is_empty() {
        tracing::warn!("{NO_CHANNEL}");
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let store = Store::open(&settings.data_dir, settings.store, clock.now()).map_err(Failure::usage_from)?;
    let notices = settings.data_dir.join("notices");
    let notices = Notices::open(&notices, channels, clock.clone())
        .map_err(|error| Failure::usage(format!("cannot open {}: {error}", notices.display())))?;
    let notifier = Arc::new(Notifier::new(notices, &settings.transport.endpoint.origin()));
    let deps = Dependencies {
        store,
        transport: Arc::new(transport),
        notifier,
        clock,
        entropy: Arc::new(SystemEntropy),
        stop,
    };
    Ok(Sender::new(settings, deps))
}

/// Finishes a run: every batch is delivered or on disk, and notices are sent.
pub(crate) async fn finish(sender: &mut Sender) -> Counters {
    sender.finish().await;
    let drained = sender.notifier().drain().await;
    if drained.waiting > 0 {
        tracing::warn!(waiting = drained.waiting, "notices were not sent; they stay in the outbox");
    }
    sender.counters()
}

/// How a run ends. The worst result decides.
pub(crate) fn verdict(sender: &Sender, counters: &Counters, failure: Option<Failure>) -> Result<(), Failure> {
    if counters.lost > 0 {
        let lost = count(counters.lost, "batch was", "batches were");
        return Err(Failure::internal(format!(
            "{lost} neither delivered nor written to disk (disk full): send the input again"
        )));
    }
    if let Some(failure) = failure {
        return Err(failure);
    }
    let dir = |name| sender.layout().dir(name).display().to_string();
    if counters.failed_moved > 0 {
        let moved = count(counters.failed_moved, "batch is", "batches are");
        let message = format!("{moved} in {}", dir(BatchDir::Failed));
        return Err(Failure::new(ExitClass::Failed, message));
    }
    let spooled = || {
        let batches = count(counters.spool_size, "batch is", "batches are");
        format!("{batches} in {}", dir(BatchDir::Spool))
    };
    match sender.held() {
        Some(reason) => Err(Failure::new(
            ExitClass::Undelivered,
            format!("the lane is held until an operator acts: {reason}; {}", spooled()),
        )),
        None if counters.spool_size > 0 => Err(Failure::new(ExitClass::Undelivered, spooled())),
        None => Ok(()),
    }
}

/// Logs the counters of a run as an object `metrics`.
fn log_metrics(counters: Counters) {
    let Counters {
        send_total,
        send_success,
        send_duplicate,
        send_failed,
        retries,
        retry_success,
        spool_saved,
        spool_resend_attempts,
        spool_resend_success,
        spool_returned: _,
        failed_moved,
        spool_size,
        records_delivered,
        lost,
    } = counters;
    tracing::info!(
        metrics.sendTotal = send_total,
        metrics.sendSuccess = send_success,
        metrics.sendDuplicate = send_duplicate,
        metrics.sendFailed = send_failed,
        metrics.retries = retries,
        metrics.retrySuccess = retry_success,
        metrics.spoolSaved = spool_saved,
        metrics.spoolResendAttempts = spool_resend_attempts,
        metrics.spoolResendSuccess = spool_resend_success,
        metrics.failedMoved = failed_moved,
        metrics.spoolSize = spool_size,
        metrics.recordsDelivered = records_delivered,
        metrics.lost = lost,
        "run finished"
    );
}

/// Logs and prints what a run did.
pub(crate) fn report(counters: &Counters, json: bool) -> Result<(), Failure> {
    let line = serde_json::to_string(counters)
        .map_err(|error| Failure::internal(format!("cannot write JSON: {error}")))?;
    log_metrics(*counters);
    if json {
        outln!("{line}");
        return Ok(());
    }
    let Counters {
        send_success, send_duplicate, records_delivered, retries, spool_size, failed_moved, ..
    } = counters;
    outln!(
        "{} delivered ({}, {}, {}); {spool_size} in the spool; {failed_moved} moved to failed",
        count(*send_success, "batch", "batches"),
        count(*records_delivered, "record", "records"),
        count(*send_duplicate, "duplicate", "duplicates"),
        count(*retries, "retry", "retries"),
    );
    Ok(())
}
