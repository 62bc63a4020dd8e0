//! The Rust crates: what is published, and the archives.

use anyhow::{Context, Result};
use serde_json::Value;

use crate::process::run_quietly;
use crate::workspace::cargo;

/// A crate that is published.
pub(crate) struct Published {
    pub(crate) name: String,
    pub(crate) version: String,
}

/// Asks cargo which crates are published.
pub(crate) fn published() -> Result<Vec<Published>> {
    let text = run_quietly(&mut cargo(&["metadata", "--no-deps", "--offline", "--format-version", "1"]))?;
    let metadata: Value = serde_json::from_str(&text).context("cannot parse the output of cargo metadata")?;
    let packages = metadata["packages"].as_array().context("cargo metadata: a list is missing")?;
    // `publish = false` is an empty list of registries.
    let published = packages.iter().filter(|package| package["publish"].is_null());
    let text =
        |value: &Value| value.as_str().map(String::from).context("cargo metadata: a string is missing");
    published
        .map(|package| Ok(Published { name: text(&package["name"])?, version: text(&package["version"])? }))
        .collect()
}

/// The arguments of `cargo package` for all published crates at once: those that depend on each other are not in a registry yet.
pub(crate) fn package_arguments() -> Result<Vec<String>> {
    let mut arguments = vec!["package".to_owned(), "--locked".to_owned(), "--quiet".to_owned()];
    for published in published()? {
        arguments.extend(["--package".to_owned(), published.name]);
    }
    Ok(arguments)
}
