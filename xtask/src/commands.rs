//! The commands of `cargo xtask`. Each returns its exit code.

pub(crate) mod bench;
pub(crate) mod ci;
pub(crate) mod deny;
pub(crate) mod lint;
pub(crate) mod nightly;
pub(crate) mod package;
pub(crate) mod release;
pub(crate) mod servers;
pub(crate) mod simulate;
pub(crate) mod test;
