//! A small orders API. It knows nothing about idempotency keys: each request creates an order, which is a line in a log.
//! It creates the order first and may then lose the response, as a crash or a broken connection would.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use ichido_testkit::http_server::{HttpServer, Reply};

use super::server_process::LISTENING;
use crate::args::DemoOrdersArgs;
use ichido_serve::Failure;

/// How long it takes to create an order.
const WORK: Duration = Duration::from_millis(3);

/// Serves until the process is killed.
pub(crate) async fn run(args: &DemoOrdersArgs) -> Result<(), Failure> {
    let fail = |error: std::io::Error| Failure::internal(format!("orders API: {error}"));
    let log = File::options().create(true).append(true).open(&args.effects).map_err(fail)?;
    let orders = Arc::new(Orders { log, created: AtomicU64::new(0), lose_every: args.lose_every });
    let server = HttpServer::start_at(args.listen, move |request| create_order(request, orders.clone()));
    let server = server.map_err(fail)?;
    errln!("{LISTENING}{}", server.address());
    std::future::pending().await
}

struct Orders {
    log: File,
    created: AtomicU64,
    lose_every: u64,
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
