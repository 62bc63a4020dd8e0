//! The Python packages: a source distribution, a wheel for each platform with a program, and a wheel for all others.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::{Program, copy_licences, copy_sources, library};
use crate::phase::Phase;
use crate::process::run_quietly;
use crate::python;
use crate::scratch::Temporary;
use crate::workspace;

/// Builds the packages into `out`.
pub(super) fn build(programs: &[Program], out: &Path) -> Result<()> {
    python::fetch_package()?;
    let phase = Phase::begin("built Python packages");
    let stage = Temporary::directory(&workspace::cache())?;
    let (sources, built) = (stage.path().join("sources"), stage.path().join("built"));
    fs::create_dir_all(&sources)?;
    copy_sources(&library("python")?, &sources)?;
    copy_licences(&sources)?;
    let hatch = ["-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d"];
    run_quietly(Command::new(python::package_interpreter()).args(hatch).arg(&built).current_dir(&sources))?;
    let mut wheel = None;
    for entry in fs::read_dir(&built)? {
        let path = entry?.path();
        match path.extension().is_some_and(|extension| extension == "whl") {
            true => wheel = Some(path),
            false => {
                fs::copy(&path, out.join(path.file_name().unwrap_or_default()))?;
            }
        }
    }
    let wheel = wheel.context("hatchling built no wheel")?;
    let script = workspace::root().join("packages/python-binary/wheels.py");
    let mut wheels = Command::new(python::package_interpreter());
    wheels.arg(script).arg(wheel).arg(out).args(programs.iter().map(|program| &program.path));
    run_quietly(&mut wheels)?;
    phase.end();
    Ok(())
}
