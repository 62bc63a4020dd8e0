//! The Rust of the README, compiled: each of its blocks stands below as it is, in a function around it.

#![allow(dead_code, reason = "it is compiled, and the examples and doc tests run the same")]

use std::sync::Arc;

use axum::Router;
use axum::routing::post;
use ichido_core::{Key, Outcome};
use ichido_http::{IdempotencyLayer, Rules};
use ichido_ledger::postgres::Postgres;
use ichido_ledger::{Ledger, Settings};

use super::markdown::{blocks, page};

type Anything<T> = Result<T, Box<dyn std::error::Error>>;

async fn create() -> &'static str {
    "created"
}

fn a_service(ledger: Ledger) -> Router {
    let layer = IdempotencyLayer::new(ledger, Rules::default());
    let app = Router::new().route("/orders", post(create)).layer(layer);
    app.fallback(create)
}

async fn charge() -> Result<u32, std::io::Error> {
    Ok(17)
}

async fn in_one_line() -> Anything<u32> {
    let ledger = ichido_ledger::open("file:data/ledger", Settings::default()).await?;
    let receipt = ledger.once(Key::unscoped("order-17")?, || async { Ok(charge().await?) }).await?;
    Ok(receipt.into_inner())
}

async fn in_a_transaction(client: &mut tokio_postgres::Client, key: Key, outcome: Outcome) -> Anything<()> {
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
fn the_rust_of_the_readmes_is_compiled_here() {
    let here: Vec<&str> = include_str!("rust.rs").lines().map(str::trim).collect();
    for name in ["README.md", "README.ja.md"] {
        let found: Vec<_> =
            blocks(&page(name)).into_iter().filter(|block| block.language == "rust").collect();
        assert_eq!(found.len(), 3, "{name}");
        for line in found.iter().flat_map(|block| &block.lines) {
            // Comments are in the language of the page.
            let known = line.trim().starts_with("//") || here.contains(&line.trim());
            assert!(known, "{name}: this is not compiled anywhere: {line}");
        }
    }
}
