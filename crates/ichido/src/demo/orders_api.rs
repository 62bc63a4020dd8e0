//! A small orders API. It knows nothing about idempotency keys: each request creates an order, which is a line in a log.
//! It creates the order first and may then lose the response, as a crash or a broken connection would.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use crate::args::DemoOrdersArgs;
use ichido_serve::Failure;

/// How long it takes to create an order.
const WORK: Duration = Duration::from_millis(3);

pub(crate) async fn run(args: &DemoOrdersArgs) -> Result<(), Failure> {
    let fail = |error: std::io::Error| Failure::internal(format!("orders API: {error}"));
    let log = File::options().create(true).append(true).open(&args.effects).map_err(fail)?;
    let listener = TcpListener::bind(args.listen).await.map_err(fail)?;
    outln!("{}", listener.local_addr().map_err(fail)?);
    let orders = Arc::new(Orders { log, created: AtomicU64::new(0), lose_every: args.lose_every });
    loop {
        let (stream, _) = listener.accept().await.map_err(fail)?;
        let orders = orders.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| create_order(request, orders.clone()));
            // Losing a response closes the connection with an error, on purpose.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

struct Orders {
    log: File,
    created: AtomicU64,
    lose_every: u64,
}

/// An error closes the connection: the client never learns that its order was created.
async fn create_order(
    request: Request<Incoming>,
    orders: Arc<Orders>,
) -> Result<Response<Full<Bytes>>, String> {
    let body = request.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
    tokio::time::sleep(WORK).await;
    let name = String::from_utf8_lossy(&body).into_owned();
    (&orders.log).write_all(format!("{name}\n").as_bytes()).map_err(|error| error.to_string())?;
    let number = orders.created.fetch_add(1, Ordering::Relaxed) + 1;
    if orders.lose_every > 0 && number.is_multiple_of(orders.lose_every) {
        return Err("response lost".to_owned());
    }
    let mut response = Response::new(Full::from(format!("{{\"order\":\"{name}\",\"number\":{number}}}")));
    *response.status_mut() = StatusCode::CREATED;
    Ok(response)
}
