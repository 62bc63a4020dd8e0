//! The file of a batch.
//!
//! ```json
//! {"batchIdempotencyKey":"a3f2e1b9c4d5…","firstAttempt":"2025-01-18T12:05:30Z","retryCount":0,
//!  "notBefore":"…","lastError":"HTTP 503 Service Unavailable","attempts":[{"at":"…","error":"…"}],
//!  "partOf":"…","brokenInput":true,"answerLost":"…","timedOut":"…","spooledElsewhere":true,"byRecord":true,"format":1,
//!  "records":[…],"checksum":"sha256:…"}
//! ```
//!
//! The seed's fields and ours. Fields that we do not know are kept as they are. Records are kept byte for byte. The
//! checksum is the last field and covers every byte before the comma that precedes it. A file with neither `format` nor
//! `checksum` (the seed's plain form, or one that a person has edited and taken both out of) is read all the same. The
//! token is never here.

use std::borrow::Cow;
use std::fmt;

use ichido_core::Timestamp;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::batch::Batch;
use crate::gzip;
use crate::history::History;
use crate::record::Record;
use crate::time::{iso, parse_iso};

/// The largest file that is read, packed or not.
pub const FILE_BYTES_MAX: u64 = 64 << 20;
/// The version that we write. Files of a later one are refused, not misread.
const FORMAT: u64 = 1;
/// Attempts that are remembered; the oldest go first.
const ATTEMPTS_MAX: usize = 40;
const CHECKSUM: &str = ",\"checksum\":\"sha256:";
const SUM_DIGITS: usize = 64;

/// A batch with its history.
#[derive(Clone)]
pub struct StoredBatch {
    /// The batch.
    pub batch: Batch,
    /// When it was first tried.
    pub first_attempt: Timestamp,
    /// Passes over it that failed.
    pub retry_count: u32,
    /// The last error, masked.
    pub last_error: Option<String>,
    /// The receiver asked to be left alone until then.
    pub not_before: Option<Timestamp>,
    /// What happened so far, oldest first.
    pub attempts: Vec<Attempt>,
    /// The batch that this one is a part of, since that one was divided.
    pub part_of: Option<String>,
    /// It is a piece of input that is no record: never sent, kept for a person.
    pub is_invalid_input: bool,
    /// What happened to earlier requests, as far as it tells what a 409 means.
    pub history: History,
    /// An operator said that the receiver knows single records, whatever `EXTERNAL_API_CONFLICT` says.
    pub by_record: bool,
    /// Fields that we do not know, in their order.
    pub unknown: Vec<(String, Box<RawValue>)>,
}

/// One pass, or one event in the life of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// When.
    pub at: String,
    /// What went wrong, in the receiver's words where it had any.
    pub error: String,
}

/// Why a file cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("corrupt: {0}")]
pub struct Corrupt(pub String);

/// Prints no content: records, errors and unknown fields may hold personal data.
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

    /// A part of this batch, with what went wrong so far.
    pub fn with(&self, batch: Batch) -> Self {
        // All of it under the same key is no part of it.
        if batch.key() == self.batch.key() {
            return Self { batch, ..self.clone() };
        }
        // No request was made under its own key yet.
        let part_of = Some(self.batch.key().to_owned());
        Self { batch, part_of, history: History::default(), ..self.clone() }
    }

    /// Remembers what went wrong.
    pub fn note(&mut self, now: Timestamp, error: &str) {
        self.last_error = Some(error.to_owned());
        self.attempts.push(Attempt { at: iso(now), error: error.to_owned() });
        let excess = self.attempts.len().saturating_sub(ATTEMPTS_MAX);
        self.attempts.drain(..excess);
    }

    /// The bytes of the file.
    pub fn encode(&self, gzip: bool) -> Vec<u8> {
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
        let sum = hex::encode(Sha256::digest(&text));
        text.push_str(CHECKSUM);
        text.push_str(&sum);
        text.push_str("\"}\n");
        if gzip { gzip::compress(text.as_bytes()) } else { text.into_bytes() }
    }

    /// Reads a file. `fallback` is the first attempt if the file names none.
    pub fn decode(bytes: &[u8], gzip: bool, fallback: Timestamp) -> Result<Self, Corrupt> {
        Self::decode_or(bytes, gzip, || fallback)
    }

    /// The same, with a first attempt that is found only if it is wanted: there may be many files.
    pub(super) fn decode_or(
        bytes: &[u8],
        gzip: bool,
        fallback: impl FnOnce() -> Timestamp,
    ) -> Result<Self, Corrupt> {
        let unpacked = if gzip { Cow::Owned(unpack(bytes)?) } else { Cow::Borrowed(bytes) };
        if unpacked.is_empty() {
            return Err(corrupt("the file is empty"));
        }
        let text = std::str::from_utf8(&unpacked).map_err(|_| corrupt("not UTF-8"))?;
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
        // One of ours that a person has edited has no format any more, but it has its attempts.
        let is_ours = fields.iter().any(|(name, _)| name == "format" || name == "attempts");
        stored.history.spooled_elsewhere = !is_ours;
        for (name, value) in fields {
            let wrong = || corrupt(&format!("{name} is not what it should be"));
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
                    _ => return Err(corrupt("written by another version (format)")),
                },
                "checksum" => {}
                _ => stored.unknown.push((name, value.to_owned())),
            }
        }
        stored.first_attempt = first_attempt.unwrap_or_else(fallback);
        let records = records.ok_or_else(|| corrupt("there are no records"))?;
        let records: Result<Vec<Record>, _> = records.into_iter().map(Record::new).collect();
        let records = records.map_err(|_| corrupt("a record is no JSON object"))?;
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

