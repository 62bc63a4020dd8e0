//! What the gateway is compared with. Each runs in its own process, which exits with the benchmark.

use std::convert::Infallible;
use std::future::Future;
use std::io::Read;
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use bytes::Bytes;
use http::uri::{Authority, Scheme};
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use ichido_core::{Entropy, SystemEntropy};
use ichido_http::{IdempotencyLayer, Rules};
use tokio::net::TcpListener;

use crate::log::{self, Log};

static RESPONSE_BODY: [u8; 200] = [b'y'; 200];

/// Serves until standard input closes, which happens when the parent process exits.
pub fn run(role: &[String]) {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let role: Vec<&str> = role.iter().map(String::as_str).collect();
    let many = || tokio::runtime::Builder::new_multi_thread();
    match role[..] {
        // One thread: the others lack whatever processor time the upstream takes.
        ["service"] => block_on(
            tokio::runtime::Builder::new_current_thread(),
            service(Bytes::from_static(&RESPONSE_BODY)),
        ),
        ["service", bytes] => {
            let body = json_body(bytes.parse().unwrap());
            block_on(tokio::runtime::Builder::new_current_thread(), service(body));
        }
        ["proxy", upstream] => block_on(many(), proxy(upstream.parse().unwrap(), None)),
        ["proxy", upstream, log] => {
            block_on(many(), proxy(upstream.parse().unwrap(), Some(Log::start(log.as_ref()))));
        }
        ["axum"] => block_on(many(), axum_service(false)),
        ["axum-layer"] => block_on(many(), axum_service(true)),
        _ => panic!("unknown role {role:?}"),
    }
}

fn block_on(mut runtime: tokio::runtime::Builder, serving: impl Future<Output = ()>) {
    runtime.enable_all().build().unwrap().block_on(serving);
}

async fn listen() -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("{}", listener.local_addr().unwrap().port());
    listener
}

async fn service(body: Bytes) {
    let listener = listen().await;
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let _ = stream.set_nodelay(true);
        let body = body.clone();
        tokio::spawn(async move {
            let respond = service_fn(async |request: Request<Incoming>| {
                let _ = request.into_body().collect().await;
                Ok::<_, Infallible>(Response::new(Full::new(body.clone())))
            });
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), respond)
                .await;
        });
    }
}

/// A body that compresses about as well as JSON does.
fn json_body(bytes: usize) -> Bytes {
    let orders = std::iter::repeat_with(|| {
        format!("{{\"id\":\"{:032x}\",\"status\":\"paid\"}},", u128::from_be_bytes(SystemEntropy.draw()))
    });
    orders.flat_map(String::into_bytes).take(bytes).collect()
}

/// A proxy with the same server and client settings as the gateway, and nothing else. With a log, it writes to it
/// before it forwards a request and before it responds.
async fn proxy(upstream: Authority, log: Option<Log>) {
    let mut tcp = HttpConnector::new();
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(Duration::from_secs(5)));
    let client: Client<_, Incoming> = Client::builder(TokioExecutor::new())
        .pool_idle_timeout(Duration::from_secs(3))
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        .build(tcp);
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_secs(30))
        .max_buf_size(64 * 1024)
        .writev(false);
    let listener = listen().await;
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let _ = stream.set_nodelay(true);
        let (client, upstream, builder) = (client.clone(), upstream.clone(), builder.clone());
        let log = log.clone();
        tokio::spawn(async move {
            let pass = service_fn(move |mut request: Request<Incoming>| {
                let path = request.uri().path_and_query().cloned().unwrap();
                let uri = Uri::builder().scheme(Scheme::HTTP).authority(upstream.clone());
                *request.uri_mut() = uri.path_and_query(path).build().unwrap();
                let (client, log) = (client.clone(), log.clone());
                async move {
                    let Some(log) = log else { return client.request(request).await };
                    log.commit(&log::CLAIM).await;
                    let response = client.request(request).await?;
                    log.commit(&log::OUTCOME).await;
                    Ok(response)
                }
            });
            let _ = builder.serve_connection_with_upgrades(TokioIo::new(stream), pass).await;
        });
    }
}

async fn axum_service(with_layer: bool) {
    let router = Router::new().route("/orders", post(async |_: Bytes| Bytes::from_static(&RESPONSE_BODY)));
    let listener = listen().await;
    if with_layer {
        let ledger = ichido_ledger::open("memory:", ichido_ledger::Settings::default()).await.unwrap();
        let router = router.layer(IdempotencyLayer::new(ledger, Rules::default()));
        axum::serve(listener, router).await.unwrap();
    } else {
        axum::serve(listener, router).await.unwrap();
    }
}
