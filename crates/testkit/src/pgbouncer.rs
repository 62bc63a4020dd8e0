//! A PgBouncer of the test's own, in front of the PostgreSQL server that all tests share.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

use crate::process::Process;
use crate::wait::eventually;
use crate::{free_port, required_env};

/// A running PgBouncer; it is stopped when this is dropped.
#[derive(Debug)]
pub struct PgBouncer {
    process: Process,
    dir: tempfile::TempDir,
    port: u16,
    size: usize,
}

impl PgBouncer {
    /// Starts it in a mode (`transaction`, `session` or `statement`), with this many connections to the server.
    pub fn start(mode: &str, size: usize) -> Self {
        let program = required_env("ICHIDO_TEST_PGBOUNCER");
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let port = free_port();
        configure(dir.path(), port, mode, size);
        // It refuses to run as root.
        let mut command = Command::new("setpriv");
        if fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0) {
            command.args(["--reuid", "postgres", "--regid", "postgres", "--init-groups"]);
        }
        command.args(["--pdeathsig", "TERM", "--", &program]).arg(dir.path().join("pgbouncer.ini"));
        let process = Process::start(&mut command).unwrap();
        eventually("PgBouncer", || TcpStream::connect(("127.0.0.1", port)).ok());
        Self { process, dir, port, size }
    }

    /// The URL of a schema behind it.
    pub fn url(&self, schema: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres?schema={schema}", self.port)
    }

    /// Switches to another mode, as after an operator's reload.
    pub fn switch(&self, mode: &str) {
        configure(self.dir.path(), self.port, mode, self.size);
        self.process.signal("HUP");
    }
}

fn configure(dir: &std::path::Path, port: u16, mode: &str, size: usize) {
    let server = required_env("ICHIDO_TEST_POSTGRES_URL");
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
