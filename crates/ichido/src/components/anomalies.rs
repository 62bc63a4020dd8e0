//! Looks for what is unusual in the history, once for every completed hour, and reports it: log, metric and notice.
//!
//! It works in the background, on files that the recorder has written. No request waits for it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ichido_admin::ConsoleUrl;
use ichido_core::Clock;
use ichido_delivery::notice::Event;
use ichido_history::anomalies::{AnomalySettings, Checked, Finding, Kind, check};
use ichido_serve::Failure;
use metrics::counter;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::components::outbox::Outbox;
use crate::settings::Settings;

/// How often it looks whether another hour is complete.
const INTERVAL: Duration = Duration::from_secs(60);
/// Findings of one check that are reported one by one. The others are only counted.
const REPORTED_MAX: usize = 100;
/// A longer link is not sent: programs would cut it, and a message has room for several.
const LINK_BYTES_MAX: usize = 2_000;

/// Starts to look, until `stop`. `None` if nothing is recorded, or anomalies are off.
pub(crate) fn start(settings: &Settings, stop: CancellationToken) -> Result<Option<JoinHandle<()>>, Failure> {
    let anomalies = settings.anomalies()?;
    let Some(history) = settings.history()?.filter(|_| anomalies.is_enabled) else { return Ok(None) };
    for kind in Kind::ALL {
        counter!("ichido_anomalies_total", "kind" => kind.name()).increment(0);
    }
    let outbox = Outbox::new(settings, history.clock.clone(), stop.clone())?;
    let console = settings.console.url.clone();
    let watch =
        Watch { dir: history.dir, clock: history.clock, settings: anomalies, console, outbox, failures: 0 };
    Ok(Some(tokio::spawn(watch.run(stop))))
}

struct Watch {
    dir: PathBuf,
    clock: Arc<dyn Clock>,
    settings: AnomalySettings,
    /// Where the console is, if that is known.
    console: Option<ConsoleUrl>,
    outbox: Outbox,
    /// Checks that failed since the last one that did not. The first failure may be due to the file, which is being created.
    failures: u32,
}

impl Watch {
    async fn run(mut self, stop: CancellationToken) {
        self.outbox.send_what_waits();
        loop {
            self.check().await;
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(INTERVAL) => {}
            }
        }
        self.outbox.close().await;
    }

    async fn check(&mut self) {
        let (dir, now, settings) = (self.dir.clone(), self.clock.now(), self.settings);
        let checked = tokio::task::spawn_blocking(move || check(&dir, now, &settings)).await;
        match checked {
            Ok(Ok(checked)) => {
                self.failures = 0;
                if let Some(checked) = checked {
                    self.report(checked).await;
                }
            }
            Ok(Err(error)) => {
                self.failures = self.failures.saturating_add(1);
                if self.failures == 2 {
                    tracing::warn!(%error, "cannot look for anomalies");
                }
            }
            Err(error) => tracing::error!(%error, "the check for anomalies panicked"),
        }
    }

    async fn report(&mut self, checked: Checked) {
        let reported = &checked.findings[..checked.findings.len().min(REPORTED_MAX)];
        for Finding { kind, .. } in &checked.findings {
            counter!("ichido_anomalies_total", "kind" => kind.name()).increment(1);
        }
        for finding in reported {
            let Finding { kind, route, source, instance, observed, usual, text, command, .. } = finding;
            let (kind, link) = (kind.name(), self.link(finding));
            tracing::warn!(kind, route, source, instance, observed, usual, text, command, link, "anomaly");
        }
        let unreported = checked.findings.len() - reported.len();
        if unreported > 0 {
            tracing::warn!(unreported, command = "ichido events anomalies", "more anomalies were found");
        }
        if !reported.is_empty() {
            let events = reported.iter().map(|finding| self.event(finding)).collect();
            // If they are not on disk, they are sent from memory.
            let _ = self.outbox.announce(events).await;
        }
        if let Err(error) = checked.done() {
            tracing::warn!(%error, dir = %self.dir.display(), "cannot note that an hour was checked");
        }
    }

    fn event(&self, finding: &Finding) -> Event {
        let Finding { kind, text, command, .. } = finding;
        Event::Anomaly {
            kind: kind.name().to_owned(),
            text: text.clone(),
            command: command.clone(),
            link: self.link(finding),
        }
    }

    fn link(&self, finding: &Finding) -> Option<String> {
        let link = self.console.as_ref()?.page(&finding.page);
        (link.len() <= LINK_BYTES_MAX).then_some(link)
    }
}
