//! Sources of usage events.

pub mod jsonl;
