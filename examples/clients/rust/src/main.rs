//! Handles each event from standard input once: one JSON object per line, with an "id".
//!
//! `ICHIDO_URL=http://127.0.0.1:8070 cargo run -p ichido-client-example < events.jsonl`
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints to its terminal")]

use std::collections::BTreeMap;
use std::io;

use ichido_client_example::{Error, Event, Failure, Ichido, Options};
use serde_json::{Value, json};

/// Your work. Duplicates get its result.
async fn handle(event: &Value) -> Result<Value, Failure> {
    Ok(json!({ "handled": event["id"] }))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("ICHIDO_URL").unwrap_or_else(|_| "http://127.0.0.1:8070".to_owned());
    let ichido = Ichido::new(&url, std::env::var("ICHIDO_ADMIN_TOKEN").ok().as_deref());
    let mut events: Vec<Value> = Vec::new();
    for line in io::stdin().lines() {
        events.push(serde_json::from_str(&line?)?);
    }

    // Cheap events: one call for all of them.
    let id = |event: &Value| event["id"].as_str().unwrap_or_default().to_owned();
    let seen = events.iter().map(|event| format!("seen:{}", id(event)));
    let checks: Vec<Event> = seen.map(|key| Event { key, metadata: BTreeMap::new() }).collect();
    for result in ichido.check(&checks).await? {
        if result.degraded {
            eprintln!("{}: the ledger is unavailable; another instance may handle it too", result.key);
        }
        println!("{} {}", result.key, if result.is_new { "new" } else { "duplicate" });
    }

    // Work that must be neither lost nor done twice.
    for event in &events {
        match ichido.once(&id(event), &Options::default(), async || handle(event).await).await {
            Ok(outcome) => println!("{} {outcome}", id(event)),
            Err(Error::InDoubt) => println!("{} in doubt: an operator must look", id(event)),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
