//! The components that a server process is made of.

pub(crate) mod delivery;
pub(crate) mod meter;
