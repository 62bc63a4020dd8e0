//! A proxy for a DynamoDB server that refuses the actions that a policy does not allow, as IAM does.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use serde_json::json;

use super::http_proxy::{self, Decision, Request};
use crate::support::http::Response;

pub(super) struct PolicyProxy {
    pub(super) address: SocketAddr,
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
        let address = http_proxy::start(upstream, move |request| {
            let action = request.header("x-amz-target").rsplit('.').next().unwrap_or_default().to_owned();
            let allows = allowed.as_ref().is_none_or(|allowed| allowed.contains(&action));
            recorded.lock().unwrap().record(request, &action, allows);
            if allows { Decision::Pass } else { Decision::Response(refusal(&action)) }
        });
        Self { address, requests }
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
    fn record(&mut self, request: &Request, action: &str, allows: bool) {
        // Credential=ID/DATE/REGION/dynamodb/aws4_request
        let region = request.header("authorization").split('/').nth(2).unwrap_or_default();
        self.regions.insert(region.to_owned());
        let list = if allows { &mut self.used } else { &mut self.refused };
        list.insert(action.to_owned());
    }
}

fn refusal(action: &str) -> Response {
    let body = json!({
        "__type": "com.amazon.coral.service#AccessDeniedException",
        "Message": format!("not authorized to perform: dynamodb:{action}"),
    });
    let headers = vec![("content-type".to_owned(), "application/x-amz-json-1.0".to_owned())];
    Response { status: 400, headers, body: body.to_string().into_bytes() }
}
