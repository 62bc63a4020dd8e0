//! Standard error without blocking: threads append to a queue in memory, and one thread writes it out.
//!
//! A reader that stalls costs log lines, but never a request, and the process can still exit. The queue is bounded. Lines
//! that do not fit, or that cannot be written, are counted; the count is exported as a metric and logged as soon as
//! writing works again. Audit lines have a reserve of their own, so that request lines cannot crowd them out.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::failure::Failure;

/// Ordinary lines are dropped when the queue holds this much.
const QUEUE_MAX_BYTES: usize = 8 << 20;
/// Audit lines may use this much more.
const AUDIT_RESERVE_BYTES: usize = 1 << 20;
/// Lines are collected for this long before they are written: waking a thread costs more than formatting a line.
const GATHER: Duration = Duration::from_millis(5);
/// How long the process waits for the last lines before it exits.
const FLUSH_MAX: Duration = Duration::from_secs(2);

/// The queue of this process. Without one, lines are written directly.
static QUEUE: OnceLock<Queue> = OnceLock::new();

/// How much it matters that a line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Dropped first.
    Normal,
    /// What an operator did.
    Audit,
}

/// Starts the queue of this process.
pub fn start_queue() -> Result<Queue, Failure> {
    let fail = |error: io::Error| Failure::internal(format!("cannot start the log writer: {error}"));
    // Not through std's handle: its lock would be held for as long as a write blocks.
    let stderr = File::from(io::stderr().as_fd().try_clone_to_owned().map_err(fail)?);
    let queue = Queue::start(stderr).map_err(fail)?;
    Ok(QUEUE.get_or_init(|| queue).clone())
}

/// Writes a line to standard error, in order with the log.
pub fn write_line(line: &str) {
    let line = format!("{line}\n");
    match QUEUE.get() {
        Some(queue) => queue.push(line.as_bytes(), Priority::Normal),
        // If standard error is gone, there is nowhere to report that.
        None => drop(io::stderr().write_all(line.as_bytes())),
    }
}

/// Waits, when dropped, until everything is written, but not for longer than `FLUSH_MAX`.
pub struct FlushOnDrop;

impl Drop for FlushOnDrop {
    fn drop(&mut self) {
        if let Some(queue) = QUEUE.get() {
            queue.flush(FLUSH_MAX);
        }
    }
}

/// A queue of lines, and the thread that writes them.
#[derive(Clone)]
pub struct Queue(Arc<Shared>);

#[derive(Default)]
struct Shared {
    pending: Mutex<Pending>,
    changed: Condvar,
}

#[derive(Default)]
struct Pending {
    bytes: Vec<u8>,
    queued: Lines,
    /// Lost since the last report.
    lost: Lines,
    /// The thread is writing what it took from the queue.
    is_writing: bool,
}

/// Numbers of lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lines {
    normal: u64,
    audit: u64,
}

impl Queue {
    fn start(sink: impl Write + Send + 'static) -> io::Result<Self> {
        let queue = Self(Arc::default());
        let writer = queue.clone();
        std::thread::Builder::new().name("log".to_owned()).spawn(move || writer.write_to(sink))?;
        Ok(queue)
    }

    /// Appends a line, or drops and counts it if the queue is full. Never waits for the reader.
    pub fn push(&self, line: &[u8], priority: Priority) {
        let (limit, lines) = match priority {
            Priority::Normal => (QUEUE_MAX_BYTES, Lines { normal: 1, audit: 0 }),
            Priority::Audit => (QUEUE_MAX_BYTES + AUDIT_RESERVE_BYTES, Lines { normal: 0, audit: 1 }),
        };
        let mut pending = self.lock();
        if pending.bytes.len() + line.len() > limit {
            pending.lose(lines);
            return;
        }
        let was_empty = pending.bytes.is_empty();
        pending.bytes.extend_from_slice(line);
        pending.queued.add(lines);
        drop(pending);
        if was_empty {
            self.0.changed.notify_all();
        }
    }

    fn flush(&self, wait_max: Duration) {
        let is_busy = |pending: &mut Pending| !pending.bytes.is_empty() || pending.is_writing;
        drop(self.0.changed.wait_timeout_while(self.lock(), wait_max, is_busy));
    }

