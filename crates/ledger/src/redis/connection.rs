//! The connection to the server: one that all calls share, or a cluster's.
//!
//! No command is sent twice from here, unless the server said that it did not run it: only the handle decides about
//! retries. The redis crate's connection manager keeps a connection that swallows bytes. This one is discarded when
//! a call on it is dropped and no call has had a reply since that call began.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{AsyncConnectionConfig, Client, Cmd, Pipeline, RedisResult, Value};

use super::address::{Address, CONNECT_TIMEOUT};
use super::cluster::Cluster;
use super::error::{Answers, CallError};
use crate::Result;

/// Commands that may wait to be written.
const QUEUE: usize = 1_024;

/// The connection to the server.
pub(super) enum Connection {
    Single(Box<SingleServer>),
    Cluster(Cluster),
}

impl Connection {
    pub(super) async fn open(address: &Address) -> Result<Self> {
        const DOING: &str = "connecting to Redis";
        if address.is_tls() {
            use_ring();
        }
        let opened = match address.cluster {
            true => Cluster::open(address).await.map(Connection::Cluster),
            false => SingleServer::open(address).await.map(|single| Connection::Single(Box::new(single))),
        };
        opened.map_err(|failure| failure.into_error(DOING))
    }

    /// Whether all keys are on one server.
    pub(super) fn is_single(&self) -> bool {
        matches!(self, Connection::Single(_))
    }

    /// Sends one command.
    pub(super) async fn call(&self, command: &Cmd) -> Result<Value, CallError> {
        match self {
            Connection::Single(single) => single.call(command).await,
            Connection::Cluster(cluster) => cluster.call(command).await,
        }
    }

    /// Closes the connection. A cluster's connections are closed when the ledger is dropped.
    pub(super) async fn close(&self) {
        if let Connection::Single(single) = self {
            let _turn = single.connecting.lock().await;
            single.keep(None);
        }
    }

    /// Sends commands on different keys: one round trip, or one per node.
    pub(super) async fn call_all(&self, commands: &Pipeline) -> Answers {
        match self {
            Connection::Single(single) => single.call_all(commands).await,
            Connection::Cluster(cluster) => cluster.call_all(commands).await,
        }
    }
}

/// rustls asks the process for its cryptography. Unless the program has chosen one, use ring.
fn use_ring() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // If another thread was faster, its choice stands.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

/// One server.
pub(super) struct SingleServer {
    client: Client,
    /// Locked for the moment of a lookup only.
    current: Mutex<Option<Shared>>,
    /// Held by the caller that connects, while the others wait for its connection.
    connecting: tokio::sync::Mutex<()>,
}

#[derive(Clone)]
struct Shared {
    connection: MultiplexedConnection,
    liveness: Arc<Liveness>,
}

/// Signs of life of a connection.
#[derive(Default)]
struct Liveness {
    answers: AtomicU64,
    broken: AtomicBool,
}

impl SingleServer {
    async fn open(address: &Address) -> Result<Self, CallError> {
        let client = match address.certificates.clone() {
            Some(certificates) => Client::build_with_tls(address.info.clone(), certificates),
            None => Client::open(address.info.clone()),
        };
        let client = client.map_err(CallError::unsent)?;
        let single = Self { client, current: Mutex::default(), connecting: tokio::sync::Mutex::default() };
        single.connection().await?;
        Ok(single)
    }

    async fn connection(&self) -> Result<Shared, CallError> {
        if let Some(shared) = self.current() {
            return Ok(shared);
        }
        let _turn = self.connecting.lock().await;
        if let Some(shared) = self.current() {
            return Ok(shared);
        }
        self.keep(None);
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(None)
            .set_pipeline_buffer_size(QUEUE);
        let connection = self.client.get_multiplexed_async_connection_with_config(&config).await;
        let shared = Shared {
            connection: connection.map_err(CallError::unsent)?,
            liveness: Arc::new(Liveness::default()),
        };
        self.keep(Some(shared.clone()));
        Ok(shared)
    }

    /// The connection, unless it is broken.
    fn current(&self) -> Option<Shared> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.as_ref().filter(|shared| !shared.liveness.broken.load(Ordering::Relaxed)).cloned()
    }

    fn keep(&self, shared: Option<Shared>) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = shared;
    }

    async fn call(&self, command: &Cmd) -> Result<Value, CallError> {
        let mut shared = self.connection().await?;
        let call = Call::begin(&shared);
        let answer = shared.connection.req_packed_command(command).await;
        call.end(answer).and_then(|value| value.extract_error().map_err(CallError::sent))
    }

    async fn call_all(&self, commands: &Pipeline) -> Answers {
        match self.send_all(commands).await {
            Ok(values) => {
                values.into_iter().map(|value| value.extract_error().map_err(CallError::sent)).collect()
            }
            Err(failure) => commands.cmd_iter().map(|_| Err(failure.clone())).collect(),
        }
    }

    async fn send_all(&self, commands: &Pipeline) -> Result<Vec<Value>, CallError> {
        let mut shared = self.connection().await?;
        let call = Call::begin(&shared);
        call.end(shared.connection.req_packed_commands(commands, 0, commands.len()).await)
    }
}

/// A call on a shared connection, until it ends or is dropped.
struct Call {
    liveness: Arc<Liveness>,
    answers_before: u64,
    ended: bool,
}

impl Call {
    fn begin(shared: &Shared) -> Self {
        let answers_before = shared.liveness.answers.load(Ordering::Relaxed);
        Self { liveness: shared.liveness.clone(), answers_before, ended: false }
    }

    fn end<T>(mut self, answer: RedisResult<T>) -> Result<T, CallError> {
        self.ended = true;
        match &answer {
            Ok(_) => drop(self.liveness.answers.fetch_add(1, Ordering::Relaxed)),
            Err(_) => self.liveness.broken.store(true, Ordering::Relaxed),
        }
        answer.map_err(CallError::sent)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.ended && self.liveness.answers.load(Ordering::Relaxed) == self.answers_before {
            self.liveness.broken.store(true, Ordering::Relaxed);
        }
    }
}
