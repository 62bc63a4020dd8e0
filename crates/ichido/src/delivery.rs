//! What `send`, `spool` and `failed` share: the wiring of a sender, and how a run ends.

mod feed;
mod list;
mod progress;

use std::path::PathBuf;
use std::sync::Arc;

use ichido_core::{Clock, SystemClock, SystemEntropy};
use ichido_delivery::alarm::Alarm;
use ichido_delivery::counters::Counters;
use ichido_delivery::notice::{self, Notices};
use ichido_delivery::sender::{Parts, Sender};
use ichido_delivery::settings::{self, Settings};
use ichido_delivery::store::{Place, Store};
use ichido_delivery::token::Token;
use ichido_delivery::transport::Transport;
use ichido_delivery::trust::Trust;
use tokio_util::sync::CancellationToken;

use crate::exit::{Code, Failure};

pub(crate) use feed::{Fed, feed};
pub(crate) use list::{list, show};
pub(crate) use progress::Progress;

/// A variable of the environment.
pub(crate) fn env(name: &str) -> Result<Option<String>, String> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => Err(format!("{name} is not valid UTF-8")),
    }
}

/// Where batches lie.
pub(crate) fn data_dir() -> Result<PathBuf, Failure> {
    Ok(settings::data_dir(&env)?)
}

/// Whether the environment says where batches go.
pub(crate) fn has_endpoint() -> bool {
    std::env::var_os("EXTERNAL_API_ENDPOINT").is_some()
}

/// The settings of the sender.
pub(crate) fn settings() -> Result<Settings, Failure> {
    Ok(Settings::read(&env)?)
}

/// A sender, ready to work. Whatever is wrong with the settings is found before anything is touched.
pub(crate) fn sender(settings: &Settings, stop: CancellationToken) -> Result<Sender, Failure> {
    let token = Token::open(settings.token.clone()).map_err(|error| Failure::usage(error.to_string()))?;
    let trust = Trust::read(settings.ca_file.as_deref())?;
    let transport = Transport::new(settings.transport.clone(), &trust, token).map_err(Failure::usage)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let notice = notice::Settings::read(&env, settings.allow_http_loopback)?;
    let channels = notice.channels(&trust, &clock)?;
    let store = Store::open(&settings.data_dir, settings.store, clock.now())?;
    let notices = settings.data_dir.join("notices");
    let notices = Notices::open(&notices, channels, clock.clone())
        .map_err(|error| Failure::usage(format!("preparing {}: {error}", notices.display())))?;
    let alarm = Arc::new(Alarm::new(notices, &settings.transport.endpoint.place()));
    let parts =
        Parts { store, transport: Box::new(transport), alarm, clock, entropy: Arc::new(SystemEntropy), stop };
    Ok(Sender::new(settings, parts))
}

/// The end of a run: nothing is left in its hands, and people are told what they must know.
pub(crate) async fn finish(sender: &mut Sender) -> Counters {
    sender.finish().await;
    let told = sender.alarm().drain().await;
    if told.waiting > 0 {
        tracing::warn!(waiting = told.waiting, "notices could not be sent yet; they wait in the outbox");
    }
    sender.counters()
}

/// How a run ends: the worst wins.
pub(crate) fn verdict(sender: &Sender, counters: &Counters, trouble: Option<Failure>) -> Result<(), Failure> {
    if counters.lost > 0 {
        let lost = counters.lost;
        return Err(Failure::internal(format!(
            "{lost} batches were neither delivered nor written down (the disk is full): send them again"
        )));
    }
    if let Some(failure) = trouble {
        return Err(failure);
    }
    let dir = |place| sender.layout().dir(place).display().to_string();
    if counters.failed_moved > 0 {
        let message = format!("{} batches are in {}", counters.failed_moved, dir(Place::Failed));
        return Err(Failure::undelivered(Code::Failed, message));
    }
    let waiting = || format!("{} batches wait in {}", counters.spool_size, dir(Place::Spool));
    match sender.held() {
        Some(reason) => Err(Failure::undelivered(
            Code::Waiting,
            format!("nothing goes until someone acts: {reason}; {}", waiting()),
        )),
        None if counters.spool_size > 0 => Err(Failure::undelivered(Code::Waiting, waiting())),
        None => Ok(()),
    }
}

/// Says what a run did: a sentence for people, a line for scripts, a line for the log.
pub(crate) fn report(counters: &Counters, json: bool) -> Result<(), Failure> {
    let line = serde_json::to_string(counters)
        .map_err(|error| Failure::internal(format!("writing JSON: {error}")))?;
    tracing::info!(metrics = line, "run finished");
    if json {
        println!("{line}");
        return Ok(());
    }
    let Counters {
        send_success, send_duplicate, records_delivered, retries, spool_size, failed_moved, ..
    } = counters;
    println!(
        "{send_success} batches arrived ({records_delivered} records, {send_duplicate} duplicates, {retries} retries); \
         {spool_size} wait in the spool; {failed_moved} went to failed"
    );
    Ok(())
}
