//! A client that orders through the gateway and classifies the responses.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

/// What a response of the gateway means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::demo) enum Reply {
    Created,
    Replayed,
    InDoubt,
    /// The first request with this key is still running.
    InProgress,
    /// The key was used for a different order.
    KeyReused,
    /// The gateway could not connect to the API, so nothing happened.
    Unreachable,
    /// The API's response was lost.
    ResponseLost,
}

#[derive(Clone)]
pub(in crate::demo) struct Caller {
    client: Client<HttpConnector, Full<Bytes>>,
    gateway: SocketAddr,
}

impl Caller {
    pub(in crate::demo) fn new(gateway: SocketAddr) -> Self {
        Self { client: Client::builder(TokioExecutor::new()).build_http(), gateway }
    }

    /// Places an order with this idempotency key. `None` if there was no response.
    pub(in crate::demo) async fn order(&self, key: &str, body: &str) -> Option<Reply> {
        let request = Request::post(format!("http://{}/orders", self.gateway))
            .header("idempotency-key", format!("\"{key}\""))
            .body(Full::from(body.to_owned()))
            .ok()?;
        let response = self.client.request(request).await.ok()?;
        let (status, replayed) = (response.status(), response.headers().contains_key("idempotency-replayed"));
        let body = response.into_body().collect().await.ok()?.to_bytes();
        let problem = String::from_utf8_lossy(&body).into_owned();
        Some(match status {
            StatusCode::CREATED if replayed => Reply::Replayed,
            // What the API said when it was asked about the order.
            StatusCode::OK if replayed => Reply::Replayed,
            StatusCode::CREATED => Reply::Created,
            StatusCode::CONFLICT if problem.contains("/in-doubt") => Reply::InDoubt,
            StatusCode::CONFLICT => Reply::InProgress,
            StatusCode::UNPROCESSABLE_ENTITY => Reply::KeyReused,
            StatusCode::BAD_GATEWAY if problem.contains("/upstream-unreachable") => Reply::Unreachable,
            _ => Reply::ResponseLost,
        })
    }
}
