//! A server process with an admin port.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use ichido_testkit::http_client::{Response, send};
use ichido_testkit::process::Process;

/// A running process with an admin port; it is killed when the test ends.
pub(crate) struct Serving {
    process: Process,
    /// The address of the admin port.
    pub(crate) address: SocketAddr,
}

impl Serving {
    /// Starts `ichido claims` on a free port, and waits until it listens.
    pub(crate) fn claims(dir: &Path, ledger: &str, token: Option<&str>) -> Self {
        let token = token.map(|token| ("ICHIDO_ADMIN_TOKEN", token));
        Self::claims_with(dir, ledger, token.as_slice())
    }

    /// Like [`Serving::claims`], with these environment variables.
    pub(crate) fn claims_with(dir: &Path, ledger: &str, variables: &[(&str, &str)]) -> Self {
        Self::start(
            dir,
            &["claims", "--listen", "127.0.0.1:0", "--ledger", ledger],
            "listening on http://",
            variables,
        )
    }

    /// Like [`Serving::claims_with`], with a certificate.
    pub(crate) fn claims_over_tls(dir: &Path, ledger: &str, variables: &[(&str, &str)]) -> Self {
        let arguments = ["claims", "--listen", "127.0.0.1:0", "--ledger", ledger];
        Self::start(dir, &arguments, "listening on https://", variables)
    }

    /// Starts `ichido run` with the settings in the directory.
    pub(crate) fn daemon(dir: &Path, ledger: &str, variables: &[(&str, &str)]) -> Self {
        Self::start(
            dir,
            &["run", "--admin", "127.0.0.1:0", "--ledger", ledger],
            "admin on http://",
            variables,
        )
    }

    fn start(dir: &Path, arguments: &[&str], before_address: &str, variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ichido"));
        command.args(arguments).current_dir(dir);
        crate::without_settings(|name| {
            command.env_remove(name);
        });
        command.envs(variables.iter().copied());
        let mut process = Process::start(&mut command).unwrap();
        let address = process.wait_for_address(before_address).unwrap();
        Self { process, address }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.child.id()
    }

    /// What the process has written to standard error so far.
    pub(crate) fn stderr(&self) -> String {
        self.process.stderr()
    }

    /// Waits until the process has written this to standard error.
    #[track_caller]
    pub(crate) fn says(&self, text: &str) {
        self.process.wait_for_stderr(text);
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    pub(crate) fn signal(&self) {
        self.process.signal("TERM");
    }

    /// Waits for the exit, and returns the exit code.
    pub(crate) fn exit_code(&mut self) -> i32 {
        self.process.exit_code()
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Response {
        self.call("GET", path, &[], "")
    }

    #[track_caller]
    pub(crate) fn post(&self, path: &str, body: &str) -> Response {
        self.call("POST", path, &[("content-type", "application/json")], body)
    }

    /// One request on its own connection. A `host` among the headers replaces the real one.
    #[track_caller]
    pub(crate) fn call(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Response {
        let address = self.address.to_string();
        let has_host = headers.iter().any(|(name, _)| *name == "host");
        let host = (!has_host).then_some(("host", address.as_str()));
        send(self.address, method, path, &[host.as_slice(), headers].concat(), body.as_bytes())
    }
}
