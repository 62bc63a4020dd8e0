//! Checks the structure that the compiler does not: which crate may use which, and that modules form no cycles.
//!
//! Both checks keep the code readable from the bottom up. A reader of a crate, or of a module, needs to know only what
//! lies below it.

mod cycles;
mod layers;
mod metadata;
mod module_tree;
mod references;
mod resolve;
mod scope;
mod test_code;

use anyhow::Result;

/// Checks every crate of the workspace and returns the problems, each ready to be printed.
pub(crate) fn check() -> Result<Vec<String>> {
    let packages = metadata::packages()?;
    let mut problems = layers::check(&packages);
    problems.extend(cycles::check(&packages)?);
    Ok(problems)
}
