//! `POST /v1/events/check`: reports for each event whether it is new, and marks it.

use std::collections::HashMap;
use std::fmt;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::{Request, StatusCode};
use ichido_core::{Limits, MarkKey, Nonce, mark};
use ichido_http::Mode;
use ichido_ledger::{
    CONTENT_KEYS_MAX, CheckedEvent, ContentKey, ContentMode, Effect, Error, EventResult, Ledger,
};
use ichido_similar::{Keep, SimilarText};
use metrics::counter;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::fields::{FieldPath, StringMap, Text, WholeNumber, seconds_as_ms};
use super::problems::{AccessProblems, BodyProblems, LedgerProblems};
use super::request_body::{invalid_field, read_body};
use super::responses::{json, push_json, time};
use super::schemas::{Results, content, metadata};
use super::spans::RequestSpan;
use crate::json_object::Object;
use crate::operator::Refusal;
use crate::state::{AppState, EventCheck, SimilarEvents};
use ichido_serve::Problem;

/// Why an event is not new. Bots compare these texts.
const SEEN: &str = "Already processed by another instance";
/// The same while the ledger is unavailable: only this process was asked.
const SEEN_IN_MEMORY: &str = "In-memory duplicate check";
/// Why an event is not new although its key is.
const SAME_CONTENT: &str = "Same content as another event";
const SIMILAR: &str = "Similar to another event";

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Batch<'a> {
    #[serde(borrow)]
    #[schema(value_type = Vec<Event<'_>>, max_items = 10_000)]
    events: Events<'a>,
    /// How long new events are remembered.
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 316_224_000, default = 21_600)]
    ttl_seconds: Option<WholeNumber>,
    /// What it means that the content of an event was seen in another one: it is reported (`observe`), or the event is
    /// not new (`enforce`).
    #[schema(inline, default = "observe")]
    content_mode: Option<WrittenMode>,
}

/// A content mode as it is written.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum WrittenMode {
    Observe,
    Enforce,
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
    /// Parts of the content, at most 8, such as `{"file": "F1"}`: names and values. The same value under the same name in an event with another key is a
    /// hit. Names in the setting `claims.similar.fields` are compared with similar texts instead.
    #[schema(schema_with = content, required = false)]
    content: Option<StringMap>,
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
    let span = RequestSpan::of(&request);
    let raw = read_body(api, request).await?;
    let batch: Batch<'_> = raw.parse()?;
    let mode = match batch.content_mode {
        None | Some(WrittenMode::Observe) => ContentMode::Observe,
        Some(WrittenMode::Enforce) => ContentMode::Enforce,
    };
    let (events, texts) = events(&api.ledger, batch, api.similar.as_ref())?;
    let keys: Vec<MarkKey> = events.iter().map(|event| event.id.key.clone()).collect();
    let clock = &api.ledger.settings().clock;
    let started = clock.steady();
    let ledger = api.ledger.clone();
    let checking = async move { ledger.check_events(events, mode).await };
    let checked = match api.is_remote {
        true => app.run_to_completion(checking).await?,
        // An embedded ledger completes what it has started even if the caller disconnects.
        false => checking.await,
    };
    let checked = checked.map_err(|error| failed(error, keys.len()))?;
    let answers = compare(api.similar.as_ref(), &keys, checked, &texts);
    let hits: usize = answers.iter().map(|answer| answer.checked.content_hits.len()).sum();
    api.event_checks.same_content(mode, hits);
    let recorded: Vec<EventCheck> = answers.iter().map(Answer::recorded).collect();
    span.checked(keys.first().map(MarkKey::index), &recorded);
    api.event_checks.record(&keys, &recorded, clock.steady().saturating_sub(started));
    Ok(json(StatusCode::OK, results(&keys, &answers)))
}

