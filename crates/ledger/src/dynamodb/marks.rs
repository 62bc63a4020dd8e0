//! Marks: items that are shared with other consumers of the table.
//!
//! | attribute | type | |
//! |---|---|---|
//! | `event_key` | S | the caller's key, verbatim |
//! | `processed_at` | N | seconds since the epoch |
//! | `ttl` | N | seconds since the epoch, rounded up |
//! | `ichido_nonce` | S | identifies the call that marked the event, so that its retry is new again |
//! | anything else | S | the caller's metadata |
//!
//! A mark whose key starts like the key of a claim is stored under its hash instead, so that the two never collide.
//! Other consumers do not see such a mark. An item that another consumer wrote has no nonce, and may have
//! attributes of other types: numbers and booleans are read as texts, the rest is ignored. If it has no `ttl`, it
//! never expires.
//!
//! DynamoDB has no batch of conditional writes other than a transaction, which is all or nothing and limited to a
//! hundred items. So a batch is one `PutItem` per mark, several of them at a time.

use std::collections::HashSet;

use aws_sdk_dynamodb::types::AttributeValue;
use futures_util::{StreamExt, TryStreamExt, stream};
use ichido_core::mark::{Erased, Forgotten, Mark, Record, Request};
use ichido_core::{Limits, MarkKey, Metadata, Nonce, Timestamp};

use super::error;
use super::item::CLAIMS;
use super::table::{Condition, EVENT_KEY, Item, TTL, Table, Written, number, text};
use crate::Result;

/// The prefix of escaped marks' keys.
pub(super) const ESCAPED: &str = "ichido#mark#";
/// How many marks of a batch are in flight at once.
const CONCURRENCY: usize = 64;
/// The nonce of marks that other consumers wrote. A drawn nonce is never zero.
const FOREIGN: Nonce = Nonce::from_bytes([0; 16]);
const DOING: &str = "marking an event in DynamoDB";

/// Marks each event. After an error, some of them may be marked.
pub(super) async fn mark_all(table: &Table, requests: &[Request], now: Timestamp) -> Result<Vec<Mark>> {
    let marks = stream::iter(0..requests.len())
        .map(|position| mark(table, &requests[position], now))
        .buffered(CONCURRENCY);
    let marks: Result<Vec<_>> = marks.try_collect().await;
    marks.map_err(|error| if requests.len() > 1 { error.with_unknown_effect() } else { error })
}

async fn mark(table: &Table, request: &Request, now: Timestamp) -> Result<Mark> {
    let free = Condition {
        expression: "attribute_not_exists(event_key) OR #ttl <= :now",
        values: vec![(":now", number(now.0 / 1000))],
    };
    match table.put(encode(request, now), free, DOING).await? {
        Written::Applied(_) => Ok(Mark::New),
        Written::Refused(Some(item)) => Ok(answer(&item, request)),
        // It existed, and was gone when it was read back.
        Written::Refused(None) => Err(error::contended(DOING)),
    }
}

/// The mark of an event.
pub(super) async fn read(table: &Table, key: &MarkKey, now: Timestamp) -> Result<Option<Record>> {
    let item = table.get(&mark_key(key), "reading a mark from DynamoDB").await?;
    Ok(item.map(|item| record(&item, key.clone())).filter(|record| now < record.expires_at))
}

/// Removes a mark if it is still the one that was seen.
pub(super) async fn forget(table: &Table, seen: &Record, now: Timestamp) -> Result<Forgotten> {
    const DOING: &str = "forgetting a mark in DynamoDB";
    let Some(condition) = unchanged(table, seen, now, DOING).await? else { return Ok(Forgotten::Gone) };
    match table.delete(&mark_key(&seen.key), condition, DOING).await? {
        Written::Applied(_) => Ok(Forgotten::Removed),
        Written::Refused(_) => Ok(Forgotten::Gone),
    }
}

/// Erases the metadata of a mark if it is still the one that was seen. Its key stays, because all consumers of the table find
/// events by it.
pub(super) async fn erase(table: &Table, seen: &Record, now: Timestamp) -> Result<Erased> {
    const DOING: &str = "erasing a mark in DynamoDB";
    let Some(condition) = unchanged(table, seen, now, DOING).await? else { return Ok(Erased::Gone) };
    let Some(item) = table.get(&mark_key(&seen.key), DOING).await? else { return Ok(Erased::Gone) };
    let is_needed =
        |name: &str| [EVENT_KEY, "processed_at", TTL].contains(&name) || name.starts_with("ichido_");
    let mut erased: Item = item.into_iter().filter(|(name, _)| is_needed(name)).collect();
    erased.extend(seen.owner().iter().map(|(name, value)| (name.to_owned(), text(value))));
    match table.put(erased, condition, DOING).await? {
        Written::Applied(_) => Ok(Erased::KeyKept),
        Written::Refused(_) => Ok(Erased::Gone),
    }
}

