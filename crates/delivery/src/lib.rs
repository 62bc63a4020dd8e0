//! Batches that arrive, or lie where you can see them.

pub mod input;
