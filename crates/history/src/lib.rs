//! A local history of decisions: was this key handled, when, by which instance, and how often was it repeated?
//!
//! ```text
//! ledger ──Decision──▶ batch (bounded) ──▶ writer thread ──▶ history.sqlite ◀── History: counts, timeline
//! ```
//!
//! - **Recording never delays or fails a request.** A decision is counted in a bounded batch, and the first ones of each half
//!   second are kept one by one. If the batch is full, or the file cannot be written, decisions are lost and counted
//!   (`ichido_history_lost_total`).
//! - **Everything is bounded**: recent decisions by number and age, counts by age, sources by number within an hour.
//! - **A file that cannot be used is set aside**, and the log says so: damaged, or written by another version.
//! - **What is unusual is found** in the counts by the hour ([`anomalies`]).
//! - Each process has a file of its own. [`History`] reads all files of a directory, and merges them. A file that its process has left
//!   is cleaned up by the others, and removed when everything in it is too old.

pub mod anomalies;
mod cleanup;
mod erase;
mod files;
mod read;
mod record;
mod recorder;
mod repeats;
mod schema;
mod settings;
#[cfg(test)]
mod tests;

pub use erase::{Erased, Selection, erase};
pub use read::{By, Count, Entry, Find, History, OfRoute, SourceCount, is_first, is_repeat, parse_hash};
pub use record::OTHER as OTHER_SOURCES;
pub use recorder::Recorder;
pub use repeats::Repeats;
pub use settings::{RawHistory, Settings};

/// An error of a history file.
#[derive(Debug, thiserror::Error)]
#[error("history {file}: {text}")]
pub struct Error {
    /// The file or directory.
    pub file: String,
    /// What failed.
    pub text: String,
}

impl Error {
    fn new(file: &std::path::Path, text: impl ToString) -> Self {
        Self { file: file.display().to_string(), text: text.to_string() }
    }
}
