//! The workspace's packages as `cargo metadata` describes them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::process::run_quietly;
use crate::workspace::{self, cargo};

/// A package of the workspace.
#[derive(Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) directory: PathBuf,
    pub(crate) dependencies: Vec<Dependency>,
    /// The root files of its libraries and binaries. Tests, benchmarks and examples are omitted.
    pub(crate) roots: Vec<PathBuf>,
}

/// A package named in a manifest, in the workspace or not.
#[derive(Debug)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    /// Part of the product: `[dependencies]` and `[build-dependencies]`.
    Normal,
    /// `[dev-dependencies]`.
    Dev,
}

impl Package {
    /// The directory as printed: relative to the workspace.
    pub(crate) fn label(&self) -> String {
        relative(&self.directory)
    }
}

/// A path as printed: relative to the workspace if it is inside.
pub(crate) fn relative(path: &Path) -> String {
    path.strip_prefix(workspace::root()).unwrap_or(path).display().to_string()
}

/// Asks cargo for the packages of the workspace. Nothing is resolved or downloaded.
pub(crate) fn packages() -> Result<Vec<Package>> {
    let text = run_quietly(&mut cargo(&["metadata", "--no-deps", "--offline", "--format-version", "1"]))?;
    let metadata: Value = serde_json::from_str(&text).context("cannot parse the output of cargo metadata")?;
    list(&metadata["packages"])?.iter().map(package).collect()
}

fn package(value: &Value) -> Result<Package> {
    let manifest = PathBuf::from(text(&value["manifest_path"])?);
    let mut roots = Vec::new();
    for target in list(&value["targets"])? {
        let kinds = list(&target["kind"])?;
        if kinds.iter().any(|kind| matches!(kind.as_str(), Some("lib" | "rlib" | "proc-macro" | "bin"))) {
            roots.push(PathBuf::from(text(&target["src_path"])?));
        }
    }
    Ok(Package {
        name: text(&value["name"])?,
        directory: manifest.parent().map(Path::to_path_buf).unwrap_or_default(),
        dependencies: list(&value["dependencies"])?.iter().map(dependency).collect::<Result<_>>()?,
        roots,
    })
}

fn dependency(value: &Value) -> Result<Dependency> {
    let kind = if value["kind"] == "dev" { Kind::Dev } else { Kind::Normal };
    Ok(Dependency { name: text(&value["name"])?, kind })
}

fn list(value: &Value) -> Result<&Vec<Value>> {
    value.as_array().context("cargo metadata: a list is missing")
}

fn text(value: &Value) -> Result<String> {
    value.as_str().map(String::from).context("cargo metadata: a string is missing")
}
