//! Redis servers that a test starts for itself.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::requests::server;

pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
    home: tempfile::TempDir,
    settings: Vec<String>,
}

impl Server {
    /// Starts one with these settings, and waits until it listens.
    pub(crate) async fn start(settings: &[&str]) -> Self {
        let settings: Vec<_> = settings.iter().map(|&setting| setting.to_owned()).collect();
        let (home, port) = (tempfile::tempdir().unwrap(), free_port());
        let started = Self { child: spawn(home.path(), port, &settings), port, home, settings };
        started.listens().await;
        started
    }

    /// Kills it, starts it again in the same directory, and waits until it has loaded its data.
    pub(crate) async fn restart(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child = spawn(self.home.path(), self.port, &self.settings);
        self.listens().await;
        let client = redis::Client::open(self.url()).unwrap();
        for _ in 0..500 {
            if let Ok(mut connection) = client.get_multiplexed_async_connection().await
                && redis::cmd("PING").exec_async(&mut connection).await.is_ok()
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("redis-server does not answer");
    }

    async fn listens(&self) {
        for _ in 0..500 {
            if tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await.is_ok() {
                return;
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

fn spawn(home: &Path, port: u16, settings: &[String]) -> Child {
    let mut command = Command::new(server("ICHIDO_TEST_REDIS_SERVER"));
    command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--dir"]).arg(home);
    command.args(["--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction"]).args(settings);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

pub(crate) fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
