//! How a process that serves is asked to end.
//!
//! The first SIGTERM or SIGINT asks: what is under way is finished. The second ends the process at once: whoever sends
//! it has waited long enough, and the ledger is made for processes that die.

use std::io::Write as _;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::{Code, Failure};

/// A token that is cancelled by the first signal.
pub fn on_signals() -> Result<CancellationToken, Failure> {
    let mut signals = listen()?;
    let stop = CancellationToken::new();
    let asked = stop.clone();
    tokio::spawn(async move {
        next(&mut signals).await;
        say("finishing requests in progress; a second signal exits at once");
        asked.cancel();
        next(&mut signals).await;
        say("exiting at once");
        std::process::exit(Code::Internal as i32);
    });
    Ok(stop)
}

/// Waits for the first signal. Those that follow are swallowed: this is for work that must tidy up, and is quick about it.
pub fn asked() -> Result<impl Future<Output = ()>, Failure> {
    let mut signals = listen()?;
    Ok(async move { next(&mut signals).await })
}

fn listen() -> Result<(Signal, Signal), Failure> {
    let listen =
        |kind| signal(kind).map_err(|error| Failure::internal(format!("listening for signals: {error}")));
    Ok((listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?))
}

async fn next((terminate, interrupt): &mut (Signal, Signal)) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// Tells the operator on standard error. If nobody reads it, there is nowhere else to tell.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "ichido: {line}");
}
