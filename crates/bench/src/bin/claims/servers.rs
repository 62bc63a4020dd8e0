//! What `ichido claims` is compared with: the same server and router with a single route, which parses the request
//! and replies like a check, or also writes and syncs something first. It runs in its own process, which exits with
//! the benchmark.

use std::borrow::Cow;
use std::io::Read;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use ichido_bench::log::{self, Log};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

/// Serves until standard input closes, which happens when the parent process exits.
pub(crate) fn run(role: &[String]) {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let role: Vec<&str> = role.iter().map(String::as_str).collect();
    match role[..] {
        ["parse"] => block_on(parse(None)),
        ["parse", log] => block_on(parse(Some(Log::start(log.as_ref())))),
        _ => panic!("unknown role {role:?}"),
    }
}

fn block_on(serving: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(serving);
}

async fn parse(log: Option<Log>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("{}", listener.local_addr().unwrap().port());
    let router = Router::new().route("/v1/events/check", post(move |body| reply(log.clone(), body)));
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let _ = stream.set_nodelay(true);
        let router = router.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request: http::Request<Incoming>| {
                use tower_service::Service;
                router.clone().call(request)
            });
            let _ = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(Duration::from_secs(10))
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Batch<'a> {
    #[serde(borrow)]
    events: Vec<Event<'a>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Event<'a> {
    #[serde(borrow)]
    key: Cow<'a, str>,
}

#[derive(Serialize)]
struct Results<'a> {
    results: Vec<Checked<'a>>,
}

#[derive(Serialize)]
struct Checked<'a> {
    key: &'a str,
    is_new: bool,
    degraded: bool,
}

async fn reply(log: Option<Log>, body: Bytes) -> Response {
    let Ok(batch) = serde_json::from_slice::<Batch<'_>>(&body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    if let Some(log) = log {
        log.commit(&log::MARK).await;
    }
    let checked = batch.events.iter().map(|event| Checked { key: &event.key, is_new: true, degraded: false });
    let results = Results { results: checked.collect() };
    axum::Json(results).into_response()
}
