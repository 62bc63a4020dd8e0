//! The file format of a batch.
//!
//! ```json
//! {"batchIdempotencyKey":"a3f2e1b9c4d5…","firstAttempt":"2025-01-18T12:05:30Z","retryCount":0,
//!  "notBefore":"…","lastError":"HTTP 503 Service Unavailable","attempts":[{"at":"…","error":"…"}],
//!  "partOf":"…","brokenInput":true,"answerLost":"…","timedOut":"…","spooledElsewhere":true,"byRecord":true,"format":1,
//!  "records":[…],"checksum":"sha256:…"}
//! ```
//!
//! Other programs write the plain form: the key, the records, `firstAttempt`, `retryCount` and `lastError`. A file with
//! neither `format` nor `checksum` is accepted: it has the plain form, or an operator edited it and removed both.
//!
//! Unknown fields are kept as they are, and records byte for byte. The checksum is the last field, and covers every
//! byte before the comma that precedes it. The file never contains the token.

use std::borrow::Cow;
use std::fmt;

use ichido_core::{Timestamp, to_hex};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::batch::Batch;
use crate::gzip;
use crate::history::History;
use crate::record::Record;
use crate::time::{iso, parse_iso};

/// The largest file that is read, compressed or not.
pub const FILE_BYTES_MAX: u64 = 64 << 20;
/// The version that we write. Files of another version are rejected, never misread.
const FORMAT: u64 = 1;
/// Number of attempts that are kept; the oldest are dropped.
const ATTEMPTS_MAX: usize = 40;
pub(super) const CHECKSUM: &str = ",\"checksum\":\"sha256:";
const SUM_DIGITS: usize = 64;

/// A batch with its history.
#[derive(Clone)]
pub struct StoredBatch {
    /// The batch.
    pub batch: Batch,
    /// When it was first tried.
    pub first_attempt: Timestamp,
    /// Number of failed passes.
    pub retry_count: u32,
    /// The last error, redacted.
    pub last_error: Option<String>,
    /// The receiver asked not to be sent this batch before this time.
    pub not_before: Option<Timestamp>,
    /// What happened so far, oldest first.
    pub attempts: Vec<Attempt>,
    /// The key of the batch that was split into this one and others.
    pub part_of: Option<String>,
    /// It contains an invalid input item: never sent, kept for an operator.
    pub is_invalid_input: bool,
    /// What happened to earlier requests, as far as it helps to interpret a 409.
    pub history: History,
    /// An operator declared that the receiver tracks individual records, whatever `EXTERNAL_API_CONFLICT` says.
    pub by_record: bool,
    /// Unknown fields, in their order.
    pub unknown: Vec<(String, Box<RawValue>)>,
}

/// A pass over a batch, or another event in its history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// When it happened.
    pub at: String,
    /// What went wrong, with the receiver's message if there was one.
    pub error: String,
}

/// Why the content of a file is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("corrupt: {0}")]
pub struct Corrupt(pub String);

/// Prints no content: records, errors and unknown fields may contain personal data.
impl fmt::Debug for StoredBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredBatch")
            .field("key", &self.batch.key())
            .field("records", &self.batch.records().len())
            .field("retry_count", &self.retry_count)
            .finish_non_exhaustive()
    }
}

impl StoredBatch {
    /// A batch that was just accepted.
    pub fn fresh(batch: Batch, now: Timestamp) -> Self {
        Self {
            batch,
            first_attempt: now,
            retry_count: 0,
            last_error: None,
            not_before: None,
            attempts: Vec::new(),
            part_of: None,
            is_invalid_input: false,
            history: History::default(),
            by_record: false,
            unknown: Vec::new(),
        }
    }

    /// A part of this batch, with the same history of errors.
    pub fn with(&self, batch: Batch) -> Self {
        // All of the batch under the same key is not a part.
        if batch.key() == self.batch.key() {
            return Self { batch, ..self.clone() };
        }
        // No request has been made under its own key yet.
        let part_of = Some(self.batch.key().to_owned());
        Self { batch, part_of, history: History::default(), ..self.clone() }
    }

