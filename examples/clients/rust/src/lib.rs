//! A small client for ichido's claim API.
//!
//! [`Ichido::check`] asks whether events are new, in one step; a crash after it loses the event. [`Ichido::once`] runs
//! work under a claim; a crash leaves the claim in doubt, where an operator finds it.

mod transport;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::transport::Transport;

/// A claim API.
#[derive(Clone, Debug)]
pub struct Ichido(Transport);

/// An event to check.
#[derive(Clone, Debug, Serialize)]
pub struct Event {
    /// Identifies the event.
    pub key: String,
    /// Stored with the mark, for operators and other consumers.
    pub metadata: BTreeMap<String, String>,
}

/// The result of a check.
#[derive(Clone, Debug, Deserialize)]
pub struct Checked {
    /// Identifies the event.
    pub key: String,
    /// If true, handle it; otherwise it was handled before.
    pub is_new: bool,
    /// The ledger is unavailable and the instance answered from its own memory; another may call the same event new.
    pub degraded: bool,
}

/// How work is claimed.
#[derive(Clone, Debug)]
pub struct Options {
    /// Identifies the request, so that a key used for something else is detected.
    pub fingerprint: Option<String>,
    /// How long the claim holds without renewal.
    pub lease: Duration,
    /// How long to wait for the outcome of another holder.
    pub wait: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { fingerprint: None, lease: Duration::from_secs(30), wait: Duration::from_secs(60) }
    }
}

/// How your work can fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It is certain that nothing happened. The key is released.
    NothingHappened(String),
    /// It may have happened: a timeout, a lost connection.
    Unknown(String),
}

/// Why there is no outcome.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The work reported it. A later retry may succeed.
    #[error("nothing happened: {0}")]
    NothingHappened(String),
    /// Do not retry: tell an operator, who resolves the claim.
    #[error("nobody knows whether it happened")]
    InDoubt,
    /// A bug in how keys are generated.
    #[error("the key was used for something else before")]
    KeyReused,
    /// Try again later.
    #[error("another holder is running it and did not finish in time")]
    StillRunning,
    /// The work may have been done twice.
    #[error("another holder took over the claim during the work")]
    Superseded,
    /// Try again later, with the same key.
    #[error("the claim API did not respond in time")]
    Unavailable,
    /// A retry will not help.
    #[error("the request is wrong: {0}")]
    Refused(String),
}

impl Ichido {
    /// The API at this address, such as `http://127.0.0.1:8070`, and its token if it requires one.
    pub fn new(url: &str, token: Option<&str>) -> Self {
        Self(Transport::new(url, token))
    }

    /// Checks events and returns a result for each, in order.
    pub async fn check(&self, events: &[Event]) -> Result<Vec<Checked>, Error> {
        let with_nonce =
            |event: &Event| json!({ "key": event.key, "metadata": event.metadata, "nonce": nonce() });
        let events: Vec<Value> = events.iter().map(with_nonce).collect();
        let reply = self.0.call("/v1/events/check", &json!({ "events": events })).await?;
        match reply.status {
            200 => serde_json::from_value(reply.body["results"].clone()).map_err(|_| Error::Unavailable),
            _ => Err(reply.refusal()),
        }
    }

    /// Runs `work` unless it was done before, and returns the first outcome in either case.
    ///
    /// # Cancel safety
    /// Dropping the future stops the renewal: the lease lapses, and the claim is in doubt.
    pub async fn once(
        &self,
        key: &str,
        options: &Options,
        work: impl AsyncFnOnce() -> Result<Value, Failure>,
    ) -> Result<Value, Error> {
        let lease_ms = u64::try_from(options.lease.as_millis()).unwrap_or(u64::MAX);
        let mut claim = json!({ "key": key, "nonce": nonce(), "lease_ms": lease_ms });
        if let Some(fingerprint) = &options.fingerprint {
            claim["fingerprint"] = json!(fingerprint);
        }
        let deadline = Instant::now() + options.wait;
        loop {
            let reply = self.0.call("/v1/claims", &claim).await?;
            match (reply.status, reply.problem()) {
                (201, _) => {
                    let held = Held { transport: &self.0, key, token: &reply.body["token"], lease_ms };
                    // The first response was lost, and part of the lease with it: make sure that we still hold the claim.
                    if reply.body.get("left_ms").is_some() {
                        held.settle("renew", json!({ "lease_ms": lease_ms })).await?;
                    }
                    return held.run(work).await;
                }
                (200, _) => return Ok(reply.body["outcome"].clone()),
                (_, "in-doubt") => return Err(Error::InDoubt),
                (_, "key-reused") => return Err(Error::KeyReused),
                (_, "in-flight") => {}
                _ => return Err(reply.refusal()),
            }
            let pause = reply.retry_after.unwrap_or(Duration::from_secs(1));
            if Instant::now() + pause > deadline {
                return Err(Error::StillRunning);
            }
            sleep(pause).await;
        }
    }
}

/// A claim that we hold.
struct Held<'a> {
    transport: &'a Transport,
    key: &'a str,
    token: &'a Value,
    lease_ms: u64,
}

impl Held<'_> {
    async fn run(self, work: impl AsyncFnOnce() -> Result<Value, Failure>) -> Result<Value, Error> {
        let work_and_settle = async {
            match work().await {
                Ok(outcome) => {
                    self.settle("complete", json!({ "outcome": outcome })).await?;
                    Ok(outcome)
                }
                Err(Failure::NothingHappened(why)) => {
                    self.settle("release", json!({})).await?;
                    Err(Error::NothingHappened(why))
                }
                Err(Failure::Unknown(why)) => {
                    self.settle("doubt", json!({ "reason": why })).await?;
                    Err(Error::InDoubt)
                }
            }
        };
        tokio::select! {
            result = work_and_settle => result,
            never = self.renew() => match never {},
        }
    }

    /// Renews every third of the lease. If the process crashes, the lease lapses and the claim is in doubt.
    async fn renew(&self) -> Infallible {
        let body = json!({ "key": self.key, "token": self.token, "lease_ms": self.lease_ms });
        loop {
            sleep(Duration::from_millis(self.lease_ms / 3)).await;
            let _ = self.transport.try_once("/v1/claims/renew", &body).await;
        }
    }

    async fn settle(&self, action: &str, mut body: Value) -> Result<(), Error> {
        body["key"] = json!(self.key);
        body["token"] = self.token.clone();
        let reply = self.transport.call(&format!("/v1/claims/{action}"), &body).await?;
        match reply.status {
            200 => Ok(()),
            // A release that is retried after a lost reply finds the key absent, as intended.
            409 if action == "release" && reply.body["state"] == "absent" => Ok(()),
            409 => Err(Error::Superseded),
            _ => Err(reply.refusal()),
        }
    }
}

/// Identifies one call, so that a retry after a lost reply gets the first result.
fn nonce() -> String {
    format!("{:032x}", rand::random::<u128>())
}
