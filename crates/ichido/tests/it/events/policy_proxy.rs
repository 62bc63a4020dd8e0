//! A proxy for a DynamoDB server that refuses the actions that a policy does not allow, as IAM does.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use ichido_testkit::http_proxy::{Decision, HttpProxy};
use ichido_testkit::http_server::{Body, response};
use serde_json::json;

pub(super) struct PolicyProxy {
    proxy: HttpProxy,
    requests: Arc<Mutex<Requests>>,
}

#[derive(Default)]
struct Requests {
    used: BTreeSet<String>,
    refused: BTreeSet<String>,
    regions: BTreeSet<String>,
}

impl PolicyProxy {
    /// Forwards only the allowed actions, or all of them if `allowed` is `None`.
    pub(super) fn start(upstream: SocketAddr, allowed: Option<BTreeSet<String>>) -> Self {
        let requests = Arc::new(Mutex::new(Requests::default()));
        let recorded = requests.clone();
        let proxy = HttpProxy::start(upstream, move |request| {
            let action = header(request, "x-amz-target").rsplit('.').next().unwrap_or_default().to_owned();
            let allows = allowed.as_ref().is_none_or(|allowed| allowed.contains(&action));
            recorded.lock().unwrap().record(request, &action, allows);
            if allows { Decision::Forward } else { Decision::Respond(refusal(&action)) }
        });
        Self { proxy: proxy.unwrap(), requests }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.proxy.address()
    }

    /// The actions that were requested and allowed.
    pub(super) fn used(&self) -> BTreeSet<String> {
        self.requests.lock().unwrap().used.clone()
    }

    pub(super) fn refused(&self) -> BTreeSet<String> {
        self.requests.lock().unwrap().refused.clone()
    }

    /// The regions that requests were signed for.
    pub(super) fn regions(&self) -> BTreeSet<String> {
        self.requests.lock().unwrap().regions.clone()
    }
}

impl Requests {
    fn record(&mut self, request: &Request<Bytes>, action: &str, allows: bool) {
        // Credential=ID/DATE/REGION/dynamodb/aws4_request
        let region = header(request, "authorization").split('/').nth(2).unwrap_or_default();
        self.regions.insert(region.to_owned());
        let list = if allows { &mut self.used } else { &mut self.refused };
        list.insert(action.to_owned());
    }
}

/// The value of a header, or an empty string.
fn header<'a>(request: &'a Request<Bytes>, name: &str) -> &'a str {
    request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn refusal(action: &str) -> Response<Body> {
    let body = json!({
        "__type": "com.amazon.coral.service#AccessDeniedException",
        "Message": format!("not authorized to perform: dynamodb:{action}"),
    });
    let mut refusal = response(400, body.to_string());
    refusal.headers_mut().insert("content-type", HeaderValue::from_static("application/x-amz-json-1.0"));
    refusal
}
