//! A small orders API. It knows nothing about idempotency keys: each request creates an order, which is a line in a log.
//! It creates the order first and may then lose the response, as a crash or a broken connection would.
//!
//! `GET /orders/NAME` says whether an order exists, except that the search fails for every fourth order.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use ichido_testkit::http_server::{HttpServer, Reply};

use super::effect_log::EffectLog;
use super::server_process::LISTENING;
use crate::args::DemoOrdersArgs;
use ichido_serve::Failure;

/// How long it takes to create an order.
const WORK: Duration = Duration::from_millis(3);

/// Serves until the process is killed.
pub(crate) async fn run(args: &DemoOrdersArgs) -> Result<(), Failure> {
    let fail = |error: std::io::Error| Failure::internal(format!("orders API: {error}"));
    let log = File::options().create(true).append(true).open(&args.effects).map_err(fail)?;
    let path = args.effects.clone();
    let orders = Arc::new(Orders { log, path, created: AtomicU64::new(0), lose_every: args.lose_every });
    let server = HttpServer::start_at(args.listen, move |request| handle(request, orders.clone()));
    let server = server.map_err(fail)?;
    errln!("{LISTENING}{}", server.address());
    std::future::pending().await
}

struct Orders {
    log: File,
    path: PathBuf,
    created: AtomicU64,
    lose_every: u64,
}

async fn handle(request: Request<Bytes>, orders: Arc<Orders>) -> Reply {
    match request.uri().path().strip_prefix("/orders/").filter(|_| request.method() == Method::GET) {
        Some(name) => find_order(name, &orders),
        None => create_order(request, orders).await,
    }
}

fn find_order(name: &str, orders: &Orders) -> Reply {
    let name = name.replace("%2D", "-");
    match EffectLog::read(&orders.path) {
        _ if is_search_broken(&name) => Reply::status(500, "the search is broken"),
        Err(_) => Reply::Disconnect,
        Ok(log) if log.count(&name) > 0 => Reply::status(200, format!("{{\"order\":\"{name}\"}}")),
        Ok(_) => Reply::status(404, "no such order"),
    }
}

/// Whether the API cannot say if this order exists.
pub(super) fn is_search_broken(name: &str) -> bool {
    name.bytes().next_back().is_some_and(|digit| digit % 4 == 3)
}

/// Without a response, the client never learns that its order was created.
async fn create_order(request: Request<Bytes>, orders: Arc<Orders>) -> Reply {
    tokio::time::sleep(WORK).await;
    let name = String::from_utf8_lossy(request.body());
    if (&orders.log).write_all(format!("{name}\n").as_bytes()).is_err() {
        return Reply::Disconnect;
    }
    let number = orders.created.fetch_add(1, Ordering::Relaxed) + 1;
    if orders.lose_every > 0 && number.is_multiple_of(orders.lose_every) {
        return Reply::Disconnect;
    }
    Reply::status(201, format!("{{\"order\":\"{name}\",\"number\":{number}}}"))
}
