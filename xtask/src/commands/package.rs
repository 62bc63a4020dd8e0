//! `cargo xtask package`: the npm and Python packages with the program for this machine.

use std::path::{Path, PathBuf, absolute};

use anyhow::Result;

use crate::args::{Profile, Refusal};
use crate::install::Missing;
use crate::packages::{self, Program, Target};
use crate::phase::Phase;
use crate::python;
use crate::workspace::{self, cargo};

/// Builds the program, unless one is given, and then the packages.
pub(crate) fn run(profile: Profile, program: Option<&Path>, out: Option<&Path>) -> Result<u8> {
    install_tools(&[])?;
    let target = Target::host()?;
    let path = match program {
        Some(path) if path.is_file() => absolute(path)?,
        Some(path) => return Err(Refusal(format!("{} is not a file", path.display())).into()),
        None => match build_program(profile)? {
            Built::Program(path) => path,
            Built::Failed(code) => return Ok(code),
        },
    };
    let out = out.map_or_else(|| Ok(workspace::target().join("packages")), absolute)?;
    packages::build(&[Program { target, path }], &out)?;
    eprintln!("xtask: the packages are in {}", out.display());
    Ok(0)
}

/// A program, and the Debian package that contains it.
pub(crate) type Tool = (&'static str, &'static str);
/// Builds images.
pub(crate) const BUILDAH: Tool = ("buildah", "buildah");

/// Installs npm, Python and `more` if they are missing.
pub(crate) fn install_tools(more: &[Tool]) -> Result<()> {
    let mut missing = Missing::default();
    for (program, package) in more {
        missing.program(program, package);
    }
    missing.program("npm", "nodejs");
    missing.program("npm", "npm");
    python::needs(&mut missing);
    missing.require_installable()?;
    missing.install()
}

/// What cargo made.
pub(crate) enum Built {
    Program(PathBuf),
    /// It failed with this exit code, and has said why.
    Failed(u8),
}

/// Builds the program for this machine.
pub(crate) fn build_program(profile: Profile) -> Result<Built> {
    let phase = Phase::begin("built ichido");
    let profile = match profile {
        Profile::Release => "release",
        Profile::Dist => "dist",
    };
    let code =
        workspace::run(&mut cargo(&["build", "--locked", "--profile", profile, "--package", "ichido"]))?;
    if code != 0 {
        return Ok(Built::Failed(code));
    }
    phase.end();
    Ok(Built::Program(workspace::target().join(profile).join("ichido")))
}
