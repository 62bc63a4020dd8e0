//! Simulated hardware, to test the log against every crash and fault that a real disk may cause.
//!
//! Everything random depends on a seed, so a failing run can be repeated exactly.

pub mod backend;
pub mod disk;
