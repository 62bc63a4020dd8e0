//! A small orders API for the demo. It knows nothing of keys: each call makes an order, which is a line in a log. It
//! acts and then loses every so many-th answer, and it is killed in the middle.

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

/// How long an order takes.
const WORK: Duration = Duration::from_millis(3);

pub(crate) async fn run(args: &DemoOrdersArgs) -> Result<(), Failure> {
    let fail = |error: std::io::Error| Failure::internal(format!("the demo's orders API: {error}"));
    let log = File::options().create(true).append(true).open(&args.effects).map_err(fail)?;
    let listener = TcpListener::bind(args.listen).await.map_err(fail)?;
    outln!("{}", listener.local_addr().map_err(fail)?);
    let state = Arc::new(Orders { log, made: AtomicU64::new(0), loses: args.loses });
    loop {
        let (stream, _) = listener.accept().await.map_err(fail)?;
        let state = state.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| order(request, state.clone()));
            // A lost answer ends its connection; that is the point.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

struct Orders {
    log: File,
    made: AtomicU64,
    loses: u64,
}

/// An error of the service cuts the connection: the caller never learns that its order was made.
async fn order(request: Request<Incoming>, state: Arc<Orders>) -> Result<Response<Full<Bytes>>, String> {
    let body = request.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
    tokio::time::sleep(WORK).await;
    let name = String::from_utf8_lossy(&body).into_owned();
    (&state.log).write_all(format!("{name}\n").as_bytes()).map_err(|error| error.to_string())?;
    let number = state.made.fetch_add(1, Ordering::Relaxed) + 1;
    if state.loses > 0 && number.is_multiple_of(state.loses) {
        return Err("the answer is lost".to_owned());
    }
    let mut response = Response::new(Full::from(format!("{{\"order\":\"{name}\",\"number\":{number}}}")));
    *response.status_mut() = StatusCode::CREATED;
    Ok(response)
}
