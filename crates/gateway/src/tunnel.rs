//! Upgraded connections such as WebSockets: bytes are copied both ways until one side closes.
//!
//! hyper considers an upgraded connection finished, so it is tracked here. At shutdown it has as much time as requests
//! have, and is closed then.

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The upgraded connections of a gateway.
#[derive(Clone, Debug, Default)]
pub(super) struct Tunnels {
    tasks: TaskTracker,
    close: CancellationToken,
}

impl Tunnels {
    /// Connects two connections that are about to be upgraded.
    pub(super) fn open(&self, client_side: OnUpgrade, upstream_side: OnUpgrade) {
        let close = self.close.clone();
        self.tasks.spawn(async move {
            let _ = close.run_until_cancelled(copy(client_side, upstream_side)).await;
        });
    }

    /// Waits until all are closed, and closes those that are open at the deadline.
    pub(super) async fn drain(&self, deadline: Instant) {
        self.tasks.close();
        if tokio::time::timeout_at(deadline, self.tasks.wait()).await.is_err() {
            tracing::warn!(
                open = self.tasks.len(),
                "closing upgraded connections: shutdown_seconds has passed"
            );
        }
        self.close.cancel();
        self.tasks.wait().await;
    }
}

async fn copy(client_side: OnUpgrade, upstream_side: OnUpgrade) {
    match tokio::try_join!(client_side, upstream_side) {
        Ok((client_side, upstream_side)) => {
            let (mut client_side, mut upstream_side) =
                (TokioIo::new(client_side), TokioIo::new(upstream_side));
            if let Err(error) = tokio::io::copy_bidirectional(&mut client_side, &mut upstream_side).await {
                tracing::debug!(%error, "upgraded connection failed");
            }
        }
        Err(error) => tracing::warn!(%error, "cannot upgrade a connection"),
    }
}
