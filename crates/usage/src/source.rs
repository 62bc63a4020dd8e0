//! Where usage events come from.

pub mod jsonl;
