//! Checks the channels of notices, and tries them if that is asked for.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ichido_core::{Clock, SystemClock};
use ichido_delivery::notice::{self, Channel, Message};
use ichido_delivery::tls_roots::TlsRoots;
use ichido_serve::Failure;
use ichido_settings::Invalid;

use super::{Report, Verdict};
use crate::delivery::NO_CHANNEL;
use crate::output;
use crate::settings::Settings;

/// The settings that name a channel.
const CHANNELS: [&str; 4] = [
    "delivery.slack_webhook_url",
    "delivery.smtp_url",
    "delivery.notify_webhook_url",
    "delivery.notify_command",
];
/// How long a channel may take.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Names the channels, if something sends notices, and sends a test notice through each of them if `notify`.
pub(super) async fn check(settings: &Settings, notify: bool, report: &mut Report) {
    let is_used = ["delivery", "export.dify", "meter.budgets"].iter().any(|section| settings.has(section))
        || settings.is_set("delivery.endpoint")
        || CHANNELS.iter().any(|setting| settings.is_set(setting));
    if !is_used && !notify {
        return;
    }
    let channels = match channels(settings) {
        Ok(channels) => channels,
        Err(failure) => return report.add("notices", Verdict::Failed, failure.to_string()),
    };
    if channels.is_empty() {
        let verdict = if notify { Verdict::Failed } else { Verdict::Warning };
        return report.add("notices", verdict, NO_CHANNEL.to_owned());
    }
    let names: Vec<String> = channels.iter().map(|channel| channel.describe()).collect();
    report.add("notices", Verdict::Ok, format!("each is sent by {}", names.join(", ")));
    if !notify {
        return;
    }
    let message = Message::test(output::time(SystemClock::default().now()));
    for channel in channels {
        let sent = tokio::time::timeout(TIMEOUT, channel.send(&message)).await;
        match sent {
            Ok(Ok(())) => {
                report.add("notify", Verdict::Ok, format!("{} accepted a test notice", channel.describe()))
            }
            Ok(Err(failure)) => {
                report.add("notify", Verdict::Failed, format!("{}: {failure}", channel.describe()))
            }
            Err(_) => {
                let detail = format!("{}: no response within {} s", channel.describe(), TIMEOUT.as_secs());
                report.add("notify", Verdict::Failed, detail);
            }
        }
    }
}

fn channels(settings: &Settings) -> Result<Vec<Box<dyn Channel>>, Failure> {
    let (configured, delivery) = (settings.notices()?, settings.raw_delivery()?);
    let ca_file = delivery.ca_file.filter(|file| !file.is_empty()).map(PathBuf::from);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let open = || -> Result<_, Invalid> {
        notice::channels(&configured, &TlsRoots::read(ca_file.as_deref())?, &clock)
    };
    open().map_err(|invalid| settings.failure(&invalid))
}