    /// Adds an error to the history.
    pub fn note(&mut self, now: Timestamp, error: &str) {
        self.last_error = Some(error.to_owned());
        self.attempts.push(Attempt { at: iso(now), error: error.to_owned() });
        let excess = self.attempts.len().saturating_sub(ATTEMPTS_MAX);
        self.attempts.drain(..excess);
    }

    /// Encodes the file.
    pub fn encode(&self, gzip: bool) -> Vec<u8> {
        let text = seal(self.encode_unsealed());
        if gzip { gzip::compress(text.as_bytes()) } else { text.into_bytes() }
    }

    /// The text of the file up to its checksum, which [`seal`] adds.
    pub(super) fn encode_unsealed(&self) -> String {
        let mut text = String::with_capacity(
            512 + self.batch.records().iter().map(|record| record.json().len() + 1).sum::<usize>(),
        );
        text.push('{');
        field(&mut text, "batchIdempotencyKey", &quoted(self.batch.key()));
        field(&mut text, "firstAttempt", &quoted(&iso(self.first_attempt)));
        field(&mut text, "retryCount", &self.retry_count.to_string());
        if let Some(at) = self.not_before {
            field(&mut text, "notBefore", &quoted(&iso(at)));
        }
        field(&mut text, "lastError", &self.last_error.as_deref().map_or("null".to_owned(), quoted));
        if !self.attempts.is_empty() {
            field(&mut text, "attempts", &serde_json::to_string(&self.attempts).unwrap_or_default());
        }
        if let Some(whole) = &self.part_of {
            field(&mut text, "partOf", &quoted(whole));
        }
        if self.is_invalid_input {
            field(&mut text, "brokenInput", "true");
        }
        if let Some(at) = self.history.response_lost {
            field(&mut text, "answerLost", &quoted(&iso(at)));
        }
        if let Some(at) = self.history.timed_out {
            field(&mut text, "timedOut", &quoted(&iso(at)));
        }
        if self.history.spooled_elsewhere {
            field(&mut text, "spooledElsewhere", "true");
        }
        if self.by_record {
            field(&mut text, "byRecord", "true");
        }
        field(&mut text, "format", &FORMAT.to_string());
        for (name, value) in &self.unknown {
            field(&mut text, name, value.get());
        }
        text.push_str(",\"records\":[");
        for (index, record) in self.batch.records().iter().enumerate() {
            if index > 0 {
                text.push(',');
            }
            text.push_str(record.json());
        }
        text.push(']');
        text
    }

    /// Decodes a file. `fallback` is the first attempt if the file does not name one.
    pub fn decode(bytes: &[u8], gzip: bool, fallback: Timestamp) -> Result<Self, Corrupt> {
        Self::decode_or(bytes, gzip, || fallback)
    }

    /// Like [`StoredBatch::decode`], but computes the fallback only if it is needed, because there may be many files.
    pub(super) fn decode_or(
        bytes: &[u8],
        gzip: bool,
        fallback: impl FnOnce() -> Timestamp,
    ) -> Result<Self, Corrupt> {
        let decompressed = if gzip { Cow::Owned(decompress(bytes)?) } else { Cow::Borrowed(bytes) };
        if decompressed.is_empty() {
            return Err(corrupt("the file is empty"));
        }
        let text = std::str::from_utf8(&decompressed).map_err(|_| corrupt("not UTF-8"))?;
        let Fields { fields, records } =
            serde_json::from_str::<Fields<'_, true>>(text).or_else(|_| without_records(text))?;
        check_sum(text, &fields)?;
        Self::from_fields(fields, records, fallback)
    }

