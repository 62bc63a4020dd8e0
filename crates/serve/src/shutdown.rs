//! Shutdown on signals.
//!
//! After the first SIGTERM or SIGINT the process finishes the requests in progress. The second exits at once: the sender
//! does not want to wait any longer, and the ledger survives crashes.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::failure::{ExitClass, Failure};
use crate::stderr::FlushOnDrop;

/// The target of log lines about the start and the end of a process. They are written at every log level.
pub const LIFECYCLE: &str = "ichido::lifecycle";
/// The exit code after Ctrl-C, as shells report it for a process that SIGINT killed.
pub const INTERRUPTED: u8 = 128 + 2;

/// Whether a SIGINT has arrived. A process has one set of signal handlers.
static IS_INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Whether somebody pressed Ctrl-C.
pub fn is_interrupted() -> bool {
    IS_INTERRUPTED.load(Ordering::Relaxed)
}

/// Returns a token that the first signal cancels. The second signal exits the process.
pub fn on_signals() -> Result<CancellationToken, Failure> {
    let mut signals = listen()?;
    let stop = CancellationToken::new();
    let cancelled = stop.clone();
    tokio::spawn(async move {
        next(&mut signals).await;
        tracing::info!(target: LIFECYCLE, "stopping after the requests in progress; a second signal exits at once");
        cancelled.cancel();
        next(&mut signals).await;
        tracing::warn!(target: LIFECYCLE, "exiting at once");
        drop(FlushOnDrop);
        let code = if is_interrupted() { i32::from(INTERRUPTED) } else { ExitClass::Internal as i32 };
        std::process::exit(code);
    });
    Ok(stop)
}

/// Returns a future that waits for the first signal. Later signals are ignored, so this is for work that must clean up
/// and does so quickly.
pub fn first_signal() -> Result<impl Future<Output = ()>, Failure> {
    let mut signals = listen()?;
    Ok(async move { next(&mut signals).await })
}

fn listen() -> Result<(Signal, Signal), Failure> {
    let listen =
        |kind| signal(kind).map_err(|error| Failure::internal(format!("cannot listen for signals: {error}")));
    Ok((listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?))
}

async fn next((terminate, interrupt): &mut (Signal, Signal)) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => IS_INTERRUPTED.store(true, Ordering::Relaxed),
    }
}
