use std::fs;
use std::path::Path;

use ichido_core::{Claim, Key, Outcome, Scope};
use ichido_delivery::receipt::{Disposition, Entry};
use ichido_delivery::store::{BatchDir, Options, Store, StoredBatch};
use ichido_delivery::{Batch, Record};
use ichido_ledger::Ledger;

use super::*;
use crate::audit_log::{Action, Actor, Outcome as ActionOutcome, Rotation};
use crate::operator::{ClaimSelector, Local, ResolveAs};

const NOW: Timestamp = Timestamp(1_790_000_000_000);

fn batch(ids: &[&str]) -> Batch {
    let record = |id: &&str| Record::parse(&format!(r#"{{"source_event_id":"{id}"}}"#)).unwrap();
    Batch::new(ids.iter().map(record).collect())
}

fn store(root: &Path) -> Store {
    Store::open(root, Options::default(), NOW).unwrap()
}

async fn ledger() -> Ledger {
    ichido_ledger::open("memory:", ichido_ledger::Settings::default()).await.unwrap()
}

fn audit(root: &Path) -> AuditLog {
    AuditLog::new(root.join("audit"), Rotation { max_bytes: 1 << 20, max_age: None })
}

struct World {
    dir: tempfile::TempDir,
    operator: Local,
}

impl World {
    async fn new() -> Self {
        let operator = Local { ledger: ledger().await, histories: Histories::default(), service: None };
        Self { dir: tempfile::tempdir().unwrap(), operator }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    async fn trace(&self, id: &str) -> Trace {
        let retention = Duration::from_secs(90 * 86_400);
        let layout = Layout::new(self.path());
        let sources = Sources {
            delivery: Ok(DeliverySource { layout, receipt_retention: retention }),
            ledger: Ok(&self.operator),
            histories: Histories::default(),
            audit: audit(self.path()),
            meter: Err("no meter".to_owned()),
            export: Err("no export".to_owned()),
        };
        trace(&sources, id, NOW).await
    }
}

fn events(trace: &Trace) -> Vec<(Place, &str)> {
    trace.timeline.iter().map(|event| (event.place, &*event.event)).collect()
}

#[test]
fn every_place_is_listed_once_in_order() {
    let mut sorted = Place::ALL;
    sorted.sort();
    assert_eq!(sorted, Place::ALL);
}

#[tokio::test]
async fn nothing_found_says_where_it_looked_and_where_not() {
    let world = World::new().await;
    let trace = world.trace("nowhere").await;
    assert!(!trace.found && trace.timeline.is_empty());
    let looked: BTreeSet<Place> = trace.looked_into.iter().map(|looked| looked.place).collect();
    let not_looked: BTreeSet<Place> = trace.not_looked_into.iter().map(|not| not.place).collect();
    for place in Place::ALL {
        assert!(looked.contains(&place) || not_looked.contains(&place), "{place:?}");
    }
    let why = |place: Place| {
        let not = trace.not_looked_into.iter().find(|not| not.place == place);
        not.map(|not| not.why.clone()).unwrap_or_default()
    };
    assert_eq!((why(Place::Meter), why(Place::Export)), ("no meter".to_owned(), "no export".to_owned()));
    assert!(why(Place::History).contains("history.dir"), "{}", why(Place::History));
    assert!(why(Place::Receipts).contains("RECEIPT_RETENTION_DAYS = 90"), "{}", why(Place::Receipts));
}

#[tokio::test]
async fn record_is_followed_from_its_batch_to_failed_and_to_the_operator() {
    let world = World::new().await;
    let batch = batch(&["a", "b"]);
    let store = store(world.path());
    let attempts = [ichido_delivery::receipt::Attempt {
        at: iso(NOW + 1),
        status: Some(503),
        error: None,
        latency_ms: 12,
    }];
    let entry = Entry { attempts: &attempts, ..Entry::new(&batch, Disposition::Failed, NOW) };
    store.receipts().write(&entry, NOW + 20).unwrap();
    let mut stored = StoredBatch::fresh(batch.clone(), NOW);
    stored.note(NOW + 20, "HTTP 503 Service Unavailable");
    let mut owned = store.accept(&stored).unwrap();
    store.fail(&mut owned, batch.key(), NOW + 20).unwrap();
    let action = |name: &str, batches: Vec<String>| Action {
        place: Some("failed".to_owned()),
        batches,
        ..Action::named(name)
    };
    let audit = audit(world.path());
    for (name, batches) in [
        ("accept", vec![batch.key()[..12].to_owned()]),
        ("accept", vec!["0123".to_owned()]),
        ("resend all", vec![]),
    ] {
        let pending = audit.begin(Actor::command_line(), action(name, batches)).unwrap();
        pending.finish(ActionOutcome::of("applied")).unwrap();
    }
    let trace = world.trace("b").await;
    assert!(trace.found);
    // The clock of the audit log is that of the machine.
    let (operator, others): (Vec<_>, Vec<_>) =
        events(&trace).into_iter().partition(|(place, _)| *place == Place::Audit);
    assert_eq!(
        others,
        [
            (Place::Receipts, "batched"),
            (Place::Receipts, "request"),
            (Place::Receipts, "failed"),
            (Place::Failed, "waiting-in-failed"),
        ]
    );
    let is_later = ichido_core::Clock::now(&ichido_core::SystemClock::default()) > NOW;
    let expected = if is_later { vec!["accept", "resend all"] } else { vec!["accept"] };
    assert_eq!(operator.iter().map(|(_, event)| *event).collect::<Vec<_>>(), expected);
    let request = trace.timeline.iter().find(|event| event.event == "request").unwrap();
    assert_eq!(request.details_line(), "attempt=1 latency_ms=12 status=503");
    assert_eq!(events(&world.trace(batch.key()).await).len(), events(&trace).len());
    assert_eq!(events(&world.trace(&batch.key()[..12]).await).len(), events(&trace).len());
}

#[tokio::test]
async fn record_in_the_spool_or_in_flight_is_found_without_a_receipt() {
    let world = World::new().await;
    let store = store(world.path());
    let stored = |id: &str| StoredBatch::fresh(batch(&[id]), NOW);
    let mut waiting = store.accept(&stored("waiting")).unwrap();
    store.spool(&mut waiting, &stored("waiting")).unwrap();
    let _sending = store.accept(&stored("sending")).unwrap();
    let _group = store.accept_group(&[stored("one"), stored("two")]).unwrap();
    assert_eq!(events(&world.trace("waiting").await), [(Place::Spool, "waiting-in-spool")]);
    for id in ["sending", "one", "two"] {
        assert_eq!(events(&world.trace(id).await), [(Place::InFlight, "in-flight")], "{id}");
    }
    fs::write(Layout::new(world.path()).dir(BatchDir::Spool).join("spool_20250118T120530Z_aaa.json"), "?")
        .unwrap();
    let trace = world.trace("waiting").await;
    assert!(trace.found, "an unreadable file hides no other");
    let why: Vec<_> = trace.not_looked_into.iter().filter(|not| not.place == Place::Spool).collect();
    assert!(why.len() == 1 && why[0].why.contains("spool_20250118T120530Z_aaa.json"), "{why:?}");
}

#[tokio::test]
async fn record_that_a_receiver_accepted_out_of_a_split_batch_is_delivered() {
    let world = World::new().await;
    let batch = batch(&["good", "bad"]);
    let entry = Entry { accepted: &[0], ..Entry::new(&batch, Disposition::Split, NOW) };
    store(world.path()).receipts().write(&entry, NOW).unwrap();
    assert_eq!(events(&world.trace("good").await)[1], (Place::Receipts, "delivered"));
    assert_eq!(events(&world.trace("bad").await)[1], (Place::Receipts, "split"));
}

#[tokio::test]
async fn claim_is_found_in_any_scope_with_who_resolved_it() {
    let world = World::new().await;
    let ledger = &world.operator.ledger;
    for tenant in ["one", "two"] {
        let request = ledger.request(Key::new(Scope::new(tenant, "POST /orders"), "order-17").unwrap());
        let Claim::Granted(grant) = ledger.claim(&request).await.unwrap().claim else { panic!() };
        let settled = match tenant {
            "one" => ledger.complete(&request.key, grant.token, Outcome::kept("x")).await.unwrap(),
            _ => ledger.declare_in_doubt(&request.key, grant.token, "timeout".to_owned()).await.unwrap(),
        };
        assert_eq!(settled, ichido_core::Settled::Applied);
    }
    let trace = world.trace("order-17").await;
    let mut found = events(&trace);
    found.sort_unstable();
    assert_eq!(
        found,
        [
            (Place::Ledger, "claimed"),
            (Place::Ledger, "claimed"),
            (Place::Ledger, "done"),
            (Place::Ledger, "in-doubt"),
        ]
    );
    let audited = crate::operator::Audited {
        operator: world.operator.clone(),
        audit: audit(world.path()),
        actor: Actor { who: "sato".to_owned(), ..Actor::command_line() },
    };
    let selector = ClaimSelector { key: "order-17".to_owned(), tenant: Some("two".to_owned()), route: None };
    audited.resolve(&selector, &ResolveAs::Done(None)).await.unwrap();
    let trace = world.trace("order-17").await;
    let resolved = trace.timeline.iter().find(|event| event.place == Place::Audit).unwrap();
    assert_eq!((&*resolved.event, &resolved.details["who"]), ("resolve as done", &Value::from("sato")));
    assert!(!world.trace("order-1").await.found, "a prefix of a key is another key");
}

#[test]
fn wire_format_is_read_back() {
    let event = Event::new(NOW, Place::InFlight, "in-flight").key("k").with("attempt", Value::from(1));
    let trace = Trace {
        id: "x".to_owned(),
        found: true,
        timeline: vec![event],
        omitted: 0,
        looked_into: vec![LookedInto { place: Place::Spool, what: "files".to_owned(), found: 1 }],
        not_looked_into: vec![NotLookedInto { place: Place::Meter, why: "none".to_owned() }],
    };
    let text = serde_json::to_string(&trace).unwrap();
    let read: Trace = serde_json::from_str(&text).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), text);
    assert!(text.contains(r#""at":"2026-09-21T14:13:20Z","place":"in-flight""#), "{text}");
}
