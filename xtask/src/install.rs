//! Installs the Debian packages that the servers need, if run as root.
//!
//! Debian starts the services that it installs, and creates a PostgreSQL cluster. Only the programs are needed here,
//! so the cluster is disabled before the first install, and a `policy-rc.d` prevents services from starting while apt
//! runs.

use std::env;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::args::Refusal;
use crate::phase::Phase;
use crate::process::run_quietly;
use crate::scratch::Temporary;

const POLICY: &str = "/usr/sbin/policy-rc.d";
const CLUSTER_SETTINGS: &str = "/etc/postgresql-common/createcluster.conf";

/// Debian packages to install, in order. Empty if nothing is missing.
#[derive(Default)]
pub(crate) struct Missing(Vec<&'static str>);

impl Missing {
    /// Adds a package.
    pub(crate) fn package(&mut self, name: &'static str) {
        if !self.0.contains(&name) {
            self.0.push(name);
        }
    }

    /// Adds a package unless its program is on the `PATH`.
    pub(crate) fn program(&mut self, program: &str, package: &'static str) {
        if find_on_path(program).is_none() {
            self.package(package);
        }
    }

    /// Fails if a package is missing and this process is not root. The error shows the command to run.
    pub(crate) fn require_installable(&self) -> Result<()> {
        if self.0.is_empty() || is_root() {
            return Ok(());
        }
        let line = format!("apt-get install --no-install-recommends {}", self.0.join(" "));
        bail!(Refusal(format!("programs are missing; install them as root:\n\n    {line}\n")))
    }

    /// Installs the packages.
    pub(crate) fn install(&self) -> Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        let phase = Phase::begin(format!("installed {}", self.0.join(", ")));
        if self.0.contains(&"postgresql") {
            disable_cluster()?;
        }
        let _policy = prevent_service_starts()?;
        run_quietly(apt_get().arg("update"))?;
        run_quietly(apt_get().args(["install", "-y", "--no-install-recommends"]).args(&self.0))?;
        phase.end();
        Ok(())
    }
}

/// Whether this process runs as root: its entry in /proc belongs to its effective user.
pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
}

/// Looks up a program on the `PATH`.
pub(crate) fn find_on_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).map(|directory| directory.join(program)).find(|candidate| candidate.is_file())
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive").args(["-q", "-o", "DPkg::Lock::Timeout=300"]);
    command
}

fn disable_cluster() -> Result<()> {
    let settings = Path::new(CLUSTER_SETTINGS);
    if settings.exists() {
        return Ok(());
    }
    if let Some(directory) = settings.parent() {
        fs::create_dir_all(directory)?;
    }
    fs::write(settings, "create_main_cluster = false\n")
        .with_context(|| format!("cannot write {CLUSTER_SETTINGS}"))
}

/// Prevents services from starting until the result is dropped. `None` if the machine has a policy already.
fn prevent_service_starts() -> Result<Option<Temporary>> {
    let mut file = match File::create_new(POLICY) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot create {POLICY}")),
    };
    let policy = Temporary::guard(POLICY.into())?;
    file.write_all(b"#!/bin/sh\nexit 101\n")?;
    file.set_permissions(fs::Permissions::from_mode(0o755))?;
    Ok(Some(policy))
}
