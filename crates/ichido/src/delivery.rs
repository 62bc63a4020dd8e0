//! What `send`, `spool` and `failed` share: the wiring of a sender, and how a run ends.

mod values;

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
use tokio_util::sync::CancellationToken;

use crate::output::count;
use ichido_serve::{ExitClass, Failure};

pub(crate) use values::Values;

/// What is said where nobody would be told of a batch in failed.
pub(crate) const NO_CHANNEL: &str =
    "no notification channel is configured: notices go to the log only (set SLACK_WEBHOOK_URL or SMTP_URL)";

/// A variable of the environment.
pub(crate) fn env(name: &str) -> Result<Option<String>, String> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => Err(format!("{name} is not valid UTF-8")),
    }
}

/// The ways out: to the receiver, and to people.
pub(crate) struct Ways {
    transport: HttpTransport,
    channels: Vec<Box<dyn Channel>>,
}

impl Ways {
    /// Whether someone is told of what went wrong who does not read the log.
    pub(crate) fn reach_people(&self) -> bool {
        !self.channels.is_empty()
    }

    /// Whatever the settings name is read; nothing is connected, and nothing touched.
    pub(crate) fn open(values: &Values, settings: &Settings) -> Result<Self, Failure> {
        let opened = || -> Result<Self, Failure> {
            let token =
                Token::open(settings.token.clone()).map_err(|error| Failure::usage(error.to_string()))?;
            let trust = TlsRoots::read(settings.ca_file.as_deref()).map_err(Failure::usage_from)?;
            let transport =
                HttpTransport::new(settings.transport.clone(), &trust, token).map_err(Failure::usage)?;
            let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
            let get = |name: &str| values.get(name);
            let notice =
                notice::Settings::read(&get, settings.allow_http_loopback).map_err(Failure::usage_from)?;
            Ok(Self {
                transport,
                channels: notice::channels(&notice, &trust, &clock).map_err(Failure::usage_from)?,
            })
        };
        opened().map_err(|failure| values.named(failure))
    }
}

/// A sender, ready to work. Whatever is wrong with the settings is found before anything is touched.
pub(crate) fn sender(
    values: &Values,
    settings: &Settings,
    stop: CancellationToken,
) -> Result<Sender, Failure> {
    let Ways { transport, channels } = Ways::open(values, settings)?;
    if channels.is_empty() {
        tracing::warn!("{NO_CHANNEL}");
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let store = Store::open(&settings.data_dir, settings.store, clock.now()).map_err(Failure::usage_from)?;
    let notices = settings.data_dir.join("notices");
    let notices = Notices::open(&notices, channels, clock.clone())
        .map_err(|error| Failure::usage(format!("preparing {}: {error}", notices.display())))?;
    let notifier = Arc::new(Notifier::new(notices, &settings.transport.endpoint.origin()));
    let deps = Dependencies {
        store,
        transport: Box::new(transport),
        notifier,
        clock,
        entropy: Arc::new(SystemEntropy),
        stop,
    };
    Ok(Sender::new(settings, deps))
}

/// The end of a run: nothing is left in its hands, and people are told what they must know.
pub(crate) async fn finish(sender: &mut Sender) -> Counters {
    sender.finish().await;
    let told = sender.notifier().drain().await;
    if told.waiting > 0 {
        tracing::warn!(waiting = told.waiting, "notices could not be sent yet; they wait in the outbox");
    }
    sender.counters()
}

/// How a run ends: the worst wins.
pub(crate) fn verdict(sender: &Sender, counters: &Counters, trouble: Option<Failure>) -> Result<(), Failure> {
    if counters.lost > 0 {
        let lost = count(counters.lost, "batch was", "batches were");
        return Err(Failure::internal(format!(
            "{lost} neither delivered nor written down (the disk is full): send the input again"
        )));
    }
    if let Some(failure) = trouble {
        return Err(failure);
    }
    let dir = |place| sender.layout().dir(place).display().to_string();
    if counters.failed_moved > 0 {
        let moved = count(counters.failed_moved, "batch is", "batches are");
        let message = format!("{moved} in {}", dir(BatchDir::Failed));
        return Err(Failure::new(ExitClass::Failed, message));
    }
    let waiting = || {
        let batches = count(counters.spool_size, "batch waits", "batches wait");
        format!("{batches} in {}", dir(BatchDir::Spool))
    };
    match sender.held() {
        Some(reason) => Err(Failure::new(
            ExitClass::Undelivered,
            format!("nothing goes until someone acts: {reason}; {}", waiting()),
        )),
        None if counters.spool_size > 0 => Err(Failure::new(ExitClass::Undelivered, waiting())),
        None => Ok(()),
    }
}

/// One line at the end of a run, with an object `metrics`.
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

/// Says what a run did: a sentence for people, a line for scripts, a line for the log.
pub(crate) fn report(counters: &Counters, json: bool) -> Result<(), Failure> {
    let line = serde_json::to_string(counters)
        .map_err(|error| Failure::internal(format!("writing JSON: {error}")))?;
    log_metrics(*counters);
    if json {
        outln!("{line}");
        return Ok(());
    }
    let Counters {
        send_success, send_duplicate, records_delivered, retries, spool_size, failed_moved, ..
    } = counters;
    outln!(
        "{} arrived ({}, {}, {}); {} in the spool; {failed_moved} went to failed",
        count(*send_success, "batch", "batches"),
        count(*records_delivered, "record", "records"),
        count(*send_duplicate, "duplicate", "duplicates"),
        count(*retries, "retry", "retries"),
        count(*spool_size, "waits", "wait"),
    );
    Ok(())
}