/// The mark is the one that was seen: by its nonce, or by its time if another consumer wrote it. `None` if it is not.
async fn unchanged(
    table: &Table,
    seen: &Record,
    now: Timestamp,
    doing: &'static str,
) -> Result<Option<Condition>> {
    if seen.nonce != FOREIGN {
        let values = vec![(":nonce", text(seen.nonce.to_string())), (":now", number(now.0 / 1000))];
        return Ok(Some(Condition { expression: "ichido_nonce = :nonce AND #ttl > :now", values }));
    }
    let Some(item) = table.get(&mark_key(&seen.key), doing).await? else { return Ok(None) };
    let current = record(&item, seen.key.clone());
    if current != *seen || now >= current.expires_at {
        return Ok(None);
    }
    Ok(Some(match item.get("processed_at").cloned() {
        Some(time) => Condition {
            expression: "attribute_not_exists(ichido_nonce) AND processed_at = :time",
            values: vec![(":time", time)],
        },
        None => Condition {
            expression: "attribute_not_exists(ichido_nonce) AND attribute_not_exists(processed_at)",
            values: Vec::new(),
        },
    }))
}

/// The mark in an item. `None` if its key is not one that ichido accepts.
pub(super) fn decode(item: &Item) -> Option<Record> {
    let event_key = super::table::key_of(item);
    let escaped = item.get("ichido_key").and_then(as_text).filter(|_| event_key.starts_with(ESCAPED));
    let key = MarkKey::new(escaped.unwrap_or_else(|| event_key.to_owned())).ok()?;
    (mark_key(&key) == event_key).then(|| record(item, key))
}

fn record(item: &Item, key: MarkKey) -> Record {
    let nonce = item.get("ichido_nonce").and_then(as_text).and_then(|nonce| nonce.parse().ok());
    let ttl = item.get(TTL).and_then(|ttl| ttl.as_n().ok()).and_then(|ttl| ttl.parse::<u64>().ok());
    Record {
        key,
        nonce: nonce.unwrap_or(FOREIGN),
        marked_at: first_seen(item),
        expires_at: Timestamp(ttl.map_or(u64::MAX, |seconds| seconds.saturating_mul(1000))),
        metadata: metadata(item),
    }
}

/// The key of a mark's item.
pub(super) fn mark_key(key: &MarkKey) -> String {
    if key.text().starts_with(CLAIMS) { format!("{ESCAPED}{}", key.index()) } else { key.text().to_owned() }
}

/// The item of a mark.
pub(super) fn encode(request: &Request, now: Timestamp) -> Item {
    let mut item: Item =
        request.metadata.iter().map(|(name, value)| (name.to_owned(), text(value))).collect();
    let event_key = mark_key(&request.key);
    if event_key != request.key.text() {
        item.insert("ichido_key".to_owned(), text(request.key.text()));
    }
    let ttl = (now + request.retention_ms).ceil_seconds();
    item.insert(EVENT_KEY.to_owned(), text(event_key));
    item.insert("processed_at".to_owned(), number(now.0 / 1000));
    item.insert(TTL.to_owned(), number(ttl));
    item.insert("ichido_nonce".to_owned(), text(request.nonce.to_string()));
    item
}

fn answer(item: &Item, request: &Request) -> Mark {
    let nonce = item.get("ichido_nonce").and_then(|nonce| nonce.as_s().ok());
    if nonce.is_some_and(|nonce| *nonce == request.nonce.to_string()) {
        return Mark::New;
    }
    Mark::Seen { first_seen: first_seen(item), metadata: metadata(item) }
}

/// When an event was marked; zero if the item does not tell.
fn first_seen(item: &Item) -> Timestamp {
    let text = item.get("processed_at").and_then(as_text).unwrap_or_default();
    let seconds = text.split('.').next().and_then(|whole| whole.parse::<u64>().ok()).unwrap_or_default();
    Timestamp(seconds.saturating_mul(1000))
}