/// Checks the whole batch before anything is marked. The texts are those to compare, by the number of their event.
fn events(
    ledger: &Ledger,
    batch: Batch<'_>,
    similar: Option<&SimilarEvents>,
) -> Result<(Vec<ichido_ledger::Event>, HashMap<usize, String>), Problem> {
    let Events { kept, count } = batch.events;
    let max = Limits::STANDARD.batch;
    if count > max {
        return Err(invalid_field("events", &format!("has {count} entries; at most {max} are allowed")));
    }
    let settings = ledger.settings();
    let retention_ms = seconds_as_ms("ttl_seconds", batch.ttl_seconds, settings.mark_retention_ms)?;
    let mut texts = HashMap::new();
    let event = |(number, event): (usize, Event<'_>)| {
        let path = FieldPath(Some(number));
        let id = mark::Request {
            key: MarkKey::new(&*event.key.0).map_err(|error| path.limit_exceeded("key", &error))?,
            nonce: match event.nonce {
                Some(Text(text)) => path.nonce(&text)?,
                None => Nonce::draw(&*settings.entropy),
            },
            retention_ms,
            metadata: path.metadata(event.metadata)?,
        };
        let Some(content) = event.content else {
            return Ok::<_, Problem>(ichido_ledger::Event { id, content: Vec::new() });
        };
        let (content, text) = split_content(path, content, similar)?;
        texts.extend(text.map(|text| (number, text)));
        Ok(ichido_ledger::Event { id, content })
    };
    let events = kept.into_iter().enumerate().map(event).collect::<Result<_, _>>()?;
    Ok((events, texts))
}

/// The content that is compared exactly, and the text that is compared with similar ones.
fn split_content(
    path: FieldPath,
    content: StringMap,
    similar: Option<&SimilarEvents>,
) -> Result<(Vec<ContentKey>, Option<String>), Problem> {
    let pairs = content.into_pairs();
    if pairs.len() > CONTENT_KEYS_MAX {
        let what = format!("has {} names; at most {CONTENT_KEYS_MAX} are allowed", pairs.len());
        return Err(path.invalid("content", &what));
    }
    let (mut keys, mut texts) = (Vec::new(), Vec::new());
    for (name, value) in pairs {
        let pointer = format!("/{}", name.replace('~', "~0").replace('/', "~1"));
        match similar
            .is_some_and(|similar| similar.rule.fields.iter().any(|field| field.to_string() == pointer))
        {
            true => texts.push(value),
            false => {
                let key = ContentKey::new("", &name, &value);
                keys.push(key.map_err(|error| path.limit_exceeded("content", &error))?);
            }
        }
    }
    Ok((keys, (!texts.is_empty()).then(|| texts.join("\n"))))
}

/// The answer for one event.
struct Answer {
    checked: CheckedEvent,
    similar: Option<SimilarText>,
    /// Whether a similar event means that this one is not new.
    is_refused: bool,
}

impl Answer {
    fn recorded(&self) -> EventCheck {
        let is_new = self.checked.result == EventResult::New && !self.is_refused;
        EventCheck { is_new, degraded: self.checked.degraded }
    }
}

/// Compares the texts of new events with those of others, and remembers them.
fn compare(
    similar: Option<&SimilarEvents>,
    keys: &[MarkKey],
    checked: Vec<CheckedEvent>,
    texts: &HashMap<usize, String>,
) -> Vec<Answer> {
    let answer = |(number, checked): (usize, CheckedEvent)| {
        let text = texts.get(&number).filter(|_| checked.result == EventResult::New);
        let (Some(similar), Some(text)) = (similar, text) else {
            return Answer { checked, similar: None, is_refused: false };
        };
        let is_enforced = similar.rule.mode == Mode::Enforce;
        let keep = if is_enforced { Keep::IfDifferent } else { Keep::Always };
        let found = similar.texts.check("", keys[number].text(), text, keep);
        if let Some(remembered) = found.remembered {
            remembered.confirm();
        }
        if found.similar.is_some() {
            counter!("ichido_events_similar_total", "mode" => similar.rule.mode.as_str()).increment(1);
        }
        Answer { checked, is_refused: is_enforced && found.similar.is_some(), similar: found.similar }
    };
    checked.into_iter().enumerate().map(answer).collect()
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

fn results(keys: &[MarkKey], answers: &[Answer]) -> Vec<u8> {
    let size: usize = keys.iter().map(|key| key.text().len()).sum();
    let mut out = Vec::with_capacity(size + 48 * keys.len() + 16);
    out.extend_from_slice(b"{\"results\":[");
    for (number, (key, answer)) in keys.iter().zip(answers).enumerate() {
        out.extend_from_slice(if number == 0 { b"{\"key\":" } else { b",{\"key\":" });
        push_json(&mut out, key.text());
        push_result(&mut out, answer);
        out.extend_from_slice(if answer.checked.degraded {
            b",\"degraded\":true}"
        } else {
            b",\"degraded\":false}"
        });
    }
    out.extend_from_slice(b"]}");
    out
}

fn push_result(out: &mut Vec<u8>, Answer { checked, similar, is_refused }: &Answer) {
    let refusal = match &checked.result {
        EventResult::New if *is_refused => Some(SIMILAR),
        EventResult::New => None,
        EventResult::Seen { .. } if checked.degraded => Some(SEEN_IN_MEMORY),
        EventResult::Seen { .. } => Some(SEEN),
        EventResult::SameContent => Some(SAME_CONTENT),
    };
    match refusal {
        None => out.extend_from_slice(b",\"is_new\":true"),
        Some(reason) => {
            out.extend_from_slice(b",\"is_new\":false,\"reason\":");
            push_json(out, reason);
        }
    }
    if let EventResult::Seen { first_seen, metadata } = &checked.result {
        out.extend_from_slice(b",\"first_seen\":\"");
        out.extend_from_slice(time(*first_seen).as_bytes());
        out.extend_from_slice(b"\",\"metadata\":");
        push_json(out, metadata);
    }
    if !checked.content_hits.is_empty() {
        let hits = checked.content_hits.iter().map(|hit| ContentHitBody {
            name: &hit.name,
            event: &hit.event,
            first_seen: time(hit.first_seen),
        });
        out.extend_from_slice(b",\"content_hits\":");
        push_json(out, &hits.collect::<Vec<_>>());
    }
    if let Some(similar) = similar {
        let score = (similar.score * 1_000.0).round() / 1_000.0;
        out.extend_from_slice(b",\"similar_to\":");
        push_json(out, &SimilarBody { event: &similar.event, score });
    }
}

#[derive(Serialize)]
struct ContentHitBody<'a> {
    name: &'a str,
    event: &'a str,
    first_seen: String,
}

