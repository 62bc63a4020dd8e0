//! A request's body, read: plain, or in the envelope of API_Meter.
//!
//! The body must be understood as a whole. A record that is not is kept as what it is: the others are counted.

use std::borrow::Cow;

use ichido_usage::{Profile, Record, money};
use rust_decimal::Decimal;
use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::fault::Fault;
use crate::rules::Kept;

/// Records in a batch at most.
pub const MOST_RECORDS: usize = 10_000;
/// The longest key of a batch, in bytes.
pub const LONGEST_KEY: usize = 255;
/// The longest id, in bytes: it must fit an index of PostgreSQL.
pub const LONGEST_ID: usize = 1024;
/// The longest name of a provider or model, for the same reason.
const LONGEST_NAME: usize = 512;
/// No record tells of so many tokens or calls: sums must fit 64 bits.
const MOST_COUNTED: u64 = 10_000_000_000_000;

/// No record costs this much: 1,000,000,000,000.
const COST_LIMIT: Decimal = Decimal::from_parts(0xD4A5_1000, 0xE8, 0, false, 0);

/// Records that came together.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Whose they are.
    pub tenant: String,
    /// What the sender calls the batch.
    pub key: Option<String>,
    /// When it was exported, in milliseconds since the epoch.
    pub exported_at: Option<i64>,
    /// When it came.
    pub received_at: i64,
    /// The records, in the order of the request.
    pub entries: Vec<Entry>,
}

/// One record of a batch.
#[derive(Clone, Debug)]
pub enum Entry {
    /// It can be counted.
    Good(Box<Item>),
    /// It cannot.
    Bad {
        /// Its id, as far as it can be read.
        event_id: Option<String>,
        /// What is wrong.
        fault: Fault,
    },
}

/// A record that can be counted.
#[derive(Clone, Debug)]
pub struct Item {
    /// Its place: of two records with the same place only one is counted.
    pub slot: String,
    /// What it says.
    pub record: Record,
    /// What is known of it when it meets another.
    pub kept: Kept,
}

/// Why a body as a whole is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is not understood: the field, and why.
    NotUnderstood(Fault),
    /// Too many records in one batch.
    TooMany,
    /// It is for another tenant than its sender.
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

/// What the caller knows beside the body.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    /// Who sends it.
    pub tenant: &'a str,
    /// The key in the request's head, for bodies that have none.
    pub key: Option<&'a str>,
    /// When it came, in milliseconds since the epoch.
    pub received_at: i64,
    /// What makes two records the same.
    pub profile: Profile,
}

impl Batch {
    /// Reads a body.
    pub fn read(bytes: &[u8], about: &About<'_>) -> Result<Self, Refusal> {
        let mut deserializer = serde_json::Deserializer::from_slice(bytes);
        let body: Body<'_> = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
            not_understood(&error.path().to_string(), &plain(&error.into_inner().to_string()))
        })?;
        deserializer.end().map_err(|_| not_understood(".", "something follows the object"))?;
        if body.tenant_id.as_ref().is_some_and(|tenant| tenant != about.tenant) {
            return Err(Refusal::OtherTenant);
        }
        if body.tenant_id.is_some() && body.export_metadata.is_none() {
            return Err(not_understood("export_metadata", "is missing"));
        }
        if body.export_metadata.is_some() && body.tenant_id.is_none() {
            return Err(not_understood("tenant_id", "is missing"));
        }
        if body.records.is_empty() {
            return Err(not_understood("records", "must have at least one record"));
        }
        if body.records.len() > MOST_RECORDS {
            return Err(Refusal::TooMany);
        }
        let key = body.key.as_deref().or(about.key).filter(|key| !key.is_empty());
        if key.is_some_and(|key| key.len() > LONGEST_KEY || key.contains('\0')) {
            return Err(not_understood("batchIdempotencyKey", "must be 1 to 255 characters"));
        }
        let exported_at = body.export_metadata.map(|export| moment(&export.export_timestamp)).transpose()?;
        let entries =
            body.records.iter().map(|record| Entry::read(record, about.profile, exported_at)).collect();
        Ok(Self {
            tenant: about.tenant.to_owned(),
            key: key.map(str::to_owned),
            exported_at,
            received_at: about.received_at,
            entries,
        })
    }
}

