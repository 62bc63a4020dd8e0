//! `POST /orders`, safe to retry: the same key gives the same order.
//!
//! ```text
//! cargo run --release -p orders
//! curl -X POST -H 'Idempotency-Key: "k1"' -H 'Content-Type: application/json' \
//!      -d '{"customerId":"C123","items":[{"productId":"P001","qty":2}]}' http://127.0.0.1:5000/orders
//! ```
#![allow(clippy::print_stdout, reason = "it prints its listen address")]

use std::error::Error;
use std::time::Duration;

use axum::http::StatusCode;
use axum::{Json, Router, routing::post};
use ichido_core::{Nonce, SystemEntropy};
use ichido_http::{IdempotencyLayer, Route, Rules, ServerErrors};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NewOrder {
    customer_id: String,
    items: Vec<Item>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    product_id: String,
    qty: u32,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Order {
    order_id: String,
    pieces: u32,
}

/// Knows nothing about keys: each call creates an order.
async fn create(Json(order): Json<NewOrder>) -> (StatusCode, Json<Order>) {
    tokio::time::sleep(Duration::from_millis(200)).await;
    // Random, so that no id is used twice: the ledger keeps orders from before a restart, this process does not.
    let number = Nonce::draw(&SystemEntropy);
    let pieces = order.items.iter().filter(|item| !item.product_id.is_empty()).map(|item| item.qty).sum();
    let order = Order { order_id: format!("O-{}-{number}", order.customer_id), pieces };
    (StatusCode::CREATED, Json(order))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("ORDERS_LEDGER").unwrap_or_else(|_| "file:data/orders".to_owned());
    let ledger = ichido_ledger::open(&url, ichido_ledger::Settings::default()).await?;
    // A 5xx of this service means that no order was created, so a retry may run.
    let server_errors = Some(ServerErrors::Release);
    let route = Route { matches: "POST /orders".parse()?, server_errors, ..Route::default() };
    let layer = IdempotencyLayer::new(ledger.clone(), Rules { routes: vec![route], ..Rules::default() });
    let app = Router::new().route("/orders", post(create)).layer(layer.clone());

    let address = std::env::var("ORDERS_LISTEN").unwrap_or_else(|_| "127.0.0.1:5000".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("orders: listening on {}", listener.local_addr()?);
    let shutdown = async { drop(tokio::signal::ctrl_c().await) };
    axum::serve(listener, app).with_graceful_shutdown(shutdown).await?;
    layer.drain().await;
    Ok(ledger.close().await?)
}
