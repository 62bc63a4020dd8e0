//! Redis servers that a test starts for itself.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::asking::server;

pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
    _home: tempfile::TempDir,
}

impl Server {
    /// Starts one with settings of its own, and waits until it listens.
    pub(crate) async fn start(settings: &[&str]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let port = free_port();
        let mut command = Command::new(server("ICHIDO_TEST_REDIS_SERVER"));
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--dir"]).arg(home.path());
        command.args(["--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction"]).args(settings);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let started = Self { child, port, _home: home };
        for _ in 0..500 {
            if tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
                return started;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("redis-server does not listen");
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
