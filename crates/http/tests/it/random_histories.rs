//! Random histories: several clients, several instances, a few keys, and responses that are stored, refused or expired.
//!
//! The conformance suite checks that the histories of the ledgers are linearizable. For a client, that means for each key:
//! runs never overlap; after a run whose response is stored, no run starts until the response expires; and every replay is
//! the response that was stored at that time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use ichido_http::{InFlight, Route};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::{Duration, Instant, sleep};

use crate::support::{Instance, Store, Upstream, ms, on_every_ledger, order, route, text};

on_every_ledger! {
    random_histories_have_one_winner_at_a_time,
}

const RETENTION_MS: u64 = 500;
/// Stores count in milliseconds, and their clocks differ slightly.
const CLOCK_TOLERANCE: Duration = Duration::from_millis(20);

#[derive(Clone, Debug)]
struct Run {
    text: String,
    started: Instant,
    ended: Instant,
    stored: bool,
}

async fn random_histories_have_one_winner_at_a_time(store: Store) {
    let runs: Arc<Mutex<HashMap<String, Vec<Run>>>> = Arc::default();
    let random = Arc::new(Mutex::new(StdRng::seed_from_u64(17)));
    let upstream = Upstream::new({
        let (runs, random) = (runs.clone(), random.clone());
        move |call| {
            let (runs, random) = (runs.clone(), random.clone());
            async move {
                let started = Instant::now();
                let key = call.parts.headers["idempotency-key"].to_str().unwrap().to_owned();
                let (pause_ms, stored) = {
                    let mut rng = random.lock().unwrap();
                    (rng.random_range(0..15), rng.random_range(0..3) > 0)
                };
                sleep(ms(pause_ms)).await;
                let text_of_run = format!("run {}", call.run);
                let run = Run { text: text_of_run.clone(), started, ended: Instant::now(), stored };
                runs.lock().unwrap().entry(key).or_default().push(run);
                Ok(text(if stored { 201 } else { 429 }, &text_of_run))
            }
        }
    });
    let plain = Route { retention: ms(RETENTION_MS), ..route() };
    let waiting = Route { in_flight: InFlight::Wait(ms(300)), ..plain.clone() };
    let mut instances = Vec::new();
    for route in [&plain, &waiting, &plain] {
        instances.push(Instance::new(&store, route.clone(), &upstream).await);
    }
    let clients = (0..6_u64).map(|client| {
        let instances = instances.clone();
        tokio::spawn(async move {
            let mut rng = StdRng::seed_from_u64(client);
            let mut seen = Vec::new();
            for _ in 0..40 {
                let key = format!("k{}", rng.random_range(0..4));
                let instance = &instances[rng.random_range(0..3)];
                let sent = Instant::now();
                let got = instance.send(order(&key)).await;
                seen.push((format!("\"{key}\""), sent, Instant::now(), got));
                sleep(ms(rng.random_range(0..25))).await;
            }
            seen
        })
    });
    let mut responses = Vec::new();
    for client in clients.collect::<Vec<_>>() {
        responses.extend(client.await.unwrap());
    }
    let runs = runs.lock().unwrap().clone();
    for (key, runs) in &runs {
        check_runs(key, runs);
    }
    let mut firsts = 0;
    for (key, sent, received, got) in &responses {
        let runs = &runs[key];
        match got.status.as_u16() {
            409 => got.assert_problem(409, "in-flight"),
            201 if got.is_replay() => {
                let run = runs.iter().find(|run| run.text == got.text()).expect("a run of this key");
                assert!(run.stored && run.started < *received, "{key}: {got:?}");
                let over = run.ended + ms(RETENTION_MS) + CLOCK_TOLERANCE;
                let next = runs.iter().filter(|next| next.started > run.ended).map(|next| next.started).min();
                assert!(
                    next.is_none_or(|next| *sent < next) || *sent < over,
                    "{key}: an expired response was replayed"
                );
            }
            201 | 429 => {
                firsts += 1;
                let run = runs.iter().find(|run| run.text == got.text()).expect("a run of this key");
                assert!(*sent < run.started && run.ended < *received, "{key}: not its own run");
            }
            other => panic!("{other}: {got:?}"),
        }
    }
    assert_eq!(firsts, upstream.runs(), "each run is the first response of one caller");
}

fn check_runs(key: &str, runs: &[Run]) {
    for pair in runs.windows(2) {
        let [before, after] = pair else { unreachable!() };
        assert!(before.ended <= after.started, "{key}: two runs at once: {pair:?}");
        if before.stored {
            let is_after_retention = after.started + CLOCK_TOLERANCE >= before.ended + ms(RETENTION_MS);
            assert!(is_after_retention, "{key}: run again within retention: {pair:?}");
        }
    }
}
