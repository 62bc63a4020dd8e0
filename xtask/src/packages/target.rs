//! The platforms that the program is built for.

use std::env::consts::{ARCH, OS};

use anyhow::{Result, bail};

use crate::args::Refusal;

/// A platform.
#[derive(Debug)]
pub(crate) struct Target {
    /// As Rust names it.
    pub(crate) triple: &'static str,
    /// As Node names it: the system and the processor.
    pub(crate) node: (&'static str, &'static str),
    /// The C compiler, which also links: SQLite, mimalloc and ring contain C.
    pub(crate) compiler: &'static str,
    /// The Debian package of the compiler.
    pub(crate) compiler_package: &'static str,
}

/// Every platform with packages of its own.
pub(crate) const TARGETS: &[Target] = &[
    Target {
        triple: "x86_64-unknown-linux-gnu",
        node: ("linux", "x64"),
        compiler: "x86_64-linux-gnu-gcc",
        compiler_package: "gcc-x86-64-linux-gnu",
    },
    Target {
        triple: "aarch64-unknown-linux-gnu",
        node: ("linux", "arm64"),
        compiler: "aarch64-linux-gnu-gcc",
        compiler_package: "gcc-aarch64-linux-gnu",
    },
];

impl Target {
    /// The platform of this machine.
    pub(crate) fn host() -> Result<&'static Self> {
        let host = format!("{ARCH}-unknown-{OS}-gnu");
        match TARGETS.iter().find(|target| target.triple == host) {
            Some(target) => Ok(target),
            None => bail!(Refusal(format!(
                "there are no packages for {ARCH} {OS}; see TARGETS in xtask/src/packages/target.rs"
            ))),
        }
    }

    /// The npm package with the program.
    pub(crate) fn npm_package(&self) -> String {
        format!("ichido-{}-{}", self.node.0, self.node.1)
    }
}
