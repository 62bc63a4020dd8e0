//! Random histories: several clients, several instances, a few keys, answers that are stored, refused or forgotten.
//!
//! The ledgers' own histories are checked for linearizability with the conformance suite. Seen from outside, that means
//! for each key: runs never overlap; after a run whose answer is stored no run begins until it is forgotten; and every
//! replay is the stored answer of that time.

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
/// Clocks of stores count in milliseconds, and not the same ones.
const BLUR: Duration = Duration::from_millis(20);

#[derive(Clone, Debug)]
struct Ran {
    text: String,
    begun: Instant,
    ended: Instant,
    stored: bool,
}

async fn random_histories_have_one_winner_at_a_time(store: Store) {
    let runs: Arc<Mutex<HashMap<String, Vec<Ran>>>> = Arc::default();
    let chance = Arc::new(Mutex::new(StdRng::seed_from_u64(17)));
    let upstream = Upstream::new({
        let (runs, chance) = (runs.clone(), chance.clone());
        move |call| {
            let (runs, chance) = (runs.clone(), chance.clone());
            async move {
                let begun = Instant::now();
                let key = call.parts.headers["idempotency-key"].to_str().unwrap().to_owned();
                let (pause_ms, stored) = {
                    let mut chance = chance.lock().unwrap();
                    (chance.random_range(0..15), chance.random_range(0..3) > 0)
                };
                sleep(ms(pause_ms)).await;
                let text_of_run = format!("run {}", call.run);
                let ran = Ran { text: text_of_run.clone(), begun, ended: Instant::now(), stored };
                runs.lock().unwrap().entry(key).or_default().push(ran);
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
            let mut chance = StdRng::seed_from_u64(client);
            let mut seen = Vec::new();
            for _ in 0..40 {
                let key = format!("k{}", chance.random_range(0..4));
                let instance = &instances[chance.random_range(0..3)];
                let asked = Instant::now();
                let got = instance.send(order(&key)).await;
                seen.push((format!("\"{key}\""), asked, Instant::now(), got));
                sleep(ms(chance.random_range(0..25))).await;
            }
            seen
        })
    });
    let mut answers = Vec::new();
    for client in clients.collect::<Vec<_>>() {
        answers.extend(client.await.unwrap());
    }
    let runs = runs.lock().unwrap().clone();
    for (key, runs) in &runs {
        check_runs(key, runs);
    }
    let mut firsts = 0;
    for (key, asked, answered, got) in &answers {
        let runs = &runs[key];
        match got.status.as_u16() {
            409 => got.is_problem(409, "in-flight"),
            201 if got.is_replay() => {
                let run = runs.iter().find(|run| run.text == got.text()).expect("a run of this key");
                assert!(run.stored && run.begun < *answered, "{key}: {got:?}");
                let over = run.ended + ms(RETENTION_MS) + BLUR;
                let next = runs.iter().filter(|next| next.begun > run.ended).map(|next| next.begun).min();
                assert!(
                    next.is_none_or(|next| *asked < next) || *asked < over,
                    "{key}: an answer that was forgotten came back"
                );
            }
            201 | 429 => {
                firsts += 1;
                let run = runs.iter().find(|run| run.text == got.text()).expect("a run of this key");
                assert!(*asked < run.begun && run.ended < *answered, "{key}: its own run");
            }
            other => panic!("{other}: {got:?}"),
        }
    }
    assert_eq!(firsts, upstream.runs(), "each run answers one caller as the first");
}

fn check_runs(key: &str, runs: &[Ran]) {
    for pair in runs.windows(2) {
        let [before, after] = pair else { unreachable!() };
        assert!(before.ended <= after.begun, "{key}: two runs at once: {pair:?}");
        if before.stored {
            let kept = after.begun + BLUR >= before.ended + ms(RETENTION_MS);
            assert!(kept, "{key}: run again within retention: {pair:?}");
        }
    }
}
