//! Simulated hardware, and a simulation of the log on it: every crash and fault that a real disk may cause.
//!
//! A run drives the store in one thread: several callers, an operator, readers, a sweeper and the clock take steps in random
//! order. Power losses, killed processes, failed operations and flipped bits interrupt them at any point. Every answer and
//! everything a reader sees is compared with a model, which applies [`ichido_core::rules`] to a map in memory.
//!
//! Everything random depends on one seed, so a failing run can be repeated exactly.

pub mod backend;
mod campaign;
mod check;
pub mod disk;
mod finish;
mod model;
mod options;
mod random;
mod report;
mod requests;
mod run;
mod store;
#[cfg(test)]
mod tests;
mod workload;

pub use crate::log::PlantedBug;
pub use campaign::{Campaign, campaign};
pub use options::RunOptions;
pub use report::{Failure, Report};
pub use run::run;
