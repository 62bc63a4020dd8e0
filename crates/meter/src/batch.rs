//! Parses a request body: plain, or in the envelope of API_Meter.
//!
//! The body as a whole must be well-formed. A single invalid record is kept as such, and the others are counted.

use std::borrow::Cow;

use ichido_usage::{Profile, Record, money};
use rust_decimal::Decimal;
use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::fault::Fault;
use crate::rules::Revision;

/// The most records in a batch.
pub const RECORDS_MAX: usize = 10_000;
/// The most bytes of a batch key.
pub const KEY_MAX_BYTES: usize = 255;
/// The most bytes of an id: it must fit into a PostgreSQL index.
pub const ID_MAX_BYTES: usize = 1024;
/// The most bytes of a provider's or model's name, for the same reason.
const NAME_MAX_BYTES: usize = 512;
/// The most tokens or calls of a record: sums must fit into 64 bits.
const COUNT_MAX: u64 = 10_000_000_000_000;

/// Every record costs less than this: 1,000,000,000,000.
const COST_LIMIT: Decimal = Decimal::from_parts(0xD4A5_1000, 0xE8, 0, false, 0);

/// Records that were sent together.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The tenant.
    pub tenant: String,
    /// The idempotency key of the batch.
    pub key: Option<String>,
    /// When the batch was exported, in milliseconds since the epoch.
    pub exported_at: Option<i64>,
    /// When the batch was received, in milliseconds since the epoch.
    pub received_at: i64,
    /// The records, in the order of the request.
    pub entries: Vec<Entry>,
}

/// One record of a batch.
#[derive(Clone, Debug)]
pub enum Entry {
    /// A record that can be counted.
    Valid(Box<ValidRecord>),
    /// A record that cannot.
    Invalid {
        /// Its id, if it can be read.
        event_id: Option<String>,
        /// Why it is invalid.
        fault: Fault,
    },
}

/// A record that can be counted.
#[derive(Clone, Debug)]
pub struct ValidRecord {
    /// The slot that the record takes: each slot counts once.
    pub slot: String,
    /// The record itself.
    pub record: Record,
    /// What is compared with the stored record in the same slot.
    pub revision: Revision,
}

/// Why a whole body is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is malformed.
    Malformed(Fault),
    /// It has too many records.
    TooManyRecords,
    /// It names another tenant than that of the token.
    OtherTenant,
}

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(rename = "batchIdempotencyKey", default, borrow)]
    key: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    tenant_id: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    export_metadata: Option<Export<'a>>,
    #[serde(borrow)]
    records: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct Export<'a> {
    #[serde(borrow)]
    export_timestamp: Cow<'a, str>,
}

/// What is known about a request besides its body.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The sender's tenant.
    pub tenant: &'a str,
    /// The key from the request's header, for bodies without one.
    pub key: Option<&'a str>,
    /// When the request was received, in milliseconds since the epoch.
    pub received_at: i64,
    /// Decides which records share a slot.
    pub profile: Profile,
}

impl Batch {
    /// Parses a body.
    pub fn read(bytes: &[u8], context: &Context<'_>) -> Result<Self, Refusal> {
        let mut deserializer = serde_json::Deserializer::from_slice(bytes);
        let body: Body<'_> = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
            malformed(&error.path().to_string(), &short_message(&error.into_inner().to_string()))
        })?;
        deserializer.end().map_err(|_| malformed(".", "unexpected data after the object"))?;
        if body.tenant_id.as_ref().is_some_and(|tenant| tenant != context.tenant) {
            return Err(Refusal::OtherTenant);
        }
        if body.tenant_id.is_some() && body.export_metadata.is_none() {
            return Err(malformed("export_metadata", "is missing"));
        }
        if body.export_metadata.is_some() && body.tenant_id.is_none() {
            return Err(malformed("tenant_id", "is missing"));
        }
        if body.records.is_empty() {
            return Err(malformed("records", "must contain at least one record"));
        }
        if body.records.len() > RECORDS_MAX {
            return Err(Refusal::TooManyRecords);
        }
        let key = body.key.as_deref().or(context.key).filter(|key| !key.is_empty());
        if key.is_some_and(|key| key.len() > KEY_MAX_BYTES || key.contains('\0')) {
            return Err(malformed("batchIdempotencyKey", "must be 1 to 255 characters"));
        }
        let exported_at =
            body.export_metadata.map(|export| timestamp_ms(&export.export_timestamp)).transpose()?;
        let entries =
            body.records.iter().map(|record| Entry::read(record, context.profile, exported_at)).collect();
        Ok(Self {
            tenant: context.tenant.to_owned(),
            key: key.map(str::to_owned),
            exported_at,
            received_at: context.received_at,
            entries,
        })
    }
}

fn timestamp_ms(text: &str) -> Result<i64, Refusal> {
    let timestamp = text.parse::<jiff::Timestamp>();
    timestamp.map(jiff::Timestamp::as_millisecond).map_err(|_| {
        malformed("export_metadata.export_timestamp", "must be a timestamp such as 2025-11-29T12:00:00Z")
    })
}

fn malformed(field: &str, reason: &str) -> Refusal {
    Refusal::Malformed(Fault { field: field.to_owned(), reason: reason.to_owned() })
}

/// A parser's message without its position, on one line and of limited length.
fn short_message(message: &str) -> String {
    let message = message.split(" at line ").next().unwrap_or(message);
    message.chars().map(|char| if char.is_control() { ' ' } else { char }).take(200).collect()
}