    fn write_to(&self, mut sink: impl Write) {
        let mut batch = Vec::new();
        loop {
            drop(self.0.changed.wait_while(self.lock(), |pending| pending.bytes.is_empty()));
            std::thread::sleep(GATHER);
            let mut pending = self.lock();
            std::mem::swap(&mut pending.bytes, &mut batch);
            let (lines, lost) = (std::mem::take(&mut pending.queued), std::mem::take(&mut pending.lost));
            pending.is_writing = true;
            drop(pending);
            batch.extend_from_slice(lost.report().as_bytes());
            let written = sink.write_all(&batch);
            let mut pending = self.lock();
            if written.is_err() {
                // Nobody knows how much was written. All of it counts as lost: too many rather than too few.
                pending.lose(lines);
                pending.lost.add(lost);
            }
            pending.is_writing = false;
            drop(pending);
            self.0.changed.notify_all();
            batch.clear();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.0.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pending {
    fn lose(&mut self, lines: Lines) {
        self.lost.add(lines);
        // The log cannot say that it is stuck. The metric can.
        ::metrics::counter!("ichido_log_lines_dropped_total", "kind" => "audit").increment(lines.audit);
        ::metrics::counter!("ichido_log_lines_dropped_total", "kind" => "other").increment(lines.normal);
    }
}

impl Lines {
    fn add(&mut self, more: Self) {
        self.normal += more.normal;
        self.audit += more.audit;
    }

    /// A log line about these lost lines, or nothing if there are none.
    fn report(self) -> String {
        match self {
            Self { normal: 0, audit: 0 } => String::new(),
            Self { normal, audit } => format!(
                "{{\"level\":\"WARN\",\"message\":\"log lines were dropped\",\"dropped\":{},\"dropped_audit\":{audit}}}\n",
                normal + audit
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// A reader that stalls: each write waits for a permit, and fails if told to.
    struct Stalling {
        permits: mpsc::Receiver<io::Result<()>>,
        written: Arc<Mutex<String>>,
    }

    impl Write for Stalling {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.permits.recv().unwrap_or(Ok(()))?;
            self.written.lock().unwrap().push_str(std::str::from_utf8(bytes).unwrap());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn stalling() -> (Queue, mpsc::Sender<io::Result<()>>, Arc<Mutex<String>>) {
        let (permit, permits) = mpsc::channel();
        let written = Arc::<Mutex<String>>::default();
        let queue = Queue::start(Stalling { permits, written: written.clone() }).unwrap();
        (queue, permit, written)
    }

    /// Blocks the writing thread on a first line, then fills the queue.
    fn fill(queue: &Queue) {
        queue.push(b"first\n", Priority::Normal);
        while !queue.lock().is_writing {
            std::thread::yield_now();
        }
        queue.push(&vec![b'x'; QUEUE_MAX_BYTES], Priority::Normal);
    }

    #[test]
    fn stalled_reader_costs_lines_which_are_reported() {
        let (queue, permit, written) = stalling();
        fill(&queue);
        queue.push(b"lost\n", Priority::Normal);
        queue.push(b"lost too\n", Priority::Normal);
        drop(permit);
        queue.flush(LONG);
        let written = written.lock().unwrap();
        assert!(written.starts_with("first\n") && !written.contains("lost"));
        assert!(written.ends_with("\"dropped\":2,\"dropped_audit\":0}\n"));
    }

    #[test]
    fn request_lines_do_not_crowd_out_audit_lines() {
        let (queue, permit, written) = stalling();
        fill(&queue);
        queue.push(b"request\n", Priority::Normal);
        queue.push(b"audit\n", Priority::Audit);
        queue.push(&vec![b'x'; AUDIT_RESERVE_BYTES], Priority::Audit);
        drop(permit);
        queue.flush(LONG);
        let written = written.lock().unwrap();
        assert!(written.contains("audit\n") && !written.contains("request\n"));
        assert!(written.ends_with("\"dropped\":2,\"dropped_audit\":1}\n"));
    }

    #[test]
    fn lines_that_cannot_be_written_are_reported_once_writing_works() {
        let (queue, permit, written) = stalling();
        permit.send(Err(io::ErrorKind::StorageFull.into())).unwrap();
        queue.push(b"lost\n", Priority::Audit);
        queue.flush(LONG);
        drop(permit);
        queue.push(b"second\n", Priority::Normal);
        queue.flush(LONG);
        let written = written.lock().unwrap();
        assert!(written.starts_with("second\n"), "{written}");
        assert!(written.ends_with("\"dropped\":1,\"dropped_audit\":1}\n"), "{written}");
    }

    #[test]
    fn flush_gives_up_on_a_stalled_reader() {
        let (queue, permit, written) = stalling();
        fill(&queue);
        queue.flush(Duration::from_millis(1));
        assert!(written.lock().unwrap().is_empty());
        drop(permit);
    }
}
