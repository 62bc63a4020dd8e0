//! `POST /v1/events/check`: reports for each event whether it is new, and marks it.

use std::fmt;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::{Request, StatusCode};
use ichido_core::mark::{self, Mark};
use ichido_core::{Limits, MarkKey, Nonce};
use ichido_ledger::{Effect, Error, Ledger, Marked};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use utoipa::ToSchema;

use super::fields::{FieldPath, StringMap, Text, WholeNumber, seconds_as_ms};
use super::problems::{AccessProblems, BodyProblems, LedgerProblems};
use super::request_body::{invalid_field, read_body};
use super::responses::{json, push_json, time};
use super::schemas::{Results, metadata};
use crate::json_object::Object;
use crate::operator::Refusal;
use crate::state::AppState;
use ichido_serve::Problem;

/// Why an event is not new. Bots compare these texts.
const SEEN: &str = "Already processed by another instance";
/// The same while the ledger is unavailable: only this process was asked.
const SEEN_IN_MEMORY: &str = "In-memory duplicate check";

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Batch<'a> {
    #[serde(borrow)]
    #[schema(value_type = Vec<Event<'_>>, max_items = 10_000)]
    events: Events<'a>,
    /// How long new events are remembered.
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 316_224_000, default = 21_600)]
    ttl_seconds: Option<WholeNumber>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Event<'a> {
    /// 1 to 1,024 bytes of UTF-8.
    #[serde(borrow)]
    #[schema(value_type = String, min_length = 1, max_length = 1024)]
    key: Text<'a>,
    #[schema(schema_with = metadata, required = false)]
    metadata: Option<StringMap>,
    /// Identifies this request, 1 to 255 bytes. Use a new nonce for each request and the same one for its retries: after
    /// a lost response, the retry gets the same result. Without a nonce, the retry counts as a duplicate.
    #[serde(borrow)]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 255)]
    nonce: Option<Text<'a>>,
}

/// The events of a batch. Those beyond the limit are counted but not kept.
#[derive(Debug)]
struct Events<'a> {
    kept: Vec<Event<'a>>,
    count: usize,
}

impl<'de: 'a, 'a> Deserialize<'de> for Events<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EventsVisitor;
        impl<'de> Visitor<'de> for EventsVisitor {
            type Value = Events<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of events")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut events: A) -> Result<Events<'de>, A::Error> {
                let mut kept = Vec::new();
                while kept.len() < Limits::STANDARD.batch {
                    match events.next_element()? {
                        Some(Object(event)) => kept.push(event),
                        None => return Ok(Events { count: kept.len(), kept }),
                    }
                }
                let mut count = kept.len();
                while events.next_element::<IgnoredAny>()?.is_some() {
                    count += 1;
                }
                Ok(Events { kept, count })
            }
        }
        deserializer.deserialize_seq(EventsVisitor)
    }
}

/// Checks whether events are new, and marks them.
///
/// One-phase: an event is marked before it is handled, so a crash in between loses it. Two-phase claims do not.
#[utoipa::path(
    post, path = "/v1/events/check", operation_id = "checkEvents", tag = "events",
    request_body = Batch<'_>,
    responses(
        (status = 200, description = "A result for each event.", body = Results),
        AccessProblems, LedgerProblems, BodyProblems,
    ),
)]
pub(super) async fn check(State(app): State<AppState>, request: Request<Body>) -> Result<Response, Problem> {
    let api = &app.admin.api;
    let raw = read_body(api, request).await?;
    let batch: Batch<'_> = raw.parse()?;
    let requests = requests(&api.ledger, batch)?;
    let clock = &api.ledger.settings().clock;
    let started = clock.steady();
    let marking = mark(api.ledger.clone(), requests);
    let (requests, marked) = match api.is_remote {
        true => app.run_to_completion(marking).await?,
        // An embedded ledger completes what it has started even if the caller disconnects.
        false => marking.await,
    };
    let marked = marked.map_err(|error| failed(error, requests.len()))?;
    api.event_checks.record(&requests, &marked, clock.steady().saturating_sub(started));
    Ok(json(StatusCode::OK, results(&requests, &marked)))
}

async fn mark(
    ledger: Ledger,
    requests: Vec<mark::Request>,
) -> (Vec<mark::Request>, ichido_ledger::Result<Vec<Marked>>) {
    let marked = ledger.mark(&requests).await;
    (requests, marked)
}

