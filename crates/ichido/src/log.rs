//! The log on standard error: text at a terminal, JSON lines for servers and scheduled jobs elsewhere.

mod json;

use std::io::{self, Write};

use indicatif::{MultiProgress, ProgressDrawTarget};
use tracing::Metadata;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::fmt::{self, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use self::json::JsonLine;
use crate::output;
use ichido_admin::AUDIT;
use ichido_serve::shutdown::LIFECYCLE;
use ichido_serve::stderr::{self, Priority, Queue};
use ichido_serve::{Failure, visible_log};

/// Who reads the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// Somebody who typed a command: warnings, as text.
    Person,
    /// Somebody who watches a server at a terminal: text, from level info.
    Watcher,
    /// A log collector: one JSON object per line, from level info, and nothing else.
    Collector,
}

impl Reader {
    /// The line of a server that has started.
    pub(crate) fn report_start(self, summary: &str) {
        match self {
            Reader::Person | Reader::Watcher => errln!("{summary}"),
            Reader::Collector => tracing::info!(target: LIFECYCLE, summary, "started"),
        }
    }

    /// The last line of a command that failed.
    pub(crate) fn report_failure(self, failure: &Failure) {
        match self {
            Reader::Person | Reader::Watcher => errln!("ichido: {failure}"),
            Reader::Collector => {
                let exit_code = failure.class() as u8;
                tracing::error!(target: LIFECYCLE, error = %failure, exit_code, "failed");
            }
        }
    }
}

/// Starts the log, and returns where progress bars are drawn so that log lines do not run into them.
///
/// Audit lines, and those about start and stop, are always written, unless `LOG_LEVEL` names their target.
pub(crate) fn start(reader: Reader) -> Result<MultiProgress, Failure> {
    let default = match reader {
        Reader::Person => "warn",
        Reader::Watcher | Reader::Collector => "info",
    };
    let level = std::env::var("LOG_LEVEL").ok().filter(|level| !level.is_empty());
    let level = level.unwrap_or_else(|| default.to_owned());
    let invalid = || Failure::usage("LOG_LEVEL must be error, warn, info, debug or trace");
    // The filter would take a misspelled level for the name of a module, and silence everything else.
    if !level.split(',').all(|part| part.contains('=') || part.parse::<LevelFilter>().is_ok()) {
        return Err(invalid());
    }
    let always = [AUDIT, LIFECYCLE].into_iter().filter(|target| !level.contains(target));
    let filter = always.fold(level.clone(), |filter, target| format!("{filter},{target}=info"));
    let filter: Targets = filter.parse().map_err(|_| invalid())?;
    let log = fmt::layer().with_target(false).with_ansi(output::may_color(&io::stderr()));
    let filtered = tracing_subscriber::registry().with(filter);
    match reader {
        Reader::Person => {
            let progress = MultiProgress::new();
            filtered.with(log.with_writer(AboveProgress(progress.clone()))).init();
            Ok(progress)
        }
        Reader::Watcher => {
            let log = log.with_timer(Seconds).with_writer(Visible(Queued(stderr::start_queue()?)));
            filtered.with(log).init();
            Ok(MultiProgress::with_draw_target(ProgressDrawTarget::hidden()))
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
        let text = visible_log(&text);
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

/// Writes to the queue what a terminal can show.
struct Visible(Queued);

struct VisibleLine<'a>(QueuedLine<'a>);

impl<'a> MakeWriter<'a> for Visible {
    type Writer = VisibleLine<'a>;

    fn make_writer(&'a self) -> VisibleLine<'a> {
        VisibleLine(self.0.make_writer())
    }

    fn make_writer_for(&'a self, event: &Metadata<'_>) -> VisibleLine<'a> {
        VisibleLine(self.0.make_writer_for(event))
    }
}

impl Write for VisibleLine<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        self.0.write(visible_log(&text).as_bytes()).map(|_| line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The time of a line for a person, in UTC, to the second.
struct Seconds;

impl FormatTime for Seconds {
    #[allow(clippy::disallowed_methods, reason = "only shown, never compared")]
    fn format_time(&self, w: &mut Writer<'_>) -> std::fmt::Result {
        write!(w, "{}", jiff::Timestamp::now().strftime("%H:%M:%SZ"))
    }
}
