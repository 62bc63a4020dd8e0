//! Combines many notices into one message.
//!
//! Every notice is counted; the first few of each kind are described in detail.

use std::fmt::Write;

use ichido_core::to_hex;
use sha2::{Digest as _, Sha256};

use super::event::{Event, Failed, Notice};
use super::message::{ListedNotice, Message};

/// How many notices of each kind are described in detail.
const DETAILED_MAX: usize = 5;
/// How many notices are listed for programs.
const LISTED_MAX: usize = 100;
/// The most characters of a text from elsewhere.
const TEXT_CHARS_MAX: usize = 400;

/// The notices in a message.
#[derive(Debug, Clone, Default)]
pub struct Digest {
    parts: [Part; KINDS],
    first: Option<String>,
    last: Option<String>,
    /// The number of notices, of which the first are listed.
    notices: u64,
    listed: Vec<ListedNotice>,
    ids: Sha256,
}

#[derive(Debug, Clone, Default)]
struct Part {
    count: u64,
    shown: Vec<String>,
}

const KINDS: usize = 9;
/// In the order of the message: singular, plural, and where to find the rest.
const LABELS: [(&str, &str, &str); KINDS] = [
    ("lane held", "lanes held", "see the log"),
    ("full spool", "full spools", "see the log"),
    ("batch failed", "batches failed", "run `ichido failed list`"),
    ("batch expired and failed", "batches expired and failed", "run `ichido failed list`"),
    ("invalid input item", "invalid input items", "run `ichido failed list`"),
    ("anomaly", "anomalies", "run `ichido events anomalies`"),
    ("budget notice", "budget notices", "run `ichido report usage`"),
    ("recovery", "recoveries", "see the log"),
    ("unreadable notice", "unreadable notices", "see data/notices/*.unreadable"),
];

impl Digest {
    /// Adds a notice.
    pub fn add(&mut self, id: &str, notice: &Notice) {
        self.notices += 1;
        self.ids.update(id);
        if self.listed.len() < LISTED_MAX {
            self.listed.push(ListedNotice::new(id.to_owned(), notice, line(notice)));
        }
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
            Event::Anomaly { .. } => (5, 1),
            Event::Budget { .. } => (6, 1),
            Event::Recovered { .. } => (7, 1),
        };
        self.count_and_show(kind, count, || line(notice));
    }

    /// Adds a notice file that could not be read.
    pub fn add_unreadable(&mut self, file: &str) {
        self.ids.update(file);
        self.count_and_show(8, 1, || file.to_owned());
    }

    /// The number of notices.
    pub fn count(&self) -> u64 {
        self.parts.iter().map(|part| part.count).sum()
    }

    /// Builds the message.
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
        Message {
            id: to_hex(&self.ids.clone().finalize())[..16].to_owned(),
            subject,
            text,
            first_at: self.first.clone(),
            last_at: self.last.clone(),
            count: self.notices,
            notices: self.listed.clone(),
        }
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
        Event::Anomaly { text, command, link, .. } => match link {
            // A link that is cut leads nowhere. Whoever announces it limits its length.
            Some(link) => format!("{}: {link}", plain(text)),
            None => format!("{}; run `{}`", plain(text), plain(command)),
        },
        Event::Budget { tenant, app, month, threshold, used, limit, unit } => {
            let of = app.as_ref().map_or_else(String::new, |app| format!("app {}, ", plain(app)));
            let (tenant, unit) = (plain(tenant), plain(unit));
            format!("{of}tenant {tenant}: {used} of {limit} {unit} used in {month} ({threshold} % reached)")
        }
        Event::Recovered { outage, since } => {
            format!("{}: recovered at {} (outage since {since})", plain(outage), notice.at)
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

/// Text from elsewhere on one line, truncated.
fn plain(text: &str) -> String {
    let mut line: String =
        text.chars().take(TEXT_CHARS_MAX).map(|char| if char.is_control() { ' ' } else { char }).collect();
    if text.chars().nth(TEXT_CHARS_MAX).is_some() {
        line.push('…');
    }
    line
}