    fn from_fields(
        fields: Vec<(String, &RawValue)>,
        mut records: Option<Vec<Box<RawValue>>>,
        fallback: impl FnOnce() -> Timestamp,
    ) -> Result<Self, Corrupt> {
        let (mut key, mut first_attempt) = (None, None);
        let mut stored = Self::fresh(Batch::stored(String::new(), Vec::new()), Timestamp::default());
        // A file of ours that an operator has edited no longer has `format`, but still has `attempts`.
        let is_ours = fields.iter().any(|(name, _)| name == "format" || name == "attempts");
        stored.history.spooled_elsewhere = !is_ours;
        for (name, value) in fields {
            let wrong = || corrupt(&format!("{name} has an invalid value"));
            let time = || parse_iso(&read::<String>(value).ok_or_else(wrong)?).ok_or_else(wrong);
            match name.as_str() {
                "batchIdempotencyKey" => key = Some(read::<String>(value).ok_or_else(wrong)?),
                "records" => records = Some(read::<Vec<Box<RawValue>>>(value).ok_or_else(wrong)?),
                "firstAttempt" => first_attempt = Some(time()?),
                "retryCount" => stored.retry_count = read(value).ok_or_else(wrong)?,
                "lastError" => stored.last_error = read::<Option<String>>(value).ok_or_else(wrong)?,
                "notBefore" if value.get() == "null" => {}
                "notBefore" => stored.not_before = Some(time()?),
                "attempts" => stored.attempts = read(value).ok_or_else(wrong)?,
                "partOf" => stored.part_of = read(value).ok_or_else(wrong)?,
                "brokenInput" => stored.is_invalid_input = read(value).ok_or_else(wrong)?,
                "answerLost" => stored.history.response_lost = Some(time()?),
                "timedOut" => stored.history.timed_out = Some(time()?),
                "spooledElsewhere" => stored.history.spooled_elsewhere = read(value).ok_or_else(wrong)?,
                "byRecord" => stored.by_record = read(value).ok_or_else(wrong)?,
                "format" => match read::<u64>(value) {
                    Some(FORMAT) => {}
                    _ => return Err(corrupt("written by another version of ichido (format)")),
                },
                "checksum" => {}
                _ => stored.unknown.push((name, value.to_owned())),
            }
        }
        stored.first_attempt = first_attempt.unwrap_or_else(fallback);
        let records = records.ok_or_else(|| corrupt("there are no records"))?;
        let records: Result<Vec<Record>, _> = records.into_iter().map(Record::new).collect();
        let records = records.map_err(|_| corrupt("a record is not a JSON object"))?;
        if records.is_empty() {
            return Err(corrupt("there are no records"));
        }
        stored.batch = match key.filter(|key| !key.is_empty()) {
            Some(key) => Batch::stored(key, records),
            None => Batch::new(records),
        };
        Ok(stored)
    }
}

/// Adds the checksum to the text of a file, and ends it.
pub(super) fn seal(mut text: String) -> String {
    let sum = to_hex(&Sha256::digest(&text));
    text.push_str(CHECKSUM);
    text.push_str(&sum);
    text.push_str("\"}\n");
    text
}

/// Reads `notBefore` from the start of a file: a batch that is not due need not be read completely.
pub(super) fn peek_not_before(head: &[u8]) -> Option<Timestamp> {
    let head = String::from_utf8_lossy(head);
    let before_records = head.split("\"records\"").next()?;
    let value = before_records.split_once("\"notBefore\":\"")?.1;
    parse_iso(value.split_once('"')?.0)
}

/// The fields at the start of a file, before the attempts and the records: fast to read, however large the file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// The key of the batch.
    pub key: String,
    /// When it was first tried.
    pub first_attempt: Timestamp,
    /// Number of failed passes.
    pub retry_count: u32,
    /// The receiver asked not to be sent this batch before this time.
    pub not_before: Option<Timestamp>,
    /// The last error, redacted.
    pub last_error: Option<String>,
}

