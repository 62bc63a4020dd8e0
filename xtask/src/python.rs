//! Python packages for the tests, in environments of their own: pinned, checked by hash, kept in the cache.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use crate::install::Missing;
use crate::phase::Phase;
use crate::process::quietly;
use crate::scratch::Temporary;
use crate::workspace;

/// Packages that live together.
pub(crate) struct Packages {
    name: &'static str,
    list: &'static str,
}

/// Clients that the tests run.
pub(crate) const CLIENTS: Packages = Packages { name: "python", list: include_str!("../python.txt") };
/// The linter of `deploy/aws`.
pub(crate) const CFN_LINT: Packages =
    Packages { name: "cfn-lint", list: include_str!("../python/cfn-lint.txt") };

const ALL: [Packages; 2] = [CLIENTS, CFN_LINT];

impl Packages {
    /// A program of the environment. The place carries the list's hash, so that a new list does not meet the old.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.home().join("bin").join(name)
    }

    fn home(&self) -> PathBuf {
        workspace::cache().join(format!("{}-{}", self.name, hex::encode(&Sha256::digest(self.list)[..6])))
    }

    fn is_there(&self) -> bool {
        self.program("python").exists()
    }

    /// An environment cannot be moved, so a half-made one is removed rather than renamed.
    fn make(&self) -> Result<()> {
        let home = self.home();
        let list = Temporary::directory(&workspace::cache())?;
        let file = list.path().join("list.txt");
        fs::write(&file, self.list)?;
        if home.exists() {
            fs::remove_dir_all(&home)?;
        }
        let made = quietly(Command::new("python3").args(["-m", "venv"]).arg(&home)).and_then(|_| {
            let pip = [
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "--require-hashes",
                "--only-binary=:all:",
                "-r",
            ];
            quietly(Command::new(self.program("python")).args(pip).arg(&file))
        });
        if made.is_err() {
            let _ = fs::remove_dir_all(&home);
        }
        made.map(drop)
            .with_context(|| format!("cannot install the Python packages of the tests ({})", self.name))
    }
}

/// Asks for what Debian must give.
pub(crate) fn needs(missing: &mut Missing) {
    missing.program("python3", "python3");
    if !ALL.iter().all(Packages::is_there) && !has_venv() {
        missing.package("python3-venv");
    }
}

/// Debian splits `venv` off its Python; others do not.
fn has_venv() -> bool {
    let asked = Command::new("python3").args(["-c", "import venv, ensurepip"]).output();
    asked.is_ok_and(|output| output.status.success())
}

/// Makes the environments that are not there.
pub(crate) fn fetch() -> Result<()> {
    for packages in ALL.iter().filter(|packages| !packages.is_there()) {
        let phase = Phase::begin(format!("fetched Python packages ({})", packages.name));
        packages.make()?;
        phase.end();
    }
    Ok(())
}
