//! The state of the export in `data/export/`: what was sent, and the lock that allows one export at a time.
//!
//! ```text
//! data/export/lock                     held by the running export; contains its pid and start time
//! data/export/watermark.json           the last day of which everything was delivered or spooled, and the rules
//! data/export/sent/2025-11-29.jsonl    what was sent of this period: event id, content hash, sums
//! data/export/reconciled.json          what the last reconciliation of each period found
//! ```
//!
//! Files are written like the spool's: mode 0600 in 0700, synced and atomic. The file of a period is written when
//! everything of that period was delivered or is in the spool or in failed, and the watermark after it. After an earlier
//! crash the period is sent again, which makes no difference to a receiver that counts each id once.

mod find;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use ichido_core::Timestamp;
use ichido_delivery::disk::{self, Disk};
use ichido_usage::Record;
use jiff::civil::Date;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use self::find::FoundSent;
use super::calendar::{PeriodRange, after};
use ichido_serve::Failure;

const FORMAT: u32 = 1;
const LOCK: &str = "lock";
const WATERMARK: &str = "watermark.json";
/// The largest file of a period.
const FILE_BYTES_MAX: u64 = 4 << 30;

/// The state directory.
#[derive(Clone, Debug)]
pub struct State {
    dir: PathBuf,
}

/// Allows its holder to export until it is dropped.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// How far the export has come, and the rules that must not change between exports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watermark {
    format: u32,
    /// The last day of which everything was delivered or spooled.
    #[serde(with = "optional_text")]
    pub through: Option<Date>,
    /// When the source was last read completely.
    #[serde(with = "optional_text")]
    pub read_at: Option<jiff::Timestamp>,
    /// The settings that determine ids and sums.
    pub rules: BTreeMap<String, String>,
}

/// What was sent of one period.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SentRecords {
    /// By event id.
    pub records: BTreeMap<String, Content>,
    /// Hashes of the rejected rows and records that were written to failed.
    pub refused: BTreeSet<String>,
}

/// The sums of a record. A record with other sums has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// The hash of the id and the sums.
    pub hash: String,
    /// Requests.
    pub requests: u64,
    /// Prompt tokens.
    pub input: u64,
    /// Completion tokens.
    pub output: u64,
    /// The cost, as a decimal without trailing zeros.
    pub cost: String,
    /// The currency of the cost.
    pub currency: String,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    Head {
        format: u32,
        period: String,
    },
    Sent {
        id: String,
        #[serde(flatten)]
        content: Content,
    },
    Refused {
        refused: String,
    },
    End {
        lines: usize,
    },
}

impl Content {
    /// The content of a record. It does not include the app's name: renaming an app changes no bill.
    pub fn of(record: &Record) -> Self {
        let cost = record.cost_actual.normalize().to_string();
        let hash = content_hash(
            &record.metadata.source_event_id,
            record.request_count,
            record.input_tokens,
            record.output_tokens,
            &cost,
            &record.currency,
        );
        Self {
            hash,
            requests: record.request_count,
            input: record.input_tokens,
            output: record.output_tokens,
            cost,
            currency: record.currency.clone(),
        }
    }
}

/// The hash of a record's id and sums. `cost` has no trailing zeros.
pub(crate) fn content_hash(
    id: &str,
    requests: u64,
    input: u64,
    output: u64,
    cost: &str,
    currency: &str,
) -> String {
    short_hash(&format!("{id}\n{requests}\n{input}\n{output}\n{cost}\n{currency}"))
}

