//! A small client of ichido's claim API.
//!
//! Two forms. [`Ichido::check`] asks whether events are new, in one step; a crash after it loses the event.
//! [`Ichido::once`] runs a piece of work under a claim; a crash leaves the claim in doubt, where a person finds it.

mod wire;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::wire::Wire;

/// A claim API, and the way to it.
#[derive(Clone, Debug)]
pub struct Ichido(Wire);

/// An event to ask about.
#[derive(Clone, Debug, Serialize)]
pub struct Event {
    /// What names it.
    pub key: String,
    /// Kept beside the mark, for people and for other consumers.
    pub metadata: BTreeMap<String, String>,
}

/// What is known of an event.
#[derive(Clone, Debug, Deserialize)]
pub struct Checked {
    /// What names it.
    pub key: String,
    /// Handle it; else it was handled before.
    pub is_new: bool,
    /// The ledger is out, and this instance answered from its own memory; another may call the same event new.
    pub degraded: bool,
}

/// How a piece of work is claimed.
#[derive(Clone, Debug)]
pub struct Options {
    /// Says what was asked for, so that a key which is used for something else is noticed.
    pub fingerprint: Option<String>,
    /// How long the claim holds without renewal.
    pub lease: Duration,
    /// How long to wait for another holder's outcome.
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
    /// It is certain that nothing happened. The key is free again.
    NothingHappened(String),
    /// It may have happened: a timeout, a cut connection.
    Unknown(String),
}

/// Why there is no outcome.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Your work said so; ask again when it may go better.
    #[error("nothing happened: {0}")]
    NothingHappened(String),
    /// Do not do it again: tell a person, who looks and resolves the claim.
    #[error("nobody knows whether it happened")]
    InDoubt,
    /// A bug in how keys are made.
    #[error("the key was used for something else before")]
    KeyReused,
    /// Ask again later.
    #[error("another holder runs it, and did not finish while we waited")]
    StillRunning,
    /// What we did may have been done by another as well.
    #[error("the claim was taken from us while we worked")]
    Superseded,
    /// Ask again later, with the same key.
    #[error("no answer for as long as we had patience")]
    Unavailable,
    /// Asking again will not help.
    #[error("the request is wrong: {0}")]
    Refused(String),
}

impl Ichido {
    /// The API at this address, like `http://127.0.0.1:8070`; the token, if it demands one.
    pub fn new(url: &str, token: Option<&str>) -> Self {
        Self(Wire::new(url, token))
    }

    /// Asks about events: what is known of each, in order.
    pub async fn check(&self, events: &[Event]) -> Result<Vec<Checked>, Error> {
        let named = |event: &Event| json!({ "key": event.key, "metadata": event.metadata, "nonce": nonce() });
        let events: Vec<Value> = events.iter().map(named).collect();
        let answer = self.0.ask("/v1/events/check", &json!({ "events": events })).await?;
        match answer.status {
            200 => serde_json::from_value(answer.body["results"].clone()).map_err(|_| Error::Unavailable),
            _ => Err(answer.refusal()),
        }
    }

    /// Runs `work` unless it was done before, and returns its outcome, the first one in either case.
    ///
    /// # Cancel safety
    /// Dropping the future ends the renewal: the lease lapses, and the claim is in doubt.
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
            let answer = self.0.ask("/v1/claims", &claim).await?;
            match (answer.status, answer.word()) {
                (201, _) => {
                    let held = Held { wire: &self.0, key, token: &answer.body["token"], lease_ms };
                    // The first answer got lost, and part of the lease with it: make sure that we still hold the claim.
                    if answer.body.get("left_ms").is_some() {
                        held.settle("renew", json!({ "lease_ms": lease_ms })).await?;
                    }
                    return held.run(work).await;
                }
                (200, _) => return Ok(answer.body["outcome"].clone()),
                (_, "in-doubt") => return Err(Error::InDoubt),
                (_, "key-reused") => return Err(Error::KeyReused),
                (_, "in-flight") => {}
                _ => return Err(answer.refusal()),
            }
            let pause = answer.retry_after.unwrap_or(Duration::from_secs(1));
            if Instant::now() + pause > deadline {
                return Err(Error::StillRunning);
            }
            sleep(pause).await;
        }
    }
}

/// A claim that was granted to us.
struct Held<'a> {
    wire: &'a Wire,
    key: &'a str,
    token: &'a Value,
    lease_ms: u64,
}

impl Held<'_> {
    async fn run(self, work: impl AsyncFnOnce() -> Result<Value, Failure>) -> Result<Value, Error> {
        let to_the_end = async {
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
            end = to_the_end => end,
            never = self.renew() => match never {},
        }
    }

    /// Says every third of the lease that we are still at work. If we die, nobody does, and the claim is in doubt.
    async fn renew(&self) -> Infallible {
        let body = json!({ "key": self.key, "token": self.token, "lease_ms": self.lease_ms });
        loop {
            sleep(Duration::from_millis(self.lease_ms / 3)).await;
            let _ = self.wire.try_once("/v1/claims/renew", &body).await;
        }
    }

    async fn settle(&self, word: &str, mut body: Value) -> Result<(), Error> {
        body["key"] = json!(self.key);
        body["token"] = self.token.clone();
        let answer = self.wire.ask(&format!("/v1/claims/{word}"), &body).await?;
        match answer.status {
            200 => Ok(()),
            // A release that is asked again after a lost reply finds nothing, and that is what was wanted.
            409 if word == "release" && answer.body["state"] == "absent" => Ok(()),
            409 => Err(Error::Superseded),
            _ => Err(answer.refusal()),
        }
    }
}

/// Names one call, so that a repeat after a lost reply gets the first answer.
fn nonce() -> String {
    format!("{:032x}", rand::random::<u128>())
}
