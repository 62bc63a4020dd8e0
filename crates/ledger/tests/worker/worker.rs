//! A process to be killed: it claims and completes keys, and reports each step after the ledger has acknowledged
//! it.
//!
//! ```text
//! ledger-worker URL PREFIX TASKS LEASE_MS
//!   claimed KEY      the ledger granted KEY
//!   done KEY         the ledger took the outcome of KEY; every fourth key is left running
//! ```
//!
//! With `hold` before the URL, it is a process to be paused instead: see [`hold`].
//!
//! A failed call is retried with the same nonce and token until it succeeds, as a careful caller would.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a program for tests")]

mod effects;
mod hold;

use std::future::Future;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use ichido_core::{Claim, Settle, Settled, SystemClock};
use ichido_ledger::{Backend, OpenOptions, Result, open_backend};

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "hold") {
        return hold::hold(&arguments[1..]).await;
    }
    let [url, prefix, tasks, lease_ms] = arguments.as_slice() else { panic!("URL PREFIX TASKS LEASE_MS") };
    let lease_ms = lease_ms.parse().expect("LEASE_MS");
    let options = OpenOptions { clock: Arc::new(SystemClock::default()), admin: None };
    let ledger = open_backend(url, &options).await.expect("the ledger opens");
    let tasks: Vec<_> = (0..tasks.parse::<u32>().expect("TASKS"))
        .map(|task| tokio::spawn(work(ledger.clone(), format!("{prefix}-{task}"), lease_ms)))
        .collect();
    for task in tasks {
        task.await.expect("a task works until it is killed");
    }
}

async fn work(ledger: Arc<dyn Backend>, prefix: String, lease_ms: u64) {
    for number in 0_u64.. {
        let text = format!("{prefix}-{number}");
        let request = effects::request(&text, lease_ms);
        let claim = until_answered(|| ledger.claim(&request)).await;
        assert!(matches!(claim, Claim::Granted(_)), "{text}: {claim:?}");
        print(&format!("claimed {text}\n"));
        if number % 4 == 3 {
            continue;
        }
        let action = Settle::Complete(effects::outcome(&text));
        let settled = until_answered(|| ledger.settle(&request.key, request.token, &action)).await;
        assert_eq!(settled, Settled::Applied, "{text}");
        print(&format!("done {text}\n"));
    }
}

async fn until_answered<T, F: Future<Output = Result<T>>>(call: impl Fn() -> F) -> T {
    loop {
        match call().await {
            Ok(answer) => return answer,
            Err(error) if error.is_transient() => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(error) => panic!("{error}"),
        }
    }
}

/// One write per line, so that a line is never torn.
fn print(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes()).and_then(|()| out.flush()).expect("someone listens");
}