/// The first 16 hex digits of the SHA-256.
pub(crate) fn short_hash(text: &str) -> String {
    let digest = Sha256::digest(text);
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

impl State {
    /// The state in `DATA_DIR`. Creates nothing.
    pub fn new(data_dir: &Path) -> Self {
        Self { dir: data_dir.join("export") }
    }

    fn sent_dir(&self) -> PathBuf {
        self.dir.join("sent")
    }

    /// Whether anything was ever exported from here.
    pub fn exists(&self) -> bool {
        self.dir.is_dir()
    }

    /// Takes the lock, or fails with the process that holds it.
    pub fn lock(&self, now: Timestamp) -> Result<Lock, Failure> {
        let path = self.dir.join(LOCK);
        let failed = |error: io::Error| Failure::usage(format!("cannot prepare {}: {error}", path.display()));
        disk::create_private_dir(&self.dir).map_err(failed)?;
        disk::create_private_dir(&self.sent_dir()).map_err(failed)?;
        let mut file = disk::open_lock(&path).map_err(failed)?;
        if file.try_lock().is_err() {
            let mut holder = String::new();
            let _ = file.take(200).read_to_string(&mut holder);
            let holder = if holder.trim().is_empty() { "another process" } else { holder.trim() };
            return Err(Failure::usage(format!("another export is running: {holder}")));
        }
        let holder = format!("process {} since {}\n", std::process::id(), utc(now));
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all(holder.as_bytes()))
            .map_err(failed)?;
        Ok(Lock { _file: file })
    }

    /// The watermark, if there is one.
    pub fn watermark(&self) -> Result<Option<Watermark>, Failure> {
        let path = self.dir.join(WATERMARK);
        let bytes = match disk::read_regular(&path, 1 << 20) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unreadable(&path, &error.to_string())),
        };
        let watermark: Watermark =
            serde_json::from_slice(&bytes).map_err(|_| unreadable(&path, "it is malformed"))?;
        match watermark.format {
            FORMAT => Ok(Some(watermark)),
            _ => Err(unreadable(&path, "written by another version (format)")),
        }
    }

    /// Writes the watermark.
    pub fn set_watermark(&self, watermark: &Watermark) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(watermark)
            .map_err(|error| Failure::internal(format!("cannot write the watermark: {error}")))?;
        self.write(&self.dir, WATERMARK, text.as_bytes())
    }

    /// Reads a JSON file of at most `bytes_max` bytes, if it exists.
    pub(crate) fn document<T: DeserializeOwned>(
        &self,
        name: &str,
        bytes_max: u64,
    ) -> Result<Option<T>, Failure> {
        let path = self.dir.join(name);
        match disk::read_regular(&path, bytes_max) {
            Ok(bytes) => match serde_json::from_slice(&bytes) {
                Ok(document) => Ok(Some(document)),
                Err(_) => Err(unreadable(&path, "it is malformed")),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(unreadable(&path, &error.to_string())),
        }
    }

    /// Writes a JSON file.
    pub(crate) fn set_document(&self, name: &str, document: &impl Serialize) -> Result<(), Failure> {
        let failed = |error| Failure::usage(format!("cannot prepare {}: {error}", self.dir.display()));
        disk::create_private_dir(&self.dir).map_err(failed)?;
        let text = serde_json::to_vec(document)
            .map_err(|error| Failure::internal(format!("cannot write {name}: {error}")))?;
        self.write(&self.dir, name, &text)
    }

    /// Reads what was sent of a period.
    pub fn sent(&self, period: &str) -> Result<SentRecords, Failure> {
        let path = self.sent_dir().join(format!("{period}.jsonl"));
        let bytes = match disk::read_regular(&path, FILE_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(SentRecords::default()),
            Err(error) => return Err(unreadable(&path, &error.to_string())),
        };
        let text = std::str::from_utf8(&bytes).map_err(|_| unreadable(&path, "not UTF-8"))?;
        decode(text, period).map_err(|why| unreadable(&path, &why))
    }

    /// Writes what was sent of a period.
    pub fn set_sent(&self, period: &str, sent: &SentRecords) -> Result<(), Failure> {
        self.write(&self.sent_dir(), &format!("{period}.jsonl"), encode(sent, period)?.as_bytes())
    }

    /// The periods of which something was sent, oldest first.
    pub fn periods(&self) -> Result<Vec<Date>, Failure> {
        let dir = self.sent_dir();
        let names = disk::file_names(&dir).map_err(|error| unreadable(&dir, &error.to_string()))?;
        let days = names.iter().filter_map(|name| name.strip_suffix(".jsonl")?.parse().ok());
        let mut days: Vec<Date> = days.collect();
        days.sort();
        Ok(days)
    }

    fn write(&self, dir: &Path, name: &str, bytes: &[u8]) -> Result<(), Failure> {
        Disk::default()
            .replace(dir, name, bytes)
            .map_err(|error| Failure::internal(format!("cannot write {}: {error}", dir.join(name).display())))
    }
}

impl Watermark {
    /// The watermark of an export that has not sent anything yet.
    pub fn new(rules: BTreeMap<String, String>) -> Self {
        Self { format: FORMAT, through: None, read_at: None, rules }
    }

    /// Fails if the rules differ: the same usage would get other ids and be counted again.
    pub fn check_rules(&self, rules: &BTreeMap<String, String>) -> Result<(), Failure> {
        let Some((name, value)) = rules.iter().find(|(name, value)| self.rules.get(*name) != Some(value))
        else {
            return Ok(());
        };
        let before = self.rules.get(name).map_or("not set", String::as_str);
        Err(Failure::usage(format!(
            "export.dify.{name} is {value:?}, but earlier exports used {before:?}: the same usage would be counted twice. To \
             start over, use another DATA_DIR and export only days that were not sent"
        )))
    }

