//! Who orders through the gateway, and what they are told.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

/// What the gateway answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::demo) enum Told {
    Made,
    Replayed,
    InDoubt,
    /// The first one is under way.
    UnderWay,
    /// The key was used for another order.
    Reused,
    /// The API was not there, and nothing was done.
    Unreachable,
    /// The answer of the API was lost.
    Lost,
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

    /// Orders something under a key. Nothing if there was no answer.
    pub(in crate::demo) async fn ask(&self, key: &str, body: &str) -> Option<Told> {
        let request = Request::post(format!("http://{}/orders", self.gateway))
            .header("idempotency-key", format!("\"{key}\""))
            .body(Full::from(body.to_owned()))
            .ok()?;
        let response = self.client.request(request).await.ok()?;
        let (status, replayed) = (response.status(), response.headers().contains_key("idempotency-replayed"));
        let body = response.into_body().collect().await.ok()?.to_bytes();
        let problem = String::from_utf8_lossy(&body).into_owned();
        Some(match status {
            StatusCode::CREATED if replayed => Told::Replayed,
            StatusCode::CREATED => Told::Made,
            StatusCode::CONFLICT if problem.contains("/in-doubt") => Told::InDoubt,
            StatusCode::CONFLICT => Told::UnderWay,
            StatusCode::UNPROCESSABLE_ENTITY => Told::Reused,
            StatusCode::BAD_GATEWAY if problem.contains("/upstream-unreachable") => Told::Unreachable,
            _ => Told::Lost,
        })
    }
}
