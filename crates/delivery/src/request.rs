//! The request of a batch: made once, and the same bytes on every repetition.

use std::fmt;

use bytes::Bytes;
use ichido_core::Timestamp;

use crate::batch::Batch;
use crate::gzip::pack;
use crate::time::iso;

/// How records are wrapped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Envelope {
    /// `{"batchIdempotencyKey":"…","records":[…]}`
    #[default]
    Plain,
    /// The envelope of API_Meter, for this tenant.
    ApiMeter {
        /// `tenant_id`
        tenant: String,
    },
}

/// A request that is ready to go.
#[derive(Clone)]
pub struct Request {
    /// The batch key.
    pub key: String,
    /// The body.
    pub body: Bytes,
    /// Whether the body is packed.
    pub gzip: bool,
}

/// Prints no content: records may hold personal data.
impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Request({}, {} bytes)", self.key, self.body.len())
    }
}

impl Request {
    /// The request of a batch. `first_attempt` is the batch's, so that a repetition tells the same.
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
        let body = if gzip { Bytes::from(pack(text.as_bytes())) } else { Bytes::from(text) };
        Self { key: batch.key().to_owned(), body, gzip }
    }

    /// The value of `Idempotency-Key`: a string as in RFC 9651.
    pub fn idempotency_key(&self) -> String {
        let mut value = String::from("\"");
        for char in self.key.chars() {
            match char {
                '"' | '\\' => value.extend(['\\', char]),
                ' '..='~' => value.push(char),
                // A key from a file of someone else: what a header cannot hold is written by its number.
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
        Envelope::ApiMeter { tenant } => {
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
                 \"aggregation_period\":\"{}\",\"source_system\":\"dify\"{range}}},",
                quoted(tenant),
                quoted(env!("CARGO_PKG_VERSION")),
                quoted(&iso(first_attempt)),
                period(batch),
            )
        }
    }
}

/// What the records of a batch say that they sum up.
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
    fn the_plain_envelope_has_the_key_and_the_records_as_they_were() {
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
    fn the_envelope_of_api_meter_tells_the_days_and_the_same_time_on_each_repetition() {
        let envelope = Envelope::ApiMeter { tenant: "t\"1".to_owned() };
        let body = |_: u8| Request::new(&batch(), &envelope, Timestamp(1_737_201_930_000), false).body;
        assert_eq!(body(1), body(2));
        let value: serde_json::Value = serde_json::from_slice(&body(1)).unwrap();
        assert_eq!(value["tenant_id"], "t\"1");
        let metadata = &value["export_metadata"];
        assert_eq!(metadata["date_range"], serde_json::json!({"start": "2025-11-28", "end": "2025-11-29"}));
        assert_eq!(metadata["export_timestamp"], "2025-01-18T12:05:30Z");
        assert_eq!(metadata["aggregation_period"], "daily");
        assert_eq!(value["records"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn a_key_of_someone_else_fits_a_header() {
        let batch = Batch::stored("a\"é\n".to_owned(), batch().records().to_vec());
        let request = Request::new(&batch, &Envelope::Plain, Timestamp(0), false);
        assert_eq!(request.idempotency_key(), "\"a\\\"%e9%a\"");
    }
}
