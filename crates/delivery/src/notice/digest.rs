//! Many notices as one message.
//!
//! Every notice is counted; of each kind the first few are told in full.

use std::fmt::Write;

use super::channel::Message;
use super::event::{Event, Failed, Notice};

/// How many notices of a kind are told in full.
const DETAILED_MAX: usize = 5;
/// The longest word of a server that is repeated.
const TEXT_CHARS_MAX: usize = 400;

/// What a message speaks of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Digest {
    parts: [Part; KINDS],
    first: Option<String>,
    last: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Part {
    count: u64,
    shown: Vec<String>,
}

const KINDS: usize = 7;
/// In the order in which they are told: one of it, several of it, and where the others are found.
const LABELS: [(&str, &str, &str); KINDS] = [
    ("lane held", "lanes held", "see the log"),
    ("full spool", "reports of a full spool", "see the log"),
    ("batch failed", "batches failed", "see: ichido failed list"),
    ("batch waited too long and failed", "batches waited too long and failed", "see: ichido failed list"),
    ("piece of input is no record", "pieces of input are no records", "see: ichido failed list"),
    ("recovery", "recoveries", "see the log"),
    ("unreadable notice", "unreadable notices", "see data/notices/*.unreadable"),
];

impl Digest {
    /// Adds a notice.
    pub fn add(&mut self, notice: &Notice) {
        if self.first.as_ref().is_none_or(|first| notice.at < *first) {
            self.first = Some(notice.at.clone());
        }
        if self.last.as_ref().is_none_or(|last| notice.at > *last) {
            self.last = Some(notice.at.clone());
        }
        let (kind, count) = match notice.event {
            Event::Held { .. } => (0, 1),
            Event::SpoolFull { .. } => (1, 1),
            Event::Failed(_) => (2, 1),
            Event::Expired(_) => (3, 1),
            Event::InvalidInput { count, .. } => (4, count),
            Event::Recovered { .. } => (5, 1),
        };
        self.count_and_show(kind, count, || line(notice));
    }

    /// Adds a file that could not be read.
    pub fn add_unreadable(&mut self, file: &str) {
        self.count_and_show(6, 1, || file.to_owned());
    }

    /// How many notices it speaks of.
    pub fn count(&self) -> u64 {
        self.parts.iter().map(|part| part.count).sum()
    }

    /// The message.
    pub fn message(&self) -> Message {
        let present = || self.parts.iter().zip(&LABELS).filter(|(part, _)| part.count > 0);
        let counts: Vec<String> = present().map(|(part, labels)| counted(part.count, labels)).collect();
        let subject = format!("ichido: {}", counts.join(", "));
        let mut text = match (&self.first, &self.last) {
            (Some(first), Some(last)) if first != last => format!("From {first} to {last}\n"),
            (Some(first), _) => format!("At {first}\n"),
            (None, _) => String::new(),
        };
        for (part, labels) in present() {
            let _ = writeln!(text, "\n{}", counted(part.count, labels));
            for line in &part.shown {
                let _ = writeln!(text, "- {line}");
            }
            let more = part.count.saturating_sub(part.shown.len() as u64);
            if more > 0 {
                let _ = writeln!(text, "- and {more} more: {}", labels.2);
            }
        }
        Message { subject, text }
    }

    fn count_and_show(&mut self, kind: usize, count: u64, line: impl FnOnce() -> String) {
        let part = &mut self.parts[kind];
        part.count += count;
        if part.shown.len() < DETAILED_MAX {
            part.shown.push(line());
        }
    }
}

fn counted(count: u64, (one, several, _): &(&str, &str, &str)) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}

fn line(notice: &Notice) -> String {
    match &notice.event {
        Event::Failed(failed) | Event::Expired(failed) => failed_line(failed),
        Event::Held { lane, reason } => format!("{}: {} (since {})", plain(lane), plain(reason), notice.at),
        Event::InvalidInput { reason, .. } => format!("{} ({})", plain(reason), notice.at),
        Event::SpoolFull { reason } => format!("{} ({})", plain(reason), notice.at),
        Event::Recovered { outage, since } => {
            format!("{}: works again at {} (since {since})", plain(outage), notice.at)
        }
    }
}

fn failed_line(failed: &Failed) -> String {
    format!(
        "filePath {}, lastError {}, firstAttempt {}, retryCount {}, {} records, batchIdempotencyKey {}",
        plain(&failed.file_path),
        plain(&failed.last_error),
        failed.first_attempt,
        failed.retry_count,
        failed.records,
        failed.batch_idempotency_key
    )
}

/// Words of others on one line, not too long.
fn plain(text: &str) -> String {
    let mut line: String =
        text.chars().take(TEXT_CHARS_MAX).map(|char| if char.is_control() { ' ' } else { char }).collect();
    if text.chars().nth(TEXT_CHARS_MAX).is_some() {
        line.push('…');
    }
    line
}
