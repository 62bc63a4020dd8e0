//! A PgBouncer of the test's own, in front of the PostgreSQL server that all tests share.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part")]

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How often to try to connect, every 10 ms, before its start counts as failed.
const START_LOOKS: u32 = 6_000;

/// A running PgBouncer; it is stopped when this is dropped.
pub struct PgBouncer {
    child: Child,
    dir: tempfile::TempDir,
    port: u16,
    size: usize,
}

impl PgBouncer {
    /// Starts it in a mode (`transaction`, `session` or `statement`), with this many connections to the server.
    pub fn start(mode: &str, size: usize) -> Self {
        let program = std::env::var("ICHIDO_TEST_PGBOUNCER").unwrap_or_default();
        assert!(!program.is_empty(), "ICHIDO_TEST_PGBOUNCER is not set: run `cargo xtask test`");
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        configure(dir.path(), port, mode, size);
        // It refuses to run as root.
        let mut command = Command::new("setpriv");
        if fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0) {
            command.args(["--reuid", "postgres", "--regid", "postgres", "--init-groups"]);
        }
        command.args(["--pdeathsig", "TERM", "--", &program]).arg(dir.path().join("pgbouncer.ini"));
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut looks = 0..START_LOOKS;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(looks.next().is_some(), "PgBouncer does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        Self { child, dir, port, size }
    }

    /// The URL of a schema behind it.
    pub fn url(&self, schema: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres?schema={schema}", self.port)
    }

    /// Switches to another mode, as after an operator's reload.
    pub fn switch(&self, mode: &str) {
        configure(self.dir.path(), self.port, mode, self.size);
        let status = Command::new("kill").args(["-HUP", &self.child.id().to_string()]).status();
        assert!(status.unwrap().success());
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn configure(dir: &std::path::Path, port: u16, mode: &str, size: usize) {
    let server = std::env::var("ICHIDO_TEST_POSTGRES_URL").unwrap();
    let server = server.rsplit_once(':').unwrap().1.split('/').next().unwrap().to_owned();
    let users = dir.join("users.txt");
    let settings = format!(
        "[databases]\n* = host=127.0.0.1 port={server}\n\
         [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = trust\n\
         auth_file = {}\npool_mode = {mode}\ndefault_pool_size = {size}\nmax_client_conn = 1000\n",
        users.display()
    );
    fs::write(&users, "\"postgres\" \"\"\n").unwrap();
    fs::write(dir.join("pgbouncer.ini"), settings).unwrap();
}
