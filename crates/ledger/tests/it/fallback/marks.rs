//! Events during an outage.

use ichido_core::mark::{Erased, Forgotten, Mark};
use ichido_core::{Metadata, mark};
use ichido_ledger::MarkQuery;

use super::{BOUND, Fault, LONG, SHORT, Scene, event, is_new, mark as ask};

#[tokio::test]
async fn events_from_before_an_outage_are_known_during_it() {
    let scene = Scene::open(LONG).await;
    let (own, others, fresh) = (event(), event(), event());
    assert!(is_new(&ask(&scene.ledger, &own).await));
    assert!(is_new(&ask(&scene.other, &others).await));
    assert!(!is_new(&ask(&scene.ledger, &others).await), "the primary knows what others marked");

    scene.outage().await;
    for event in [&own, &others] {
        let marked = ask(&scene.ledger, event).await;
        assert!(!is_new(&marked) && marked.degraded, "{marked:?}");
    }
    let marked = ask(&scene.ledger, &fresh).await;
    assert!(is_new(&marked) && marked.degraded, "{marked:?}");
    for _ in 0..3 {
        let marked = ask(&scene.ledger, &fresh).await;
        assert!(!is_new(&marked) && marked.degraded, "new once: {marked:?}");
    }
}

#[tokio::test]
async fn retry_of_a_lost_reply_during_an_outage_is_still_new() {
    let scene = Scene::open(LONG).await;
    let request = scene.ledger.mark_request(event());
    assert!(is_new(&scene.ledger.mark(std::slice::from_ref(&request)).await.unwrap()[0]));
    scene.outage().await;
    assert!(is_new(&scene.ledger.mark(std::slice::from_ref(&request)).await.unwrap()[0]), "the same call");
}

#[tokio::test]
async fn events_of_an_outage_are_known_to_other_instances_afterwards() {
    let scene = Scene::open(SHORT).await;
    scene.outage().await;
    let events: Vec<_> = (0..250).map(|_| event()).collect();
    for event in &events {
        assert!(is_new(&ask(&scene.ledger, event).await));
    }
    scene.recovery().await;
    for event in &events {
        for ledger in [&scene.other, &scene.ledger] {
            let marked = ask(ledger, event).await;
            assert!(!is_new(&marked) && !marked.degraded, "{marked:?}");
        }
    }
    assert!(scene.counts.of("ichido_ledger_written_back_total") >= 250);
    assert_eq!(scene.counts.of("ichido_ledger_conflicts_total"), 0);
}

#[tokio::test]
async fn conflicting_mark_is_counted_and_the_primary_wins() {
    let scene = Scene::open(SHORT).await;
    let event = event();
    scene.outage().await;
    assert!(is_new(&ask(&scene.ledger, &event).await), "another instance may call it new too");
    let metadata = Metadata::new([("by".to_owned(), "the other".to_owned())]).unwrap();
    let direct = mark::Request { metadata: metadata.clone(), ..scene.other.mark_request(event.clone()) };
    assert!(is_new(&scene.other.mark(&[direct]).await.unwrap()[0]));
    scene.recovery().await;
    assert_eq!(scene.counts.of("ichido_ledger_conflicts_total"), 1);
    match ask(&scene.ledger, &event).await.mark {
        Mark::Seen { metadata: found, .. } => assert_eq!(found, metadata, "what the primary has stays"),
        Mark::New => panic!("the event is new a third time"),
    }
}

/// Callers that mark without pause do not keep the ledger from recovering.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn busy_ledger_recovers() {
    let scene = Scene::open(SHORT).await;
    scene.outage().await;
    let busy = (0..4).map(|_| async {
        while ask(&scene.ledger, &event()).await.degraded {
            tokio::task::yield_now().await;
        }
    });
    scene.proxy.set(Fault::None);
    let back = futures_util::future::join_all(busy);
    tokio::time::timeout(BOUND, back).await.expect("the ledger comes back while it is busy");
}

