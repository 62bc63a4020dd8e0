//! How far a run is: a bar at a terminal, a line in the log for every hundred records elsewhere.

use std::path::PathBuf;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How often a run says in the log how far it is.
const TELL_EVERY: u64 = 100;
const TICK: Duration = Duration::from_millis(100);
const WITH_END: &str = "{bar:32} {percent:>3}%  {msg}  {elapsed}";
const WITHOUT_END: &str = "{spinner}  {msg}  {elapsed}";

/// The progress of one run.
pub(super) struct Progress {
    bar: ProgressBar,
    records: u64,
    broken: u64,
}

impl Progress {
    /// A bar among those of the screen; it is not drawn where standard error is no terminal.
    pub(super) fn begin(screen: &MultiProgress, files: &[PathBuf]) -> Self {
        let (bar, style) = match length(files) {
            Some(bytes) => {
                (ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::hidden()), WITH_END)
            }
            None => (ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()), WITHOUT_END),
        };
        let bar = screen.add(bar);
        bar.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
        if !bar.is_hidden() {
            bar.enable_steady_tick(TICK);
        }
        let progress = Self { bar, records: 0, broken: 0 };
        progress.say();
        progress
    }

    /// So many records were taken, of so many bytes.
    pub(super) fn add(&mut self, records: u64, bytes: u64) {
        let before = self.records / TELL_EVERY;
        self.records += records;
        if self.bar.is_hidden() && self.records / TELL_EVERY > before {
            tracing::info!(records = self.records, "progress");
        }
        self.bar.inc(bytes);
        self.say();
    }

    /// A piece of input was no record.
    pub(super) fn add_broken(&mut self, bytes: u64) {
        self.broken += 1;
        self.add(1, bytes);
    }

    /// The bar goes; what was done is said in words.
    pub(super) fn end(self) {
        self.bar.finish_and_clear();
    }

    fn say(&self) {
        let broken = if self.broken > 0 { format!(", {} are none", self.broken) } else { String::new() };
        self.bar.set_message(format!("{} records{broken}", self.records));
    }
}

/// How much there is to read, if that can be known: pipes have no length, and packed files another one.
fn length(files: &[PathBuf]) -> Option<u64> {
    let of = |file: &PathBuf| {
        let packed = file.extension().is_some_and(|end| end == "gz");
        std::fs::metadata(file).ok().filter(|file| file.is_file() && !packed).map(|file| file.len())
    };
    files.iter().map(of).sum::<Option<u64>>().filter(|_| !files.is_empty())
}
