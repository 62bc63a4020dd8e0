//! Checks the structure that the compiler does not: which crate may use which.

mod layers;
mod metadata;

use anyhow::Result;

/// Checks every crate of the workspace and returns the problems, each ready to be printed.
pub(crate) fn check() -> Result<Vec<String>> {
    Ok(layers::check(&metadata::packages()?))
}
