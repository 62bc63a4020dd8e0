//! The Rust in the documents, compiled: every line of a block also appears below, inside a function.

#![allow(dead_code, reason = "this is only compiled; the examples and doc tests run the same code")]

use std::sync::Arc;

use axum::Router;
use axum::routing::post;
use ichido_core::{Key, Outcome};
use ichido_http::{IdempotencyLayer, Rules};
use ichido_ledger::postgres::Postgres;
use ichido_ledger::{Ledger, Settings};

use super::markdown::{blocks, page, pages};

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

async fn create() -> &'static str {
    "created"
}

fn service(ledger: Ledger) -> Router {
    let layer = IdempotencyLayer::new(ledger, Rules::default());
    let app = Router::new().route("/orders", post(create)).layer(layer);
    app.fallback(create)
}

async fn charge() -> Result<u32, std::io::Error> {
    Ok(17)
}

async fn once() -> Fallible<u32> {
    let ledger = ichido_ledger::open("file:data/ledger", Settings::default()).await?;
    let receipt = ledger.once(Key::unscoped("order-17")?, || async { Ok(charge().await?) }).await?;
    Ok(receipt.into_inner())
}

async fn in_a_transaction(client: &mut tokio_postgres::Client, key: Key, outcome: Outcome) -> Fallible<()> {
    let store = Arc::new(Postgres::connect("postgres://db/app").await?);
    let ledger = Ledger::new(store.clone(), Settings::default());
    let ichido_core::Claim::Granted(grant) = ledger.claim(&ledger.request(key.clone())).await?.claim else {
        return Ok(());
    };
    // … after a granted claim:
    let transaction = client.transaction().await?;
    transaction.execute("INSERT INTO orders …", &[]).await?;
    store.complete_in(&transaction, &key, grant.token, &outcome).await?;
    transaction.commit().await?;
    Ok(())
}

#[test]
fn rust_of_every_page_is_compiled_here() {
    let here: Vec<&str> = include_str!("rust.rs").lines().map(str::trim).collect();
    let mut found = 0;
    for name in pages() {
        for block in blocks(&page(&name)).into_iter().filter(|block| block.language == "rust") {
            found += 1;
            for line in block.lines {
                assert!(here.contains(&line.trim()), "{name}: this line is not compiled: {line}");
            }
        }
    }
    assert_eq!(found, 3);
}