    /// Advances the watermark after everything of a period was delivered or spooled, unless there is a gap before it.
    pub fn advance(&mut self, range: &PeriodRange) -> Result<(), Failure> {
        let is_adjacent = match self.through {
            Some(through) => range.first <= after(through)?,
            None => true,
        };
        if is_adjacent {
            self.through = self.through.max(Some(range.last));
        }
        Ok(())
    }
}

/// Serializes an optional value as text.
mod optional_text {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    pub(super) fn serialize<T: Display, S: Serializer>(
        value: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.as_ref().map(T::to_string).serialize(serializer)
    }

    pub(super) fn deserialize<'de, T: FromStr, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<T>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        let malformed = |_| de::Error::custom("malformed value");
        text.map(|text| text.parse().map_err(malformed)).transpose()
    }
}

fn unreadable(path: &Path, why: &str) -> Failure {
    Failure::usage(format!("cannot read the state of the export: {}: {why}", path.display()))
}

fn encode(sent: &SentRecords, period: &str) -> Result<String, Failure> {
    let mut text = String::new();
    let mut write = |line: &Line| {
        let line = serde_json::to_string(line)
            .map_err(|error| Failure::internal(format!("cannot write what was sent: {error}")))?;
        text.push_str(&line);
        text.push('\n');
        Ok::<(), Failure>(())
    };
    write(&Line::Head { format: FORMAT, period: period.to_owned() })?;
    for (id, content) in &sent.records {
        write(&Line::Sent { id: id.clone(), content: content.clone() })?;
    }
    for refused in &sent.refused {
        write(&Line::Refused { refused: refused.clone() })?;
    }
    write(&Line::End { lines: sent.records.len() + sent.refused.len() })?;
    Ok(text)
}

fn decode(text: &str, period: &str) -> Result<SentRecords, String> {
    let mut sent = SentRecords::default();
    let (mut has_head, mut has_end) = (false, false);
    for (index, line) in text.lines().enumerate() {
        let line: Line =
            serde_json::from_str(line).map_err(|_| format!("line {} is malformed", index + 1))?;
        match line {
            Line::Head { format: FORMAT, period: of } if of == period => has_head = true,
            Line::Head { .. } => return Err("written by another version, or for another period".to_owned()),
            Line::Sent { id, content } => {
                sent.records.insert(id, content);
            }
            Line::Refused { refused } => {
                sent.refused.insert(refused);
            }
            Line::End { lines } => has_end = lines == sent.records.len() + sent.refused.len(),
        }
    }
    if has_head && has_end { Ok(sent) } else { Err("the file is incomplete".to_owned()) }
}

/// An instant in UTC, to the second.
fn utc(at: Timestamp) -> String {
    let at = i64::try_from(at.0).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    at.map_or_else(|| "?".to_owned(), |at| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn content(input: u64) -> Content {
        Content {
            hash: "0123456789abcdef".to_owned(),
            requests: 3,
            input,
            output: 7,
            cost: "0.0012".to_owned(),
            currency: "USD".to_owned(),
        }
    }

    #[test]
    fn sent_records_are_read_back_and_a_damaged_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let state = State::new(dir.path());
        let _lock = state.lock(Timestamp(0)).unwrap();
        let mut sent = SentRecords::default();
        sent.records.insert("dify-a".to_owned(), content(1));
        sent.records.insert("dify-b".to_owned(), content(2));
        sent.refused.insert("x".to_owned());
        state.set_sent("2025-11-29", &sent).unwrap();
        assert_eq!(state.sent("2025-11-29").unwrap(), sent);
        assert_eq!(state.sent("2025-11-30").unwrap(), SentRecords::default());
        let path = dir.path().join("export/sent/2025-11-29.jsonl");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(path.parent().unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o700);
        let text = std::fs::read_to_string(&path).unwrap();
        for damaged in [&text[..text.len() / 2], "", text.lines().next().unwrap()] {
            std::fs::write(&path, damaged).unwrap();
            let error = state.sent("2025-11-29").unwrap_err().to_string();
            assert!(error.contains("2025-11-29.jsonl"), "{error}");
        }
    }

    #[test]
    fn a_second_export_is_refused_and_names_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let state = State::new(dir.path());
        let first = state.lock(Timestamp(1_764_374_400_000)).unwrap();
        let refused = state.lock(Timestamp(0)).unwrap_err().to_string();
        assert!(refused.contains(&format!("process {}", std::process::id())), "{refused}");
        assert!(refused.contains("since 2025-11-29T00:00:00Z"), "{refused}");
        drop(first);
        state.lock(Timestamp(0)).unwrap();
    }
}
