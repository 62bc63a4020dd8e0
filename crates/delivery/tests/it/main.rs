//! Delivery with real files, sockets and processes, and the complete sender against a model.
//!
//! A test whose name starts with `child` does nothing by itself: another test runs it in a child process.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::wildcard_enum_match_arm,
    reason = "anything unexpected fails the test"
)]

mod crashes;
mod input;
mod notices;
mod sequences;

use std::path::Path;

use tempfile::TempDir;

/// A temporary directory, in memory if possible: a sync costs nothing there, and a killed process leaves the same
/// files.
fn scratch() -> TempDir {
    let shared = Path::new("/dev/shm");
    if shared.is_dir() { tempfile::tempdir_in(shared) } else { tempfile::tempdir() }.unwrap()
}