/// Parses the start of a file that we wrote. `None` if another program wrote it, or if `head` is too short.
pub(super) fn peek_header(head: &[u8]) -> Option<BatchHeader> {
    let text = String::from_utf8_lossy(head);
    // Inside a string the quotes would be escaped, so this is a field name.
    let end = [",\"attempts\":", ",\"format\":"].iter().filter_map(|next| text.find(next)).min()?;
    let object = format!("{}}}", &text[..end]);
    let Fields { fields, .. } = serde_json::from_str::<Fields<'_, false>>(&object).ok()?;
    let value = |name: &str| fields.iter().find(|(known, _)| known == name).map(|(_, value)| *value);
    let time = |name: &str| parse_iso(&read::<String>(value(name)?)?);
    Some(BatchHeader {
        key: read(value("batchIdempotencyKey")?)?,
        first_attempt: time("firstAttempt")?,
        retry_count: read(value("retryCount")?)?,
        not_before: time("notBefore"),
        last_error: read::<Option<String>>(value("lastError")?)?,
    })
}

fn check_sum(text: &str, fields: &[(String, &RawValue)]) -> Result<(), Corrupt> {
    if !fields.iter().any(|(name, _)| name == "checksum" || name == "format") {
        return Ok(());
    }
    let wrong = || {
        corrupt("the checksum does not match (if you edited the file, remove the fields format and checksum)")
    };
    let whole = text.trim_end().strip_suffix("\"}").ok_or_else(wrong)?;
    let (rest, sum) =
        whole.len().checked_sub(SUM_DIGITS).and_then(|at| whole.split_at_checked(at)).ok_or_else(wrong)?;
    let covered = rest.strip_suffix(CHECKSUM).ok_or_else(wrong)?;
    (to_hex(&Sha256::digest(covered)) == sum).then_some(()).ok_or_else(wrong)
}

fn corrupt(why: &str) -> Corrupt {
    Corrupt(why.to_owned())
}

fn read<'a, T: Deserialize<'a>>(value: &'a RawValue) -> Option<T> {
    serde_json::from_str(value.get()).ok()
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn field(text: &mut String, name: &str, value: &str) {
    if text.len() > 1 {
        text.push(',');
    }
    text.push_str(&quoted(name));
    text.push(':');
    text.push_str(value);
}

fn decompress(bytes: &[u8]) -> Result<Vec<u8>, Corrupt> {
    let decompressed = gzip::decompress(bytes, FILE_BYTES_MAX + 1).map_err(|_| corrupt("not valid gzip"))?;
    match decompressed.len() as u64 > FILE_BYTES_MAX {
        true => Err(corrupt(&format!("larger than {FILE_BYTES_MAX} bytes when decompressed"))),
        false => Ok(decompressed),
    }
}

/// Parses the fields without looking into `records`, to find out whether only the records are invalid.
fn without_records(text: &str) -> Result<Fields<'_, true>, Corrupt> {
    let Fields { fields, records } = serde_json::from_str::<Fields<'_, false>>(text).map_err(|error| {
        // Only the position, because the parser's message may quote the data.
        corrupt(&format!("not a valid JSON object (line {}, column {})", error.line(), error.column()))
    })?;
    Ok(Fields { fields, records })
}

/// The fields of an object, in their order. With `APART`, the elements of `records` are separated in the same pass.
struct Fields<'a, const APART: bool> {
    fields: Vec<(String, &'a RawValue)>,
    records: Option<Vec<Box<RawValue>>>,
}

impl<'de, const APART: bool> Deserialize<'de> for Fields<'de, APART> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(InOrder::<APART>)
    }
}

struct InOrder<const APART: bool>;

impl<'de, const APART: bool> Visitor<'de> for InOrder<APART> {
    type Value = Fields<'de, APART>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut fields, mut records) = (Vec::new(), None);
        while let Some(name) = map.next_key::<String>()? {
            match APART && name == "records" {
                true => records = Some(map.next_value()?),
                false => fields.push((name, map.next_value()?)),
            }
        }
        Ok(Fields { fields, records })
    }
}

#[cfg(test)]
mod tests;
