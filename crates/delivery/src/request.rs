//! The request for a batch. It is built once, and every retry sends the same bytes.

use std::fmt;

use bytes::Bytes;
use ichido_core::Timestamp;

use crate::batch::Batch;
use crate::gzip::compress;
use crate::time::iso;

/// How the records are wrapped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Envelope {
    /// `{"batchIdempotencyKey":"…","records":[…]}`
    #[default]
    Plain,
    /// The envelope of API_Meter, for this tenant.
    ApiMeter {
        /// `tenant_id`
        tenant: String,
        /// `source_system`
        source_system: String,
    },
}

/// A request that is ready to be sent.
#[derive(Clone)]
pub struct Request {
    /// The batch key.
    pub key: String,
    /// The body.
    pub body: Bytes,
    /// Whether the body is compressed.
    pub gzip: bool,
}

/// Prints no content: records may contain personal data.
impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Request({}, {} bytes)", self.key, self.body.len())
    }
}

impl Request {
    /// Builds the request. `first_attempt` is the batch's, so that a retry sends the same timestamp.
    pub fn new(batch: &Batch, envelope: &Envelope, first_attempt: Timestamp, gzip: bool) -> Self {
        let records: usize = batch.records().iter().map(|record| record.json().len() + 1).sum();
        let mut text = String::with_capacity(records + 256);
        text.push_str(&head(batch, envelope, first_attempt));
        text.push_str("\"records\":[");
        for (index, record) in batch.records().iter().enumerate() {
            if index > 0 {
                text.push(',');
            }
            text.push_str(record.json());
        }
        text.push_str("]}");
        let body = if gzip { Bytes::from(compress(text.as_bytes())) } else { Bytes::from(text) };
        Self { key: batch.key().to_owned(), body, gzip }
    }

    /// The value of the `Idempotency-Key` header: an RFC 9651 string.
    pub fn idempotency_key(&self) -> String {
        let mut value = String::from("\"");
        for char in self.key.chars() {
            match char {
                '"' | '\\' => value.extend(['\\', char]),
                ' '..='~' => value.push(char),
                // A key from a file of another program may contain characters that a header cannot: write their
                // code points.
                other => value.push_str(&format!("%{:x}", u32::from(other))),
            }
        }
        value.push('"');
        value
    }
}

fn head(batch: &Batch, envelope: &Envelope, first_attempt: Timestamp) -> String {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    match envelope {
        Envelope::Plain => format!("{{\"batchIdempotencyKey\":{},", quoted(batch.key())),
        Envelope::ApiMeter { tenant, source_system } => {
            let mut dates: Vec<String> =
                batch.records().iter().filter_map(|record| record.text("usage_date")).collect();
            dates.sort();
            let range = match (dates.first(), dates.last()) {
                (Some(start), Some(end)) => {
                    format!(",\"date_range\":{{\"start\":{},\"end\":{}}}", quoted(start), quoted(end))
                }
                _ => String::new(),
            };
            format!(
                "{{\"tenant_id\":{},\"export_metadata\":{{\"exporter_version\":{},\"export_timestamp\":{},\
                 \"aggregation_period\":\"{}\",\"source_system\":{}{range}}},",
                quoted(tenant),
                quoted(env!("CARGO_PKG_VERSION")),
                quoted(&iso(first_attempt)),
                period(batch),
                quoted(source_system),
            )
        }
    }
}

/// The aggregation period that the records of a batch name.
fn period(batch: &Batch) -> &'static str {
    let method = batch.records().first().and_then(|record| record.metadata_text("aggregation_method"));
    match method.as_deref() {
        Some("weekly_sum") => "weekly",
        Some("monthly_sum") => "monthly",
        _ => "daily",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;

    fn batch() -> Batch {
        let record = |day: u32| {
            Record::parse(&format!(r#"{{"usage_date":"2025-11-{day}","cost_actual":1.50}}"#)).unwrap()
        };
        Batch::new(vec![record(29), record(28)])
    }

    #[test]
    fn plain_envelope_contains_the_key_and_the_unchanged_records() {
        let batch = batch();
        let request = Request::new(&batch, &Envelope::Plain, Timestamp(0), false);
        let text = String::from_utf8(request.body.to_vec()).unwrap();
        assert_eq!(
            text,
            format!(
                r#"{{"batchIdempotencyKey":"{}","records":[{{"usage_date":"2025-11-29","cost_actual":1.50}},{{"usage_date":"2025-11-28","cost_actual":1.50}}]}}"#,
                batch.key()
            )
        );
        assert_eq!(request.idempotency_key(), format!("\"{}\"", batch.key()));
    }

    #[test]
    fn api_meter_envelope_contains_the_date_range_and_is_the_same_on_every_retry() {
        let envelope = Envelope::ApiMeter { tenant: "t\"1".to_owned(), source_system: "s".to_owned() };
        let body = |_: u8| Request::new(&batch(), &envelope, Timestamp(1_737_201_930_000), false).body;
        assert_eq!(body(1), body(2));
        let value: serde_json::Value = serde_json::from_slice(&body(1)).unwrap();
        assert_eq!(value["tenant_id"], "t\"1");
        let metadata = &value["export_metadata"];
        assert_eq!(metadata["date_range"], serde_json::json!({"start": "2025-11-28", "end": "2025-11-29"}));
        assert_eq!(metadata["export_timestamp"], "2025-01-18T12:05:30Z");
        assert_eq!(
            (&metadata["aggregation_period"], &metadata["source_system"]),
            (&"daily".into(), &"s".into())
        );
        assert_eq!(value["records"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn foreign_key_is_escaped_for_the_header() {
        let batch = Batch::stored("a\"é\n".to_owned(), batch().records().to_vec());
        let request = Request::new(&batch, &Envelope::Plain, Timestamp(0), false);
        assert_eq!(request.idempotency_key(), "\"a\\\"%e9%a\"");
    }
}