fn moment(text: &str) -> Result<i64, Refusal> {
    let moment = text.parse::<jiff::Timestamp>();
    moment.map(jiff::Timestamp::as_millisecond).map_err(|_| {
        not_understood("export_metadata.export_timestamp", "must be a timestamp such as 2025-11-29T12:00:00Z")
    })
}

fn not_understood(field: &str, reason: &str) -> Refusal {
    Refusal::NotUnderstood(Fault { field: field.to_owned(), reason: reason.to_owned() })
}

/// An error of the parser without the place in the text, on one line and not without end.
fn plain(message: &str) -> String {
    let message = message.split(" at line ").next().unwrap_or(message);
    message.chars().map(|char| if char.is_control() { ' ' } else { char }).take(200).collect()
}

impl Entry {
    /// Its id, as far as it can be read.
    pub fn event_id(&self) -> Option<&str> {
        match self {
            Self::Good(item) => Some(&item.kept.event_id),
            Self::Bad { event_id, .. } => event_id.as_deref(),
        }
    }

    fn read(raw: &RawValue, profile: Profile, exported_at: Option<i64>) -> Self {
        let mut deserializer = serde_json::Deserializer::from_str(raw.get());
        let record: Record = match serde_path_to_error::deserialize(&mut deserializer) {
            Ok(record) => record,
            Err(error) => {
                let field = error.path().to_string();
                let reason = plain(&error.into_inner().to_string());
                return Self::Bad { event_id: id_of(raw), fault: Fault { field, reason } };
            }
        };
        match check(&record) {
            Ok(()) => Self::Good(Box::new(Item::new(record, profile, exported_at))),
            Err(fault) => Self::Bad { event_id: Some(record.metadata.source_event_id), fault },
        }
    }
}

/// The id of a record that is wrong in something else.
fn id_of(raw: &RawValue) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        metadata: Meta,
    }
    #[derive(Deserialize)]
    struct Meta {
        source_event_id: String,
    }
    let named: Named = serde_json::from_str(raw.get()).ok()?;
    (named.metadata.source_event_id.len() <= LONGEST_ID).then_some(named.metadata.source_event_id)
}

fn check(record: &Record) -> Result<(), Fault> {
    record.check().map_err(|error| fault(error.field, &error.reason))?;
    if record.usage_date.year() < 1970 {
        return Err(fault("usage_date", "must be 1970 or later"));
    }
    let meta = &record.metadata;
    if meta.source_event_id.len() > LONGEST_ID {
        return Err(fault("metadata.source_event_id", "is longer than 1,024 bytes"));
    }
    for (field, text) in [("provider", &record.provider), ("model", &record.model)] {
        if text.len() > LONGEST_NAME {
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
            return Err(fault(field, "must not hold the character zero"));
        }
        if text.len() > ichido_usage::record::TEXT_MAX_BYTES {
            return Err(fault(field, "is too long"));
        }
    }
    // The total is the sum of both kinds of tokens, so neither is larger.
    for (field, number) in [("total_tokens", record.total_tokens), ("request_count", record.request_count)] {
        if number > MOST_COUNTED {
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

impl Item {
    fn new(mut record: Record, profile: Profile, exported_at: Option<i64>) -> Self {
        // 1.50 and 1.5, -0 and 0 are the same amount.
        record.cost_actual = record.cost_actual.normalize();
        if record.cost_actual.is_zero() {
            record.cost_actual = Decimal::ZERO;
        }
        let kept = Kept {
            event_id: record.metadata.source_event_id.clone(),
            digest: digest(&record),
            exported_at,
            request_count: counted(record.request_count),
            total_tokens: counted(record.total_tokens),
            cost: record.cost_actual,
        };
        Self { slot: slot(&record, profile), record, kept }
    }
}

/// A count as it is stored; larger ones were refused.
pub(crate) fn counted(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// What is counted once. Currencies have places of their own: one must not overwrite another.
fn slot(record: &Record, profile: Profile) -> String {
    match profile {
        Profile::FirstWins | Profile::UpsertByEventId => record.metadata.source_event_id.clone(),
        Profile::UpsertByModelDay => {
            let Record { usage_date, provider, model, currency, .. } = record;
            let method = &record.metadata.aggregation_method;
            // The lengths keep `a/b` + `c` and `a` + `b/c` apart.
            format!("{usage_date}/{}:{provider}/{}:{model}/{currency}/{method}", provider.len(), model.len())
        }
    }
}

/// A hash of everything that is counted. An app's name is only its label: it may change.
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