/// Checks the whole batch before anything is marked.
fn requests(ledger: &Ledger, batch: Batch<'_>) -> Result<Vec<mark::Request>, Problem> {
    let Events { kept, count } = batch.events;
    let max = Limits::STANDARD.batch;
    if count > max {
        return Err(invalid_field("events", &format!("has {count} entries; at most {max} are allowed")));
    }
    let settings = ledger.settings();
    let retention_ms = seconds_as_ms("ttl_seconds", batch.ttl_seconds, settings.mark_retention_ms)?;
    let request = |(number, event): (usize, Event<'_>)| {
        let path = FieldPath(Some(number));
        Ok(mark::Request {
            key: MarkKey::new(&*event.key.0).map_err(|error| path.limit_exceeded("key", &error))?,
            nonce: match event.nonce {
                Some(Text(text)) => path.nonce(&text)?,
                None => Nonce::draw(&*settings.entropy),
            },
            retention_ms,
            metadata: path.metadata(event.metadata)?,
        })
    };
    kept.into_iter().enumerate().map(request).collect()
}

/// A large batch reaches the ledger in parts, and a response may be lost: some events may be marked.
fn failed(error: Error, events: usize) -> Problem {
    let is_partial = error.effect() == Effect::Unknown || events > 1;
    let problem = Problem::from(Refusal::from(error));
    match is_partial {
        true => {
            problem.append("Some of the events may have been marked. Retry with the same nonces: marked events are reported as new again.")
        }
        false => problem,
    }
}

fn results(requests: &[mark::Request], marked: &[Marked]) -> Vec<u8> {
    let keys: usize = requests.iter().map(|request| request.key.text().len()).sum();
    let mut out = Vec::with_capacity(keys + 48 * requests.len() + 16);
    out.extend_from_slice(b"{\"results\":[");
    for (number, (request, marked)) in requests.iter().zip(marked).enumerate() {
        out.extend_from_slice(if number == 0 { b"{\"key\":" } else { b",{\"key\":" });
        push_json(&mut out, request.key.text());
        match &marked.mark {
            Mark::New => out.extend_from_slice(b",\"is_new\":true"),
            Mark::Seen { first_seen, metadata } => {
                out.extend_from_slice(b",\"is_new\":false,\"reason\":");
                push_json(&mut out, if marked.degraded { SEEN_IN_MEMORY } else { SEEN });
                out.extend_from_slice(b",\"first_seen\":\"");
                out.extend_from_slice(time(*first_seen).as_bytes());
                out.extend_from_slice(b"\",\"metadata\":");
                push_json(&mut out, metadata);
            }
        }
        out.extend_from_slice(if marked.degraded { b",\"degraded\":true}" } else { b",\"degraded\":false}" });
    }
    out.extend_from_slice(b"]}");
    out
}

#[cfg(test)]
mod tests {
    use ichido_core::{Metadata, Timestamp};
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn results_are_in_order_and_escaped() {
        let request = |key: &str| mark::Request {
            key: MarkKey::new(key).unwrap(),
            nonce: Nonce::from_bytes([0; 16]),
            retention_ms: 1,
            metadata: Metadata::default(),
        };
        let metadata = Metadata::new([("file\"".to_owned(), "F\n1".to_owned())]).unwrap();
        let seen = Mark::Seen { first_seen: Timestamp(1_737_201_930_250), metadata };
        let marked = [Marked { mark: Mark::New, degraded: false }, Marked { mark: seen, degraded: true }];
        let response: Value =
            serde_json::from_slice(&results(&[request("a\"\u{1}"), request("キー")], &marked)).unwrap();
        assert_eq!(
            response,
            json!({"results": [
                {"key": "a\"\u{1}", "is_new": true, "degraded": false},
                {"key": "キー", "is_new": false, "reason": "In-memory duplicate check",
                    "first_seen": "2025-01-18T12:05:30.25Z", "metadata": {"file\"": "F\n1"}, "degraded": true},
            ]})
        );
        assert_eq!(results(&[], &[]), b"{\"results\":[]}");
    }

    #[test]
    fn events_beyond_the_limit_are_counted_but_not_kept() {
        let body = |count: usize| format!("{{\"events\":[{}]}}", vec!["{\"key\":\"k\"}"; count].join(","));
        let text = body(10_003);
        let batch: Batch<'_> = serde_json::from_str(&text).unwrap();
        assert_eq!((batch.events.kept.len(), batch.events.count), (10_000, 10_003));
        let text = body(10_000);
        let batch: Batch<'_> = serde_json::from_str(&text).unwrap();
        assert_eq!((batch.events.kept.len(), batch.events.count), (10_000, 10_000));
    }
}