/// Other consumers' attributes of a mark, as far as they fit the limits.
fn metadata(item: &Item) -> Metadata {
    let own = HashSet::from([EVENT_KEY, "processed_at", TTL]);
    let foreign =
        item.iter().filter(|(name, _)| !own.contains(name.as_str()) && !name.starts_with("ichido_"));
    let mut pairs: Vec<_> =
        foreign.filter_map(|(name, value)| Some((name.clone(), as_text(value)?))).collect();
    pairs.sort_unstable();
    let mut left = Limits::STANDARD.metadata_bytes;
    pairs.retain(|(name, value)| match left.checked_sub(name.len() + value.len()) {
        Some(rest) => {
            left = rest;
            true
        }
        None => false,
    });
    Metadata::new(pairs).unwrap_or_default()
}

/// A scalar as text.
fn as_text(value: &AttributeValue) -> Option<String> {
    let text = value.as_s().ok().or_else(|| value.as_n().ok()).cloned();
    let truth = || value.as_bool().ok().map(ToString::to_string);
    text.or_else(truth).or_else(|| value.is_null().then(String::new))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(key: &str) -> Request {
        let metadata = Metadata::new([("file_id".to_owned(), "F1".to_owned())]).unwrap();
        let key = MarkKey::new(key).unwrap();
        Request { key, nonce: Nonce::from_bytes([7; 16]), retention_ms: 21_600_000, metadata }
    }

    #[test]
    fn mark_is_the_shared_item_plus_a_nonce() {
        let item = encode(&request("Ev1"), Timestamp(1_700_000_000_500));
        let expected = [
            ("event_key", AttributeValue::S("Ev1".to_owned())),
            ("processed_at", AttributeValue::N("1700000000".to_owned())),
            ("ttl", AttributeValue::N("1700021601".to_owned())),
            ("file_id", AttributeValue::S("F1".to_owned())),
            ("ichido_nonce", AttributeValue::S("07".repeat(16))),
        ];
        assert_eq!(item, expected.map(|(name, value)| (name.to_owned(), value)).into());
    }

    #[test]
    fn key_that_looks_like_a_claim_is_escaped() {
        let key = MarkKey::new("ichido#00").unwrap();
        assert_eq!(mark_key(&key), format!("ichido#mark#{}", key.index()));
        assert_eq!(mark_key(&MarkKey::new("ichido").unwrap()), "ichido");
    }

    #[test]
    fn foreign_items_are_read_as_far_as_possible() {
        let mut item = Item::from([
            ("event_key".to_owned(), text("Ev1")),
            ("processed_at".to_owned(), AttributeValue::S("1700000000.25".to_owned())),
            ("user_id".to_owned(), text("U1")),
            ("size".to_owned(), number(7)),
            ("bot".to_owned(), AttributeValue::Bool(true)),
            ("tags".to_owned(), AttributeValue::Ss(vec!["x".to_owned()])),
            ("blob".to_owned(), text("x".repeat(9000))),
        ]);
        let Mark::Seen { first_seen, metadata } = answer(&item, &request("Ev1")) else { panic!("not ours") };
        assert_eq!(first_seen, Timestamp(1_700_000_000_000));
        let pairs: Vec<_> = metadata.iter().collect();
        assert_eq!(pairs, [("bot", "true"), ("size", "7"), ("user_id", "U1")]);
        item.remove("processed_at");
        assert!(matches!(answer(&item, &request("Ev1")), Mark::Seen { first_seen: Timestamp(0), .. }));
    }
    #[test]
    fn marks_are_read_as_they_were_written() {
        for key in ["Ev1", "ichido#00"] {
            let request = request(key);
            let expected = Record {
                key: request.key.clone(),
                nonce: request.nonce,
                marked_at: Timestamp(1_700_000_000_000),
                expires_at: Timestamp(1_700_021_601_000),
                metadata: request.metadata.clone(),
            };
            assert_eq!(decode(&encode(&request, Timestamp(1_700_000_000_500))), Some(expected));
        }
    }

    #[test]
    fn foreign_mark_has_no_nonce_and_may_have_no_expiry() {
        let item = Item::from([("event_key".to_owned(), text("Ev1")), ("user_id".to_owned(), text("U1"))]);
        let record = decode(&item).unwrap();
        assert_eq!((record.nonce, record.expires_at), (FOREIGN, Timestamp(u64::MAX)));
        let claim = Item::from([("event_key".to_owned(), text(format!("ichido#{}", record.key.index())))]);
        assert_eq!(decode(&claim), None);
    }
}
