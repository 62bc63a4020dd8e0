//! The log on standard error: text for people at a terminal, JSON lines for processes that serve.
//!
//! A process that serves writes a line per request. Its threads leave their lines in memory, and one thread writes
//! them out; a reader that stands still costs lines, which are counted, and never requests.

mod json;

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressDrawTarget};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use self::json::JsonLine;
use crate::output;
use ichido_admin::AUDIT;
use ichido_serve::Failure;

/// What may wait to be written.
const WAITING_BYTES: usize = 8 << 20;
/// Lines of one moment are written together: to wake a thread for each takes longer than to make it.
const GATHER: Duration = Duration::from_millis(5);

/// Who reads the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// Someone who typed a command: warnings, as text.
    Person,
    /// Whatever collects the lines of a process that serves: one JSON object each.
    Machine,
}

/// The log of this process, until this is dropped: then what still waits is written.
pub(crate) struct Log {
    screen: MultiProgress,
    _flush: Option<Flush>,
}

impl Log {
    /// Where bars are drawn: lines of the log do not run into them.
    pub(crate) fn screen(&self) -> &MultiProgress {
        &self.screen
    }
}

/// Starts the log.
pub(crate) fn start(reader: Reader) -> Result<Log, Failure> {
    let default = match reader {
        Reader::Person => "warn",
        Reader::Machine => "info",
    };
    let told = std::env::var("LOG_LEVEL").ok().filter(|level| !level.is_empty());
    let level = told.unwrap_or_else(|| default.to_owned());
    let wrong = || Failure::usage("LOG_LEVEL must be error, warn, info, debug or trace");
    // A word alone would be taken for the name of a part of the program, and everything else would be silent.
    if !level.split(',').all(|word| word.contains('=') || word.parse::<LevelFilter>().is_ok()) {
        return Err(wrong());
    }
    let audit = if level.contains(AUDIT) { String::new() } else { format!(",{AUDIT}=info") };
    let filter = EnvFilter::try_new(format!("{level}{audit}")).map_err(|_| wrong())?;
    let is_plain =
        !io::stderr().is_terminal() || std::env::var_os("NO_COLOR").is_some_and(|no| !no.is_empty());
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_target(false).with_ansi(!is_plain);
    match reader {
        Reader::Person => {
            let screen = MultiProgress::new();
            log.with_writer(Beside(screen.clone())).init();
            Ok(Log { screen, _flush: None })
        }
        Reader::Machine => {
            let lines = Lines::start()?;
            log.event_format(JsonLine).with_writer(lines.clone()).init();
            let screen = MultiProgress::with_draw_target(ProgressDrawTarget::hidden());
            Ok(Log { screen, _flush: Some(Flush(lines)) })
        }
    }
}

/// Standard error beside bars, which step aside for each line.
#[derive(Clone)]
struct Beside(MultiProgress);

impl Write for Beside {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let text = ichido_serve::visible_log(&text);
        self.0.suspend(|| io::stderr().lock().write_all(text.as_bytes())).map(|()| line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Beside {
    type Writer = Self;
    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[derive(Clone)]
struct Lines(Arc<(Mutex<Waiting>, Condvar)>);

#[derive(Default)]
struct Waiting {
    bytes: Vec<u8>,
    dropped: u64,
    /// The writing thread has bytes in its hands.
    writing: bool,
}

impl Lines {
    fn start() -> Result<Self, Failure> {
        let lines = Self(Arc::default());
        let writer = lines.clone();
        std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || writer.work())
            .map_err(|error| Failure::internal(format!("starting the log: {error}")))?;
        Ok(lines)
    }

    fn work(&self) {
        let mut batch = Vec::new();
        loop {
            let mut waiting = self.lock();
            waiting.writing = false;
            self.0.1.notify_all();
            while waiting.bytes.is_empty() {
                waiting = self.0.1.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            }
            drop(waiting);
            std::thread::sleep(GATHER);
            let mut waiting = self.lock();
            std::mem::swap(&mut waiting.bytes, &mut batch);
            let dropped = std::mem::take(&mut waiting.dropped);
            waiting.writing = true;
            drop(waiting);
            if dropped > 0 {
                batch.extend_from_slice(
                    format!("{{\"level\":\"WARN\",\"message\":\"log lines were dropped\",\"dropped\":{dropped}}}\n").as_bytes(),
                );
            }
            // There is no other place to say that this one is gone.
            let _ = io::stderr().lock().write_all(&batch);
            batch.clear();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut waiting = self.lock();
        if waiting.bytes.len() + line.len() > WAITING_BYTES {
            waiting.dropped += 1;
            return Ok(line.len());
        }
        let was_empty = waiting.bytes.is_empty();
        waiting.bytes.extend_from_slice(line);
        drop(waiting);
        if was_empty {
            self.0.1.notify_all();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;
    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Waits for the last lines.
struct Flush(Lines);

impl Drop for Flush {
    fn drop(&mut self) {
        let mut waiting = self.0.lock();
        while !waiting.bytes.is_empty() || waiting.writing {
            let (lock, _) = self
                .0
                .0
                .1
                .wait_timeout(waiting, Duration::from_secs(1))
                .unwrap_or_else(PoisonError::into_inner);
            waiting = lock;
        }
    }
}
