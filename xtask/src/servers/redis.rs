//! Redis, in the four configurations that tests and benchmarks need.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use super::Starting;
use crate::certificates::Certificates;
use crate::process::{Server, Signal, TiedCommand};

const IN_MEMORY: [&str; 6] = ["--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction"];

/// A single server, in memory.
pub(super) fn start_plain(port: u16, scratch: &Path) -> Result<Starting> {
    let server = start("redis", &["--port", &port.to_string()], &IN_MEMORY, scratch)?;
    Ok(Starting { server, url: url(port), ready: Box::new(move || responds(port)) })
}

/// In cluster mode: a single node that owns every slot.
///
/// The bus gets a free port, because the default (10000 higher) may be out of range. The node announces its address,
/// because a single node cannot learn it from others, and would send clients an empty one.
pub(super) fn start_cluster(port: u16, bus_port: u16, scratch: &Path) -> Result<Starting> {
    let (port_text, bus_port) = (port.to_string(), bus_port.to_string());
    let own = ["--port", &port_text, "--cluster-enabled", "yes", "--cluster-port", &bus_port];
    let announce = ["--cluster-announce-ip", "127.0.0.1"];
    let server = start("redis-cluster", &[&own[..], &announce].concat(), &IN_MEMORY, scratch)?;
    Ok(Starting { server, url: url(port), ready: Box::new(move || owns_all_slots(port)) })
}

/// A single server that accepts only TLS.
pub(super) fn start_tls(port: u16, certificates: &Certificates, scratch: &Path) -> Result<Starting> {
    let (certificate, key) = (certificates.certificate.to_string_lossy(), certificates.key.to_string_lossy());
    let port_text = port.to_string();
    let own = ["--port", "0", "--tls-port", &port_text, "--tls-auth-clients", "no"];
    let files = ["--tls-cert-file", &certificate, "--tls-key-file", &key];
    let server = start("redis-tls", &[&own[..], &files].concat(), &IN_MEMORY, scratch)?;
    // Redis listens once it is ready, so connecting is enough, without a TLS handshake.
    Ok(Starting {
        server,
        url: format!("rediss://localhost:{port}"),
        ready: Box::new(move || connect(port).is_ok()),
    })
}

/// A single server that syncs every write to disk before it responds.
pub(super) fn start_durable(port: u16, scratch: &Path) -> Result<Starting> {
    let durable = ["--save", "", "--appendonly", "yes", "--appendfsync", "always"];
    let server = start("redis-durable", &["--port", &port.to_string()], &durable, scratch)?;
    Ok(Starting { server, url: url(port), ready: Box::new(move || responds(port)) })
}

fn start(name: &'static str, own: &[&str], persistence: &[&str], scratch: &Path) -> Result<Server> {
    let home = scratch.join(name);
    fs::create_dir(&home).with_context(|| format!("cannot create {}", home.display()))?;
    let mut redis = TiedCommand::new("redis-server", Signal::Term);
    // `localhost` may mean either address. The dash makes IPv6 optional, for machines without it.
    redis.command.args(["--bind", "127.0.0.1", "-::1", "--dir"]).arg(&home).args(persistence).args(own);
    redis.start(name, scratch)
}

fn url(port: u16) -> String {
    format!("redis://127.0.0.1:{port}")
}

fn responds(port: u16) -> bool {
    send(port, "PING").is_ok_and(|reply| reply.contains("+PONG"))
}

/// Assigns all slots to the node and checks its state. The server rejects a repeated assignment, which is harmless.
fn owns_all_slots(port: u16) -> bool {
    send(port, "CLUSTER ADDSLOTSRANGE 0 16383\r\nCLUSTER INFO")
        .is_ok_and(|reply| reply.contains("cluster_state:ok"))
}

/// Sends inline commands and returns everything that the server sends until it closes the connection.
fn send(port: u16, commands: &str) -> io::Result<String> {
    let mut stream = connect(port)?;
    stream.write_all(format!("{commands}\r\nQUIT\r\n").as_bytes())?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    Ok(reply)
}

fn connect(port: u16) -> io::Result<TcpStream> {
    const LIMIT: Duration = Duration::from_secs(2);
    let stream = TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    Ok(stream)
}
