//! Batches that arrive, or lie where you can see them.
