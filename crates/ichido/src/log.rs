//! The log on standard error: text for people at a terminal, JSON lines for servers and scheduled jobs.

mod json;

use std::io::{self, IsTerminal, Write};

use indicatif::{MultiProgress, ProgressDrawTarget};
use tracing::Metadata;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::{self, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use self::json::JsonLine;
use ichido_admin::AUDIT;
use ichido_serve::Failure;
use ichido_serve::stderr::{self, Priority, Queue};

/// Who reads the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// Somebody who typed a command: warnings, as text.
    Person,
    /// A log collector: one JSON object per line, from level info.
    Collector,
}

/// Starts the log, and returns where progress bars are drawn so that log lines do not run into them.
///
/// Audit lines are always written, unless `LOG_LEVEL` names their target.
pub(crate) fn start(reader: Reader) -> Result<MultiProgress, Failure> {
    let default = match reader {
        Reader::Person => "warn",
        Reader::Collector => "info",
    };
    let level = std::env::var("LOG_LEVEL").ok().filter(|level| !level.is_empty());
    let level = level.unwrap_or_else(|| default.to_owned());
    let invalid = || Failure::usage("LOG_LEVEL must be error, warn, info, debug or trace");
    // The filter would take a misspelled level for the name of a module, and silence everything else.
    if !level.split(',').all(|part| part.contains('=') || part.parse::<LevelFilter>().is_ok()) {
        return Err(invalid());
    }
    let audit = if level.contains(AUDIT) { String::new() } else { format!(",{AUDIT}=info") };
    let filter: Targets = format!("{level}{audit}").parse().map_err(|_| invalid())?;
    let is_plain =
        !io::stderr().is_terminal() || std::env::var_os("NO_COLOR").is_some_and(|no| !no.is_empty());
    let log = fmt::layer().with_target(false).with_ansi(!is_plain);
    let filtered = tracing_subscriber::registry().with(filter);
    match reader {
        Reader::Person => {
            let progress = MultiProgress::new();
            filtered.with(log.with_writer(AboveProgress(progress.clone()))).init();
            Ok(progress)
        }
        Reader::Collector => {
            let log = log.event_format(JsonLine).with_writer(Queued(stderr::start_queue()?));
            filtered.with(log).init();
            Ok(MultiProgress::with_draw_target(ProgressDrawTarget::hidden()))
        }
    }
}

/// Writes to standard error directly, and hides the progress bars meanwhile.
#[derive(Clone)]
struct AboveProgress(MultiProgress);

impl Write for AboveProgress {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let text = ichido_serve::visible_log(&text);
        self.0.suspend(|| io::stderr().lock().write_all(text.as_bytes())).map(|()| line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for AboveProgress {
    type Writer = Self;
    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Writes to the queue. The subscriber writes each event at once, as one line.
struct Queued(Queue);

struct QueuedLine<'a> {
    queue: &'a Queue,
    priority: Priority,
}

impl<'a> MakeWriter<'a> for Queued {
    type Writer = QueuedLine<'a>;

    fn make_writer(&'a self) -> QueuedLine<'a> {
        QueuedLine { queue: &self.0, priority: Priority::Normal }
    }

    fn make_writer_for(&'a self, event: &Metadata<'_>) -> QueuedLine<'a> {
        let priority = if event.target() == AUDIT { Priority::Audit } else { Priority::Normal };
        QueuedLine { queue: &self.0, priority }
    }
}

impl Write for QueuedLine<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.queue.push(line, self.priority);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
