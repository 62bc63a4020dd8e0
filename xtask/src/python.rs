//! Python packages for the tests, in virtual environments: pinned, checked by hash, and cached.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use crate::install::Missing;
use crate::phase::Phase;
use crate::process::run_quietly;
use crate::scratch::Temporary;
use crate::workspace;

/// A virtual environment, defined by a list of packages with their hashes.
struct Environment {
    name: &'static str,
    list: &'static str,
}

/// Clients that the tests run.
const CLIENTS: Environment = Environment { name: "python", list: include_str!("../python.txt") };
/// Tests an API against its OpenAPI description. Separate from the clients, because not all of it is pure Python.
const OPENAPI: Environment =
    Environment { name: "python-openapi", list: include_str!("../python-openapi.txt") };
/// What `examples/fastapi` needs.
const FASTAPI: Environment =
    Environment { name: "python-fastapi", list: include_str!("../python-fastapi.txt") };
/// The linter of `deploy/aws`.
const CFN_LINT: Environment =
    Environment { name: "python-cfn-lint", list: include_str!("../python-cfn-lint.txt") };

/// Builds and tests `packages/python`.
const PACKAGE: Environment =
    Environment { name: "python-package", list: include_str!("../python-package.txt") };
/// Checks `deploy` against its schemas.
const VALIDATORS: Environment =
    Environment { name: "python-validators", list: include_str!("../python-validators.txt") };

const ALL: [Environment; 6] = [CLIENTS, OPENAPI, FASTAPI, CFN_LINT, PACKAGE, VALIDATORS];

/// The interpreter that has the clients.
pub(crate) fn interpreter() -> PathBuf {
    CLIENTS.program("python")
}

/// Schemathesis.
pub(crate) fn schemathesis() -> PathBuf {
    OPENAPI.program("schemathesis")
}

/// The server that runs FastAPI programs.
pub(crate) fn uvicorn() -> PathBuf {
    FASTAPI.program("uvicorn")
}

/// The linter of CloudFormation templates.
pub(crate) fn cfn_lint() -> PathBuf {
    CFN_LINT.program("cfn-lint")
}

/// The interpreter that builds and tests the Python package.
pub(crate) fn package_interpreter() -> PathBuf {
    PACKAGE.program("python")
}

/// The directory with the programs that check files against their schemas.
pub(crate) fn validators() -> PathBuf {
    VALIDATORS.home().join("bin")
}

/// Adds the Debian packages that are missing.
pub(crate) fn needs(missing: &mut Missing) {
    missing.program("python3", "python3");
    if ALL.iter().any(|environment| !environment.exists()) && !has_venv() {
        missing.package("python3-venv");
    }
}

/// Debian packages `venv` separately from Python.
fn has_venv() -> bool {
    let imported = Command::new("python3").args(["-c", "import venv, ensurepip"]).output();
    imported.is_ok_and(|output| output.status.success())
}

/// Creates the environments unless they are cached.
pub(crate) fn fetch() -> Result<()> {
    ALL.iter().try_for_each(Environment::fetch)
}

/// Creates the environment of [`package_interpreter`] unless it is cached.
pub(crate) fn fetch_package() -> Result<()> {
    PACKAGE.fetch()
}

impl Environment {
    /// Its directory. The path contains the list's hash, so that versions do not mix.
    fn home(&self) -> PathBuf {
        workspace::cache().join(format!("{}-{}", self.name, hex::encode(&Sha256::digest(self.list)[..6])))
    }

    fn program(&self, name: &str) -> PathBuf {
        self.home().join("bin").join(name)
    }

    fn exists(&self) -> bool {
        self.program("python").exists()
    }

    fn fetch(&self) -> Result<()> {
        if self.exists() {
            return Ok(());
        }
        let phase = Phase::begin(format!("fetched Python packages ({})", self.name));
        let home = self.home();
        let list = Temporary::directory(&workspace::cache())?;
        let file = list.path().join("python.txt");
        fs::write(&file, self.list)?;
        // An environment cannot be moved, so it is created in its final directory. Remove an incomplete one.
        if home.exists() {
            fs::remove_dir_all(&home)?;
        }
        let created = run_quietly(Command::new("python3").args(["-m", "venv"]).arg(&home)).and_then(|_| {
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
            run_quietly(Command::new(self.program("python")).args(pip).arg(&file))
        });
        if created.is_err() {
            let _ = fs::remove_dir_all(&home);
        }
        created.context("cannot install the Python packages for the tests")?;
        phase.end();
        Ok(())
    }
}