/// How long a file waits, from its beginning alone: a batch that is not due is not worth reading.
pub(super) fn peek_not_before(head: &[u8]) -> Option<Timestamp> {
    let head = String::from_utf8_lossy(head);
    let before_records = head.split("\"records\"").next()?;
    let value = before_records.split_once("\"notBefore\":\"")?.1;
    parse_iso(value.split_once('"')?.0)
}

/// What stands at the beginning of a file, before the attempts and the records: quick to read, however large it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// The key of the batch.
    pub key: String,
    /// When it was first tried.
    pub first_attempt: Timestamp,
    /// Passes over it that failed.
    pub retry_count: u32,
    /// The receiver asked to be left alone until then.
    pub not_before: Option<Timestamp>,
    /// The last error, masked.
    pub last_error: Option<String>,
}

/// Reads the beginning of a file that we wrote. `None` if it was written otherwise, or is longer than what was read.
pub(super) fn peek_header(head: &[u8]) -> Option<BatchHeader> {
    let text = String::from_utf8_lossy(head);
    // Inside a string the quotes would be escaped, so this is the name of a field.
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
        corrupt("the checksum does not match; take format and checksum out if the file was edited on purpose")
    };
    let whole = text.trim_end().strip_suffix("\"}").ok_or_else(wrong)?;
    let (rest, sum) =
        whole.len().checked_sub(SUM_DIGITS).and_then(|at| whole.split_at_checked(at)).ok_or_else(wrong)?;
    let covered = rest.strip_suffix(CHECKSUM).ok_or_else(wrong)?;
    let mut right = [0; SUM_DIGITS];
    hex::encode_to_slice(Sha256::digest(covered), &mut right).map_err(|_| wrong())?;
    (right == *sum.as_bytes()).then_some(()).ok_or_else(wrong)
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

fn unpack(bytes: &[u8]) -> Result<Vec<u8>, Corrupt> {
    let unpacked = gzip::decompress(bytes, FILE_BYTES_MAX + 1).map_err(|_| corrupt("no valid gzip"))?;
    match unpacked.len() as u64 > FILE_BYTES_MAX {
        true => Err(corrupt(&format!("larger than {FILE_BYTES_MAX} bytes when unpacked"))),
        false => Ok(unpacked),
    }
}

/// The same without a look into `records`: tells whether these alone are not what they should be.
fn without_records(text: &str) -> Result<Fields<'_, true>, Corrupt> {
    let Fields { fields, records } = serde_json::from_str::<Fields<'_, false>>(text).map_err(|error| {
        // The words of the parser, without the place: they quote nothing of the data.
        corrupt(&format!("no valid JSON object (line {}, column {})", error.line(), error.column()))
    })?;
    Ok(Fields { fields, records })
}

/// The fields of an object, in their order. If `APART`, the elements of `records` are told apart in the same reading.
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
