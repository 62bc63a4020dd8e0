//! Fakes and helpers that the tests of all crates share: servers that respond by script, proxies that lose messages,
//! ledgers that fail, and child processes. The demo uses some of them too.
//!
//! Every server listens on a free loopback port and runs on a thread of its own: a test may block, or pause the time of
//! its own runtime.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a fake that cannot work fails the test that uses it"
)]
#![allow(clippy::disallowed_methods, reason = "tests of processes and sockets wait in real time")]

#[cfg(feature = "tls")]
pub mod certificates;
#[cfg(feature = "ledger")]
pub mod clock;
#[cfg(feature = "ledger")]
pub mod faulty_backend;
pub mod http_client;
pub mod http_proxy;
pub mod http_server;
#[cfg(feature = "ledger")]
pub mod ledger_server;
#[cfg(feature = "tls")]
pub mod mail_server;
pub mod orders;
#[cfg(feature = "servers")]
pub mod pgbouncer;
#[cfg(feature = "servers")]
pub mod postgres_server;
pub mod process;
pub mod receiver;
#[cfg(feature = "servers")]
pub mod redis_server;
pub mod tcp_proxy;
pub mod tcp_server;
#[cfg(feature = "servers")]
pub mod tmpfs;
pub mod wait;

use std::net::TcpListener;

/// A loopback port that was free a moment ago. Use it for a server that cannot choose its own port, or for an address
/// where nothing listens.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The value of an environment variable that `cargo xtask test` sets, such as the address of a server.
pub fn required_env(name: &str) -> String {
    match std::env::var(name) {
        Ok(value) if !value.is_empty() => value,
        _ => panic!("{name} is not set: run `cargo xtask test`"),
    }
}
