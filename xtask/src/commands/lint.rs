//! `cargo xtask lint`: checks the layering of crates and finds cycles between modules.

use anyhow::Result;

use crate::lint;

/// Prints every problem; the exit code is 1 if there are any.
pub(crate) fn run() -> Result<u8> {
    let problems = lint::check()?;
    for problem in &problems {
        println!("{problem}\n");
    }
    if problems.is_empty() {
        return Ok(0);
    }
    eprintln!("xtask: lint found {} problems; `cargo xtask lint --help` explains the rules", problems.len());
    Ok(1)
}