/// During an outage, an operator sees and forgets what the fallback marked. It is not handed over afterwards.
#[tokio::test]
async fn event_of_an_outage_can_be_forgotten() {
    let scene = Scene::open(SHORT).await;
    let (forgotten, kept) = (event(), event());
    scene.outage().await;
    for event in [&forgotten, &kept] {
        assert!(is_new(&ask(&scene.ledger, event).await));
    }
    let listed = scene.ledger.list_marks(&MarkQuery { limit: 100, ..MarkQuery::default() }).await.unwrap();
    assert!(listed.degraded && listed.marks.iter().all(|mark| mark.local), "{listed:?}");
    assert!(listed.marks.iter().any(|mark| mark.key == forgotten.text()), "{listed:?}");
    let seen = scene.ledger.get_mark(&forgotten).await.unwrap().expect("it is pending");
    assert_eq!(scene.ledger.forget_mark(&seen).await.unwrap(), Forgotten::Removed);
    assert_eq!(scene.ledger.forget_mark(&seen).await.ok(), None, "what is not pending needs the primary");
    scene.recovery().await;
    assert!(!is_new(&ask(&scene.other, &kept).await));
    assert!(is_new(&ask(&scene.other, &forgotten).await), "it was handed over");
}

/// The primary forgets an event, and so does the mirror that answers during the next outage.
#[tokio::test]
async fn event_that_was_forgotten_is_new_during_the_next_outage() {
    let scene = Scene::open(LONG).await;
    let (own, others) = (event(), event());
    assert!(is_new(&ask(&scene.ledger, &own).await));
    assert!(is_new(&ask(&scene.other, &others).await));
    assert!(!is_new(&ask(&scene.ledger, &others).await));
    for event in [&own, &others] {
        let seen = scene.ledger.get_mark(event).await.unwrap().expect("it is marked");
        assert_eq!(scene.ledger.forget_mark(&seen).await.unwrap(), Forgotten::Removed);
        assert_eq!(scene.other.get_mark(event).await.unwrap(), None);
    }
    scene.outage().await;
    for event in [&own, &others] {
        assert!(is_new(&ask(&scene.ledger, event).await));
    }
}

/// An erased event stays marked, also in the mirror that answers during the next outage.
#[tokio::test]
async fn erased_event_is_not_new_during_the_next_outage() {
    let scene = Scene::open(LONG).await;
    let (own, pending) = (event(), event());
    assert!(is_new(&ask(&scene.ledger, &own).await));
    let seen = scene.ledger.get_mark(&own).await.unwrap().expect("it is marked");
    assert_ne!(scene.ledger.erase_mark(&seen).await.unwrap(), Erased::Gone);
    scene.outage().await;
    assert!(!is_new(&ask(&scene.ledger, &own).await));
    assert!(is_new(&ask(&scene.ledger, &pending).await));
    let seen = scene.ledger.get_mark(&pending).await.unwrap().expect("it is pending");
    assert!(scene.ledger.erase_mark(&seen).await.is_err(), "it is not in the primary yet");
}

/// Local events are listed first, page by page, then those of the primary.
#[tokio::test]
async fn events_are_listed_from_both_ledgers() {
    let scene = Scene::open(SHORT).await;
    let prefix = format!("both-{}-", ichido_testkit::ledger_server::unique());
    for number in 0..10 {
        let key = ichido_core::MarkKey::new(format!("{prefix}{number}")).unwrap();
        assert!(is_new(&ask(&scene.other, &key).await));
    }
    let mut query = MarkQuery { prefix: Some(prefix), limit: 3, cursor: None };
    let mut listed = Vec::new();
    loop {
        let page = scene.ledger.list_marks(&query).await.unwrap();
        listed.extend(page.marks.into_iter().map(|mark| mark.key));
        query.cursor = page.cursor;
        if query.cursor.is_none() {
            break;
        }
    }
    listed.sort_unstable();
    listed.dedup();
    assert_eq!(listed.len(), 10);
}
