//! Connections that changed protocols, such as WebSockets: bytes go both ways until one side closes.
//!
//! hyper counts such a connection as ended, so they are kept track of here: at shutdown they may finish in the time that
//! requests have, and are closed then.

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The tunnels of a gateway.
#[derive(Clone, Debug, Default)]
pub(super) struct Tunnels {
    open: TaskTracker,
    close: CancellationToken,
}

impl Tunnels {
    /// Joins two connections that are about to change protocols.
    pub(super) fn join(&self, client_side: OnUpgrade, service_side: OnUpgrade) {
        let close = self.close.clone();
        self.open.spawn(async move {
            let _ = close.run_until_cancelled(carry(client_side, service_side)).await;
        });
    }

    /// Waits until all are closed, and closes those that are still open at the deadline.
    pub(super) async fn drain(&self, deadline: Instant) {
        self.open.close();
        if tokio::time::timeout_at(deadline, self.open.wait()).await.is_err() {
            tracing::warn!(open = self.open.len(), "closing upgraded connections: shutdown_seconds is over");
        }
        self.close.cancel();
        self.open.wait().await;
    }
}

async fn carry(client_side: OnUpgrade, service_side: OnUpgrade) {
    match tokio::try_join!(client_side, service_side) {
        Ok((client_side, service_side)) => {
            let (mut client_side, mut service_side) = (TokioIo::new(client_side), TokioIo::new(service_side));
            if let Err(error) = tokio::io::copy_bidirectional(&mut client_side, &mut service_side).await {
                tracing::debug!(%error, "upgraded connection ended");
            }
        }
        Err(error) => tracing::warn!(%error, "connection could not be upgraded"),
    }
}
