//! A PostgreSQL server of the test's own, to be killed.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use crate::free_port;

/// A server in a temporary directory.
#[derive(Debug)]
pub struct PostgresServer {
    programs: PathBuf,
    dir: tempfile::TempDir,
    port: u16,
}

impl PostgresServer {
    /// Creates and starts a server; `ICHIDO_TEST_PG_BINDIR` is the directory of its programs.
    #[allow(clippy::print_stderr, reason = "a skipped test must say so")]
    pub fn start() -> Option<Self> {
        let Some(programs) = std::env::var_os("ICHIDO_TEST_PG_BINDIR") else {
            eprintln!("SKIPPED: ICHIDO_TEST_PG_BINDIR is not set");
            return None;
        };
        let dir = tempfile::tempdir().unwrap();
        if rustix::process::geteuid().is_root() {
            let owned = Command::new("chown").arg("postgres").arg(dir.path()).status().unwrap();
            assert!(owned.success());
        }
        let port = free_port();
        let server = Self { programs: programs.into(), dir, port };
        let made = server.run("initdb", &["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8"]);
        assert!(made.status.success(), "{made:?}");
        server.start_again();
        Some(server)
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres?sslmode=disable", self.port)
    }

    /// Starts it, retrying while the killed one is still exiting.
    pub fn start_again(&self) {
        let options = format!(
            "-p {} -c listen_addresses=127.0.0.1 -c unix_socket_directories={} -c max_connections=100",
            self.port,
            self.dir.path().display()
        );
        let log = self.dir.path().join("log");
        for _ in 0..40 {
            if self
                .run("pg_ctl", &["-w", "-l", log.to_str().unwrap(), "-o", &options, "start"])
                .status
                .success()
            {
                return;
            }
            std::thread::sleep(Duration::from_millis(250));
        }
        panic!("PostgreSQL does not start: {}", std::fs::read_to_string(log).unwrap_or_default());
    }

    /// kill -9 of the server's main process; its other processes notice and exit.
    pub fn kill(&self) {
        let path = self.dir.path().join("data/postmaster.pid");
        let pid = std::fs::read_to_string(path).unwrap();
        let killed = Command::new("kill").args(["-9", pid.lines().next().unwrap()]).status().unwrap();
        assert!(killed.success());
    }

    /// Stops without a checkpoint, as in a power failure with the disk intact.
    pub fn stop_immediately(&self) {
        drop(self.run("pg_ctl", &["-m", "immediate", "-w", "stop"]));
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Output {
        let path = self.programs.join(program);
        let mut command = if rustix::process::geteuid().is_root() {
            let mut command = Command::new("runuser");
            command.args(["-u", "postgres", "--"]).arg(path);
            command
        } else {
            Command::new(path)
        };
        command.arg("-D").arg(self.dir.path().join("data")).args(arguments);
        command.current_dir(self.dir.path()).output().unwrap()
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.stop_immediately();
    }
}
