//! What each word after `cargo xtask` does. Every command returns the exit code it earned.

pub(crate) mod bench;
pub(crate) mod ci;
pub(crate) mod deny;
pub(crate) mod lint;
pub(crate) mod servers;
pub(crate) mod test;
