//! Installs what the servers need, by Debian package, where we may.
//!
//! Debian starts the services it installs, and gives PostgreSQL a cluster. We want the programs only: the cluster is
//! switched off before the first install, and services are kept down by a `policy-rc.d` for as long as apt runs.

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

/// Debian packages that have to be installed, in order; empty when nothing is missing.
#[derive(Default)]
pub(crate) struct Missing(Vec<&'static str>);

impl Missing {
    /// Asks for a package.
    pub(crate) fn package(&mut self, name: &'static str) {
        if !self.0.contains(&name) {
            self.0.push(name);
        }
    }

    /// Asks for a package unless its program is on the path.
    pub(crate) fn program(&mut self, program: &str, package: &'static str) {
        if find_on_path(program).is_none() {
            self.package(package);
        }
    }

    /// Refuses, with the one line that helps, if something is missing and we may not install it.
    pub(crate) fn require_installable(&self) -> Result<()> {
        if self.0.is_empty() || is_root() {
            return Ok(());
        }
        let line = format!("apt-get install --no-install-recommends {}", self.0.join(" "));
        bail!(Refusal(format!("programs are missing, and only root can install them:\n\n    {line}\n")))
    }

    /// Installs everything that was asked for.
    pub(crate) fn install(&self) -> Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        let phase = Phase::begin(format!("installed {}", self.0.join(", ")));
        if self.0.contains(&"postgresql") {
            decline_cluster()?;
        }
        let _services_stay_down = keep_services_down()?;
        run_quietly(apt_get().arg("update"))?;
        run_quietly(apt_get().args(["install", "-y", "--no-install-recommends"]).args(&self.0))?;
        phase.end();
        Ok(())
    }
}

/// Whether we are root. The owner of our entry in /proc is our effective user.
pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
}

/// Where a program is that can be run by its name alone.
pub(crate) fn find_on_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).map(|directory| directory.join(program)).find(|candidate| candidate.is_file())
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive").args(["-q", "-o", "DPkg::Lock::Timeout=300"]);
    command
}

fn decline_cluster() -> Result<()> {
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

/// Forbids starting services until the result is dropped; nothing to do where a policy is in place already.
fn keep_services_down() -> Result<Option<Temporary>> {
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
