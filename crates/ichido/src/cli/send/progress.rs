//! Progress of a run: a bar at a terminal, otherwise a log line for every hundred records.

use std::path::PathBuf;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Records between two log lines.
const LOG_EVERY: u64 = 100;
const TICK: Duration = Duration::from_millis(100);
const WITH_LENGTH: &str = "{bar:32} {percent:>3}%  {msg}  {elapsed}, {eta} left";
const WITHOUT_LENGTH: &str = "{spinner}  {msg}  {elapsed}";

/// The progress of one run.
pub(super) struct Progress {
    bar: ProgressBar,
    records: u64,
    invalid: u64,
}

impl Progress {
    /// Adds a bar to the screen. It is drawn only if standard error is a terminal.
    pub(super) fn start(screen: &MultiProgress, files: &[PathBuf]) -> Self {
        let (bar, style) = match input_length(files) {
            Some(bytes) => {
                (ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::hidden()), WITH_LENGTH)
            }
            None => (ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()), WITHOUT_LENGTH),
        };
        let bar = screen.add(bar);
        bar.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
        if !bar.is_hidden() {
            bar.enable_steady_tick(TICK);
        }
        let progress = Self { bar, records: 0, invalid: 0 };
        progress.update_message();
        progress
    }

    /// Counts records that were accepted, and their bytes.
    pub(super) fn add(&mut self, records: u64, bytes: u64) {
        let before = self.records / LOG_EVERY;
        self.records += records;
        if self.bar.is_hidden() && self.records / LOG_EVERY > before {
            tracing::info!(records = self.records, "progress");
        }
        self.bar.inc(bytes);
        self.update_message();
    }

    /// Counts a piece of input that is not a record.
    pub(super) fn add_invalid(&mut self, bytes: u64) {
        self.invalid += 1;
        self.add(1, bytes);
    }

    /// Removes the bar.
    pub(super) fn finish(self) {
        self.bar.finish_and_clear();
    }

    fn update_message(&self) {
        let invalid = if self.invalid > 0 { format!(", {} invalid", self.invalid) } else { String::new() };
        let ms = u64::try_from(self.bar.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
        let rate = self.records.saturating_mul(1_000) / ms;
        self.bar.set_message(format!("{} records{invalid}, {rate}/s", self.records));
    }
}

/// The number of bytes to read, if known: pipes have no length, and compressed files a different one.
fn input_length(files: &[PathBuf]) -> Option<u64> {
    let length = |file: &PathBuf| {
        let is_compressed = file.extension().is_some_and(|end| end == "gz");
        std::fs::metadata(file).ok().filter(|file| file.is_file() && !is_compressed).map(|file| file.len())
    };
    files.iter().map(length).sum::<Option<u64>>().filter(|_| !files.is_empty())
}
