//! Everything about a claim, as JSON.

use bytes::Bytes;
use http::HeaderMap;
use ichido_core::{Outcome, Record, State};
use ichido_http::StoredResponse;
use ichido_ledger::Summary;
use serde_json::{Map, Value, json};

use super::{ClaimView, Refusal};
use ichido_serve::Failure;

/// The first byte of a stored HTTP response. No outcome that an operator writes starts with it.
const PACKED_RESPONSE: u8 = 0;

pub(super) fn claim_view(summary: &Summary, record: &Record) -> Result<ClaimView, Refusal> {
    let fail = |what: String| Refusal::Failed(Failure::internal(format!("cannot write JSON: {what}")));
    let Value::Object(mut fields) = serde_json::to_value(summary).map_err(|error| fail(error.to_string()))?
    else {
        return Err(fail("the claim is not an object".to_owned()));
    };
    fields.insert("fingerprint".to_owned(), json!(record.fingerprint));
    fields.insert("renewals".to_owned(), json!(record.renewals));
    fields.insert("lease_ms".to_owned(), json!(record.lease_ms));
    fields.insert("retention_ms".to_owned(), json!(record.retention_ms));
    fields.extend(outcome_field(record));
    Ok(ClaimView(fields))
}

/// `answer` for a stored HTTP response, `outcome` for any other outcome, or `answer_not_kept`.
fn outcome_field(record: &Record) -> Option<(String, Value)> {
    let State::Done(done) = &record.state else { return None };
    let (name, value) = match &done.outcome {
        Outcome::Tombstone(reason) => ("answer_not_kept", json!(reason)),
        Outcome::Kept(bytes) => match packed_response(bytes) {
            Some(response) => ("answer", response),
            None => ("outcome", readable(bytes)),
        },
    };
    Some((name.to_owned(), value))
}

fn packed_response(bytes: &Bytes) -> Option<Value> {
    if bytes.first() != Some(&PACKED_RESPONSE) {
        return None;
    }
    let response = StoredResponse::read(bytes).ok()?;
    let mut view = json!({
        "status": response.status.as_u16(),
        "headers": header_fields(&response.headers),
        "body": readable(&response.body),
    });
    if !response.trailers.is_empty() {
        view["trailers"] = header_fields(&response.trailers);
    }
    Some(view)
}

/// Each name with its value, or with an array of its values.
fn header_fields(headers: &HeaderMap) -> Value {
    let field = |name: &http::HeaderName| {
        let values = headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
        let mut values: Vec<_> = values.collect();
        if values.len() == 1 { json!(values.remove(0)) } else { json!(values) }
    };
    headers.keys().map(|name| (name.to_string(), field(name))).collect::<Map<_, _>>().into()
}

/// JSON or text if the bytes are that, otherwise their number.
fn readable(bytes: &[u8]) -> Value {
    let text = std::str::from_utf8(bytes).map(|text| json!(text));
    let value = serde_json::from_slice(bytes).or(text);
    value.unwrap_or_else(|_| json!(format!("{} bytes", bytes.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encoded as `ichido_http` encodes it: magic, status, headers, no trailers, body.
    fn packed(status: u16, fields: &[(&str, &str)], body: &[u8]) -> Bytes {
        let mut packed = vec![0, b'i', b'a', 1];
        packed.extend(status.to_be_bytes());
        packed.extend(u16::try_from(fields.len()).unwrap().to_be_bytes());
        for (name, value) in fields {
            packed.extend(u16::try_from(name.len()).unwrap().to_be_bytes());
            packed.extend(name.as_bytes());
            packed.extend(u32::try_from(value.len()).unwrap().to_be_bytes());
            packed.extend(value.as_bytes());
        }
        packed.extend(0_u16.to_be_bytes());
        packed.extend(body);
        packed.into()
    }

    #[test]
    fn stored_response_is_shown_as_response() {
        let fields = [("content-type", "application/json"), ("link", "<a>"), ("link", "<b>")];
        assert_eq!(
            packed_response(&packed(201, &fields, b"{\"id\":17}")).unwrap(),
            json!({
                "status": 201,
                "headers": { "content-type": "application/json", "link": ["<a>", "<b>"] },
                "body": { "id": 17 },
            })
        );
        assert_eq!(packed_response(&packed(200, &[], b"placed")).unwrap()["body"], "placed");
        assert_eq!(packed_response(&packed(200, &[], &[0xff, 0xfe])).unwrap()["body"], "2 bytes");
    }

    #[test]
    fn other_outcomes_are_shown_unchanged() {
        for plain in [&b"by hand"[..], b"{\"id\":17}", b"", &[0, 1, 2]] {
            assert_eq!(packed_response(&Bytes::copy_from_slice(plain)), None);
        }
        assert_eq!(readable(b"{\"id\":17}"), json!({ "id": 17 }));
        assert_eq!(readable(&[0xff, 1, 2]), "3 bytes");
    }
}
