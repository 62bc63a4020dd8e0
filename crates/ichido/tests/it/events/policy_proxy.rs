//! Stands before a DynamoDB server and refuses what a policy does not allow, as IAM would.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use serde_json::json;

use super::http_proxy::{self, Request, Verdict};
use crate::support::http::Response;

pub(super) struct PolicyProxy {
    pub(super) address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    used: BTreeSet<String>,
    refused: BTreeSet<String>,
    regions: BTreeSet<String>,
}

impl PolicyProxy {
    /// Lets these actions pass, or all.
    pub(super) fn start(upstream: SocketAddr, allowed: Option<BTreeSet<String>>) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let noting = seen.clone();
        let address = http_proxy::start(upstream, move |request| {
            let action = request.header("x-amz-target").rsplit('.').next().unwrap_or_default().to_owned();
            let allows = allowed.as_ref().is_none_or(|allowed| allowed.contains(&action));
            noting.lock().unwrap().note(request, &action, allows);
            if allows { Verdict::Pass } else { Verdict::Response(refusal(&action)) }
        });
        Self { address, seen }
    }

    /// The actions that were asked for and allowed.
    pub(super) fn used(&self) -> BTreeSet<String> {
        self.seen.lock().unwrap().used.clone()
    }

    pub(super) fn refused(&self) -> BTreeSet<String> {
        self.seen.lock().unwrap().refused.clone()
    }

    /// The regions that requests were signed for.
    pub(super) fn regions(&self) -> BTreeSet<String> {
        self.seen.lock().unwrap().regions.clone()
    }
}

impl Seen {
    fn note(&mut self, request: &Request, action: &str, allows: bool) {
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
