//! Starts the contenders: the handlers, and the systems that protect them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ichido_bench::processes::{Process, free_address, scratch};

/// The directory of the installed npm packages.
const NODE_PEERS: &str = "ICHIDO_BENCH_NODE_PEERS";
/// The Node that runs them.
const NODE: &str = "ICHIDO_BENCH_NODE";
/// The Python that has Powertools.
const PYTHON: &str = "ICHIDO_BENCH_PYTHON";
const REDIS: &str = "ICHIDO_BENCH_REDIS_URL";
const DYNAMODB: &str = "ICHIDO_BENCH_DYNAMODB_URL";

const SCRIPTS: [(&str, &str); 4] = [
    ("handler.mjs", include_str!("handler.mjs")),
    ("plain.mjs", include_str!("plain.mjs")),
    ("node_idempotency.mjs", include_str!("node_idempotency.mjs")),
    ("restate.mjs", include_str!("restate.mjs")),
];

/// A system that is measured.
pub(crate) struct Peer {
    /// What gets the requests.
    pub(crate) process: Process,
    /// What it promises about repeated requests.
    pub(crate) promise: &'static str,
    _service: Option<Process>,
}

impl Peer {
    /// A process before a service.
    pub(crate) fn before(process: Process, service: Process, promise: &'static str) -> Self {
        Self { process, promise, _service: Some(service) }
    }

    fn alone(process: Process, promise: &'static str) -> Self {
        Self { process, promise, _service: None }
    }
}

pub(crate) fn redis() -> Result<String, String> {
    variable(REDIS)
}

/// The handler in Node, without protection.
pub(crate) fn node_handler() -> Result<Process, String> {
    Ok(Process::reporting(node("plain.mjs", &[])?))
}

pub(crate) fn node_idempotency() -> Result<Peer, String> {
    let process = Process::reporting(node("node_idempotency.mjs", &[&redis()?])?);
    Ok(Peer::alone(
        process,
        "once while the process lives: after a crash a retry gets 409 for 24 h; durable as Redis",
    ))
}

/// Restate with its default settings: every entry of its log is synced.
pub(crate) fn restate() -> Result<Peer, String> {
    let program = PathBuf::from(variable(NODE_PEERS)?)
        .join("node_modules/@restatedev/restate-server-linux-x64/bin/restate-server");
    if !program.is_file() {
        return Err(format!("{} does not exist", program.display()));
    }
    let (files, ingress, admin, cluster) = (scratch(), free_address(), free_address(), free_address());
    // It does not notice when its parent exits.
    let mut server = Command::new("setpriv");
    server
        .args(["--pdeathsig", "TERM", "--"])
        .arg(program)
        .arg("--no-logo")
        .env("RESTATE_BASE_DIR", files.path())
        .env("RESTATE_LISTEN_MODE", "tcp")
        .env("RESTATE_INGRESS__BIND_ADDRESS", ingress.to_string())
        .env("RESTATE_ADMIN__BIND_ADDRESS", admin.to_string())
        .env("RESTATE_BIND_ADDRESS", cluster.to_string())
        .env("DO_NOT_TRACK", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let server = Process::listening(server, ingress, files);
    let mut service = node("restate.mjs", &[&format!("http://{admin}"), &ingress.port().to_string()])?;
    service.env("RESTATE_LOGGING", "ERROR");
    let service = Process::reporting(service);
    let promise =
        "once, synced before the handler runs; after a crash the handler runs again, from its journal";
    Ok(Peer::before(server, service, promise))
}

pub(crate) fn powertools() -> Result<Peer, String> {
    let url = variable(DYNAMODB)?;
    Ok(Peer::alone(
        python(&[&url])?,
        "once; after a crash a retry is refused for an hour, then runs again. This DynamoDB syncs nothing",
    ))
}

/// The handler in Python, without protection: what Powertools' figure cannot exceed.
pub(crate) fn python_handler() -> Result<Peer, String> {
    Ok(Peer::alone(python(&[])?, "nothing: each retry runs again"))
}

fn node(script: &str, arguments: &[&str]) -> Result<Command, String> {
    let home = PathBuf::from(variable(NODE_PEERS)?);
    // Where Node finds the packages.
    for (name, text) in SCRIPTS {
        write(&home.join(name), text)?;
    }
    let mut command = Command::new(variable(NODE)?);
    command.arg(home.join(script)).args(arguments);
    Ok(command)
}

fn python(arguments: &[&str]) -> Result<Process, String> {
    let mut command = Command::new(variable(PYTHON)?);
    // Powertools warns that it does not run in Lambda.
    command.args(["-W", "ignore", "-c", include_str!("powertools.py")]).args(arguments);
    command.envs([("AWS_ACCESS_KEY_ID", "bench"), ("AWS_SECRET_ACCESS_KEY", "bench")]);
    command.envs([("AWS_REGION", "us-east-1"), ("AWS_DEFAULT_REGION", "us-east-1")]);
    Ok(Process::reporting(command))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

fn variable(name: &str) -> Result<String, String> {
    std::env::var(name).ok().filter(|value| !value.is_empty()).ok_or_else(|| format!("{name} is not set"))
}
