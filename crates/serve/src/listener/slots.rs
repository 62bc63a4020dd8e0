//! The connection slots of a listener.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::Limits;

/// The shortest interval between two warnings that all slots are taken.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// The slots for connections, and the reserved connections.
///
/// A client that takes all slots, for example with requests that it never finishes, cannot stop others from checking
/// the health of the process: their connections are reserved ones.
pub(super) struct Slots {
    listener: &'static str,
    permits: Arc<Semaphore>,
    connections_max: usize,
    reserved_max: usize,
    /// The tasks of reserved connections, oldest first.
    reserved: VecDeque<JoinHandle<()>>,
    warned_at: Option<Instant>,
}

impl Slots {
    pub(super) fn new(listener: &'static str, limits: &Limits) -> Self {
        let connections_max = limits.connections_max.min(Semaphore::MAX_PERMITS);
        Self {
            listener,
            permits: Arc::new(Semaphore::new(connections_max)),
            connections_max,
            reserved_max: limits.reserved_max,
            reserved: VecDeque::new(),
            warned_at: None,
        }
    }

    /// Accepts the next connection. Without a permit it is a reserved one. If there are no reserved connections, waits
    /// for a permit first.
    pub(super) async fn accept(
        &mut self,
        socket: &TcpListener,
    ) -> io::Result<(TcpStream, SocketAddr, Option<OwnedSemaphorePermit>)> {
        let permit = match self.reserved_max {
            0 => {
                self.warn_if_full();
                Some(self.permits.clone().acquire_owned().await.map_err(io::Error::other)?)
            }
            _ => None,
        };
        let (stream, address) = socket.accept().await?;
        let _ = stream.set_nodelay(true);
        let permit = permit.or_else(|| {
            self.warn_if_full();
            self.permits.clone().try_acquire_owned().ok()
        });
        Ok((stream, address, permit))
    }

    /// Remembers the task of a reserved connection. If there are too many, the oldest is aborted.
    pub(super) fn reserve(&mut self, task: JoinHandle<()>) {
        self.reserved.retain(|task| !task.is_finished());
        if self.reserved.len() >= self.reserved_max
            && let Some(oldest) = self.reserved.pop_front()
        {
            oldest.abort();
        }
        self.reserved.push_back(task);
    }

    fn warn_if_full(&mut self) {
        let is_full = self.permits.available_permits() == 0;
        if is_full && self.warned_at.is_none_or(|at| at.elapsed() > WARNING_INTERVAL) {
            self.warned_at = Some(Instant::now());
            tracing::warn!(
                listener = self.listener,
                connections_max = self.connections_max,
                "connection limit reached"
            );
        }
    }
}
