//! A Redis cluster.
//!
//! The redis crate routes by key. Its own retries are off, because it would resend a command after a broken
//! connection. Redirections, where the first node certainly did nothing, are followed here.

use futures_util::StreamExt as _;
use futures_util::stream;
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{RoutingInfo, SingleNodeRoutingInfo};
use redis::{
    Cmd, ConnectionAddr, ErrorKind, Pipeline, RedisError, RedisResult, ServerErrorKind, TlsMode, Value,
};

use super::address::{Address, CONNECT_TIMEOUT, tcp_settings};
use super::error::{Answers, CallError};

/// One redirection, and more if the slot moves again meanwhile.
const REDIRECTIONS: usize = 3;
/// Commands of one batch that are in flight at once.
const AT_ONCE: usize = 256;

pub(super) struct Cluster {
    connection: ClusterConnection,
    /// Where we connected: nodes that do not know their own host are there.
    host: String,
}

/// A node that owns slots.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Node {
    pub(super) id: String,
    host: String,
    port: u16,
}

impl Cluster {
    pub(super) async fn open(address: &Address) -> Result<Self, CallError> {
        let host = match address.info.addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host.clone(),
            // The URL's scheme allows no other kind.
            ConnectionAddr::Unix(_) | _ => String::new(),
        };
        let mut builder = ClusterClientBuilder::new([address.info.clone()])
            .retries(0)
            .connection_timeout(CONNECT_TIMEOUT)
            .overall_response_timeout(None)
            .tcp_settings(tcp_settings());
        if address.is_tls() {
            builder = builder.tls(TlsMode::Secure);
        }
        if let Some(certificates) = address.certificates.clone() {
            builder = builder.certs(certificates);
        }
        let client = builder.build().map_err(CallError::unsent)?;
        let connection = client.get_async_connection().await.map_err(CallError::unsent)?;
        Ok(Self { connection, host })
    }

    pub(super) async fn call(&self, command: &Cmd) -> Result<Value, CallError> {
        let mut connection = self.connection.clone();
        let mut answer = flat(redis::aio::ConnectionLike::req_packed_command(&mut connection, command).await);
        for _ in 0..REDIRECTIONS {
            let Err(error) = &answer else { break };
            let Some(there) = redirected(error) else { break };
            answer = match error.kind() == ErrorKind::Server(ServerErrorKind::Ask) {
                true => ask(&mut connection, command, there).await,
                false => {
                    flat(connection.route_command(command.clone(), RoutingInfo::SingleNode(there)).await)
                }
            };
        }
        answer.map_err(CallError::sent)
    }

    pub(super) async fn call_all(&self, commands: &Pipeline) -> Answers {
        let calls: Vec<_> = commands.cmd_iter().map(|command| self.call(command)).collect();
        stream::iter(calls).buffered(AT_ONCE).collect().await
    }

    /// Sends a command to one node, whatever its keys.
    pub(super) async fn call_node(&self, node: &Node, command: &Cmd) -> Result<Value, CallError> {
        let there = SingleNodeRoutingInfo::ByAddress { host: node.host.clone(), port: node.port };
        let mut connection = self.connection.clone();
        let answer = connection.route_command(command.clone(), RoutingInfo::SingleNode(there)).await;
        flat(answer).map_err(CallError::sent)
    }

    /// The nodes that own slots, ordered by id.
    pub(super) async fn nodes(&self) -> Result<Vec<Node>, CallError> {
        let mut connection = self.connection.clone();
        let anywhere = RoutingInfo::SingleNode(SingleNodeRoutingInfo::Random);
        let mut command = redis::cmd("CLUSTER");
        command.arg("SLOTS");
        let slots = flat(connection.route_command(command, anywhere).await).map_err(CallError::sent)?;
        let Value::Array(ranges) = slots else { return Ok(Vec::new()) };
        let mut nodes: Vec<_> = ranges.into_iter().filter_map(|range| self.primary(range)).collect();
        nodes.sort_unstable();
        nodes.dedup();
        Ok(nodes)
    }

    /// The primary of a slot range: first slot, last slot, then nodes with host, port and id each.
    fn primary(&self, range: Value) -> Option<Node> {
        let Value::Array(range) = range else { return None };
        let Some(Value::Array(node)) = range.into_iter().nth(2) else { return None };
        let mut node = node.into_iter();
        let host: Option<String> = redis::from_redis_value(node.next()?).ok()?;
        let port = redis::from_redis_value(node.next()?).ok()?;
        let id = redis::from_redis_value(node.next()?).ok()?;
        let host = host.filter(|host| !host.is_empty()).unwrap_or_else(|| self.host.clone());
        Some(Node { id, host, port })
    }
}

fn flat(answer: RedisResult<Value>) -> RedisResult<Value> {
    answer.and_then(Value::extract_error)
}

fn redirected(error: &RedisError) -> Option<SingleNodeRoutingInfo> {
    let (address, _slot) = error.redirect_node()?;
    let (host, port) = address.rsplit_once(':')?;
    Some(SingleNodeRoutingInfo::ByAddress { host: host.to_owned(), port: port.parse().ok()? })
}

/// Sends a command to a node that is importing the slot. Both commands are sent together.
async fn ask(
    connection: &mut ClusterConnection,
    command: &Cmd,
    there: SingleNodeRoutingInfo,
) -> RedisResult<Value> {
    let mut pipeline = Pipeline::with_capacity(2);
    pipeline.cmd("ASKING").add_command(command.clone());
    let mut answers = connection.route_pipeline(pipeline, 0, 2, there).await?;
    flat(
        answers.pop().ok_or_else(|| RedisError::from((ErrorKind::Parse, "no reply to a redirected command"))),
    )
}