#[derive(Serialize)]
struct SimilarBody<'a> {
    event: &'a str,
    score: f64,
}

#[cfg(test)]
mod tests {
    use ichido_core::{Metadata, Timestamp};
    use ichido_ledger::ContentHit;
    use serde_json::{Value, json};

    use super::*;

    fn answer(result: EventResult, degraded: bool) -> Answer {
        Answer {
            checked: CheckedEvent { result, content_hits: Vec::new(), degraded },
            similar: None,
            is_refused: false,
        }
    }

    fn key(text: &str) -> MarkKey {
        MarkKey::new(text).unwrap()
    }

    #[test]
    fn results_are_in_order_and_escaped() {
        let metadata = Metadata::new([("file\"".to_owned(), "F\n1".to_owned())]).unwrap();
        let seen = EventResult::Seen { first_seen: Timestamp(1_737_201_930_250), metadata };
        let answers = [answer(EventResult::New, false), answer(seen, true)];
        let response: Value =
            serde_json::from_slice(&results(&[key("a\"\u{1}"), key("キー")], &answers)).unwrap();
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
    fn the_answer_says_which_content_hit() {
        let hit = ContentHit {
            name: "file".to_owned(),
            event: "Ev1".to_owned(),
            first_seen: Timestamp(1_737_201_930_250),
        };
        let similar = SimilarText { event: "Ev1".to_owned(), score: 0.912_34, is_confirmed: true };
        let refused = answer(EventResult::SameContent, false);
        let refused = Answer {
            checked: CheckedEvent { content_hits: vec![hit.clone()], ..refused.checked },
            ..refused
        };
        let new = answer(EventResult::New, false);
        let observed = Answer {
            checked: CheckedEvent { content_hits: vec![hit], ..new.checked },
            similar: Some(similar.clone()),
            is_refused: false,
        };
        let near = Answer { similar: Some(similar), is_refused: true, ..answer(EventResult::New, false) };
        assert!(!near.recorded().is_new && observed.recorded().is_new && !refused.recorded().is_new);
        let keys = ["a", "b", "c"].map(key);
        let response: Value = serde_json::from_slice(&results(&keys, &[refused, observed, near])).unwrap();
        let hits = json!([{"name": "file", "event": "Ev1", "first_seen": "2025-01-18T12:05:30.25Z"}]);
        let similar = json!({"event": "Ev1", "score": 0.912});
        assert_eq!(
            response["results"],
            json!([
                {"key": "a", "is_new": false, "reason": "Same content as another event", "content_hits": hits, "degraded": false},
                {"key": "b", "is_new": true, "content_hits": hits, "similar_to": similar, "degraded": false},
                {"key": "c", "is_new": false, "reason": "Similar to another event", "similar_to": similar, "degraded": false},
            ])
        );
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
