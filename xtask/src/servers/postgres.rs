//! PostgreSQL: a new cluster for each run, with TLS.
//!
//! Only the creation of the cluster skips syncing. The server itself keeps fsync on, as in a deployment, because tests
//! kill it and check what was synced.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::Starting;
use crate::certificates::Certificates;
use crate::install::is_root;
use crate::process::{Signal, TiedCommand, run_quietly};

/// Debian's directory, with one subdirectory per major version.
const DEBIAN_HOME: &str = "/usr/lib/postgresql";

/// The shell creates the cluster, and then becomes the server: one process does both.
const CREATE_AND_SERVE: &str = r#"
set -e
programs=$1
shift
"$programs/initdb" -D data -U postgres -A trust --no-sync -E UTF8 --locale=C.UTF-8
exec "$programs/postgres" -D data "$@"
"#;

/// Starts the server on `port`, in a new directory that belongs to the user who runs it.
pub(super) fn start(port: u16, certificates: &Certificates, scratch: &Path) -> Result<Starting> {
    let programs = program_directory().context("PostgreSQL is not installed")?;
    let home = scratch.join("postgres");
    run_quietly(install().args(["-m", "700", "-d"]).arg(&home))?;
    run_quietly(
        install().args(["-m", "600"]).args([&certificates.certificate, &certificates.key]).arg(&home),
    )?;

    let mut postgres = TiedCommand::as_user(user(), "sh", Signal::Int);
    postgres.command.args(["-c", CREATE_AND_SERVE, "postgres"]).arg(&programs).args(settings(port, &home));
    // The other user might not have access to the current directory.
    postgres.command.current_dir(&home);
    Ok(Starting {
        server: postgres.start("postgres", scratch)?,
        url: format!("postgres://postgres@127.0.0.1:{port}/postgres"),
        ready: Box::new(move || is_ready(&programs, port)),
    })
}

/// Finds the server's programs: Debian's newest version, or the one that `pg_config` reports.
pub(super) fn program_directory() -> Option<PathBuf> {
    let versions = fs::read_dir(DEBIAN_HOME).into_iter().flatten().flatten().map(|entry| entry.path());
    newest(versions.filter(|path| has_server(&path.join("bin")))).map(|path| path.join("bin")).or_else(|| {
        let directory = run_quietly(Command::new("pg_config").arg("--bindir")).ok()?;
        Some(PathBuf::from(directory.trim_end())).filter(|directory| has_server(directory))
    })
}

fn has_server(directory: &Path) -> bool {
    ["initdb", "postgres", "pg_isready"].iter().all(|program| directory.join(program).is_file())
}

/// Compares versions as numbers: 9.6 is older than 15.
fn newest(versions: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<f64>().ok();
    let numbered = versions.filter_map(|path| Some((number(&path)?, path)));
    numbered.max_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, path)| path)
}

fn settings(port: u16, home: &Path) -> Vec<String> {
    let settings = [
        format!("port={port}"),
        "listen_addresses=127.0.0.1".into(),
        format!("unix_socket_directories={}", home.display()),
        "max_connections=200".into(),
        "ssl=on".into(),
        format!("ssl_cert_file={}", home.join("server.pem").display()),
        format!("ssl_key_file={}", home.join("server.key").display()),
    ];
    settings.into_iter().flat_map(|setting| ["-c".into(), setting]).collect()
}

fn is_ready(programs: &Path, port: u16) -> bool {
    let port = port.to_string();
    run_quietly(Command::new(programs.join("pg_isready")).args(["-q", "-h", "127.0.0.1", "-p", &port]))
        .is_ok()
}

/// PostgreSQL refuses to run as root; Debian has a user for it.
fn user() -> Option<&'static str> {
    is_root().then_some("postgres")
}

/// The coreutils program `install`, creating files that belong to the server's user.
fn install() -> Command {
    let mut command = Command::new("install");
    if let Some(user) = user() {
        command.args(["-o", user, "-g", user]);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        let found = ["9.6", "15", "17", "8.4", "notes"].map(|name| Path::new("home").join(name));
        assert_eq!(newest(found.into_iter()), Some(PathBuf::from("home/17")));
        assert_eq!(newest(std::iter::empty()), None);
    }
}
