//! A proxy in front of the meter. It forwards every request and loses some responses, but only the first response to a
//! batch: however the retries fall, an export gets through.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::Request;
use ichido_testkit::http_proxy::{Decision, HttpProxy};

use ichido_serve::Failure;

/// The first response to every third batch is lost.
const LOSE_EVERY: usize = 3;

pub(super) struct LossyProxy {
    proxy: HttpProxy,
    traffic: Arc<Mutex<Traffic>>,
}

/// What has passed through the proxy.
#[derive(Clone, Debug, Default)]
pub(super) struct Traffic {
    pub(super) requests: u32,
    pub(super) responses_lost: u32,
    /// Records in all requests, duplicates included.
    pub(super) records: u32,
    /// The idempotency keys of the batches so far.
    batches: HashSet<String>,
}

impl LossyProxy {
    pub(super) fn start(meter: SocketAddr) -> Result<Self, Failure> {
        let traffic = Arc::new(Mutex::new(Traffic::default()));
        let counted = traffic.clone();
        let decide = move |request: &Request<Bytes>| {
            counted.lock().unwrap_or_else(PoisonError::into_inner).decide(request)
        };
        let proxy = HttpProxy::start(meter, decide)
            .map_err(|error| Failure::internal(format!("proxy in front of the meter: {error}")))?;
        Ok(Self { proxy, traffic })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.proxy.address()
    }

    pub(super) fn traffic(&self) -> Traffic {
        self.traffic.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Traffic {
    fn decide(&mut self, request: &Request<Bytes>) -> Decision {
        let body: serde_json::Value = serde_json::from_slice(request.body()).unwrap_or_default();
        let records = body["records"].as_array().map_or(0, Vec::len);
        self.records += u32::try_from(records).unwrap_or_default();
        self.requests += 1;
        let key = request.headers().get("idempotency-key").and_then(|key| key.to_str().ok());
        let is_new = self.batches.insert(key.unwrap_or_default().to_owned());
        if is_new && self.batches.len().is_multiple_of(LOSE_EVERY) {
            self.responses_lost += 1;
            return Decision::LoseResponse;
        }
        Decision::Forward
    }
}