impl Entry {
    /// The id of the record, if it can be read.
    pub fn event_id(&self) -> Option<&str> {
        match self {
            Self::Valid(item) => Some(&item.revision.event_id),
            Self::Invalid { event_id, .. } => event_id.as_deref(),
        }
    }

    fn read(raw: &RawValue, profile: Profile, exported_at: Option<i64>) -> Self {
        let mut deserializer = serde_json::Deserializer::from_str(raw.get());
        let record: Record = match serde_path_to_error::deserialize(&mut deserializer) {
            Ok(record) => record,
            Err(error) => {
                let field = error.path().to_string();
                let reason = short_message(&error.into_inner().to_string());
                return Self::Invalid { event_id: find_id(raw), fault: Fault { field, reason } };
            }
        };
        match check(&record) {
            Ok(()) => Self::Valid(Box::new(ValidRecord::new(record, profile, exported_at))),
            Err(fault) => Self::Invalid { event_id: Some(record.metadata.source_event_id), fault },
        }
    }
}

/// Finds the id of a record that is otherwise invalid.
fn find_id(raw: &RawValue) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        source_event_id: String,
    }
    let named: Named = serde_json::from_str(raw.get()).ok()?;
    (named.metadata.source_event_id.len() <= ID_MAX_BYTES).then_some(named.metadata.source_event_id)
}

fn check(record: &Record) -> Result<(), Fault> {
    record.check().map_err(|error| fault(error.field, &error.reason))?;
    if record.usage_date.year() < 1970 {
        return Err(fault("usage_date", "must be 1970 or later"));
    }
    let meta = &record.metadata;
    if meta.source_event_id.len() > ID_MAX_BYTES {
        return Err(fault("metadata.source_event_id", "is longer than 1,024 bytes"));
    }
    for (field, text) in [("provider", &record.provider), ("model", &record.model)] {
        if text.len() > NAME_MAX_BYTES {
            return Err(fault(field, "is longer than 512 bytes"));
        }
    }
    for (field, text) in [
        ("provider", record.provider.as_str()),
        ("model", &record.model),
        ("metadata.source_system", &meta.source_system),
        ("metadata.source_event_id", &meta.source_event_id),
        ("metadata.source_app_id", &meta.source_app_id),
        ("metadata.source_app_name", &meta.source_app_name),
        ("metadata.aggregation_method", &meta.aggregation_method),
        ("metadata.source_user_id", meta.source_user_id.as_deref().unwrap_or_default()),
    ] {
        if text.contains('\0') {
            return Err(fault(field, "must not contain a NUL character"));
        }
        if text.len() > ichido_usage::record::TEXT_MAX_BYTES {
            return Err(fault(field, "is too long"));
        }
    }
    // The total is the sum of both kinds of tokens, so neither is larger.
    for (field, number) in [("total_tokens", record.total_tokens), ("request_count", record.request_count)] {
        if number > COUNT_MAX {
            return Err(fault(field, "is too large"));
        }
    }
    if record.cost_actual >= COST_LIMIT {
        return Err(fault("cost_actual", "must be less than 1,000,000,000,000"));
    }
    if record.cost_actual.normalize().scale() > money::SUM_PLACES {
        return Err(fault("cost_actual", "has more than 20 decimal places"));
    }
    Ok(())
}

fn fault(field: &str, reason: &str) -> Fault {
    Fault { field: field.to_owned(), reason: reason.to_owned() }
}

impl ValidRecord {
    fn new(mut record: Record, profile: Profile, exported_at: Option<i64>) -> Self {
        // 1.50 and 1.5 are the same amount, and so are -0 and 0.
        record.cost_actual = record.cost_actual.normalize();
        if record.cost_actual.is_zero() {
            record.cost_actual = Decimal::ZERO;
        }
        let revision = Revision {
            event_id: record.metadata.source_event_id.clone(),
            digest: digest(&record),
            exported_at,
            request_count: to_i64(record.request_count),
            total_tokens: to_i64(record.total_tokens),
            cost: record.cost_actual,
        };
        Self { slot: slot(&record, profile), record, revision }
    }
}

/// Converts a count to the type it is stored as. Larger counts were refused.
pub(crate) fn to_i64(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The slot of a record. Each currency has its own slot, so that none overwrites another.
fn slot(record: &Record, profile: Profile) -> String {
    match profile {
        Profile::FirstWins | Profile::UpsertByEventId => record.metadata.source_event_id.clone(),
        Profile::UpsertByModelDay => {
            let Record { usage_date, provider, model, currency, .. } = record;
            let method = &record.metadata.aggregation_method;
            // The lengths distinguish (`a/b`, `c`) from (`a`, `b/c`).
            format!("{usage_date}/{}:{provider}/{}:{model}/{currency}/{method}", provider.len(), model.len())
        }
    }
}

/// Hashes everything that is counted. The name of an app is only a label, and may change.
fn digest(record: &Record) -> [u8; 32] {
    let mut hash = Sha256::new();
    let mut part = |text: &str| {
        hash.update((text.len() as u64).to_be_bytes());
        hash.update(text);
    };
    let meta = &record.metadata;
    part(&record.usage_date.to_string());
    part(&record.provider);
    part(&record.model);
    part(&record.cost_actual.to_string());
    part(&record.currency);
    part(&meta.source_system);
    part(&meta.source_event_id);
    part(&meta.source_app_id);
    part(&meta.aggregation_method);
    part(meta.source_user_id.as_deref().unwrap_or_default());
    part(meta.source_user_type.map_or("", |kind| kind.as_str()));
    for number in [record.input_tokens, record.output_tokens, record.total_tokens, record.request_count] {
        hash.update(number.to_be_bytes());
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests;
