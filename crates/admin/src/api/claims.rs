//! Two-phase claims: asked for, kept alive, and ended by their callers.

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{Request, StatusCode};
use ichido_core::{Claim, ClaimRequest, Holder, Key, Limits, Outcome, Scope, Settled, Token};
use ichido_ledger::{Claimed, Error, Ledger};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::ROUTE;
use super::fields::{Pairs, Place, Text, Whole, from_seconds, lease_ms};
use super::request_body::{Sent, receive, refused};
use super::responses::{Conflict, Standing};
use crate::operator::Refusal;
use crate::state::Served;
use ichido_serve::Problem;

type Answer = Result<Response, Problem>;

const HERE: Place = Place(None);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimBody<'a> {
    #[serde(borrow)]
    key: Text<'a>,
    #[serde(borrow)]
    fingerprint: Option<Text<'a>>,
    lease_ms: Option<Whole>,
    retention_seconds: Option<Whole>,
    metadata: Option<Pairs>,
    #[serde(borrow)]
    nonce: Option<Text<'a>>,
}

pub(super) async fn claim(State(served): State<Served>, request: Request<Body>) -> Answer {
    let sent = receive(&served.admin.api, request).await?;
    let request = request_of(&served.admin.api.ledger, sent.read()?)?;
    let ledger = served.admin.api.ledger.clone();
    let claimed = served.finish(async move { ledger.claim(&request).await }).await?;
    let Claimed { claim, degraded } = claimed.map_err(failed)?;
    Ok(match claim {
        Claim::Granted(grant) => Standing::granted(&grant, degraded).answer(StatusCode::CREATED),
        Claim::Done(outcome) => Standing::done(outcome, degraded).answer(StatusCode::OK),
        Claim::Held { retry_after_ms } => Conflict::in_flight(retry_after_ms, degraded).into_response(),
        Claim::InDoubt(doubt) => Conflict::in_doubt(&doubt, degraded).into_response(),
        // Claims of the API have no caller, so nobody is told that it changed.
        Claim::Mismatch | Claim::CallerChanged => Conflict::key_reused(degraded).into_response(),
    })
}

fn request_of(ledger: &Ledger, body: ClaimBody<'_>) -> Result<ClaimRequest, Problem> {
    let mut request = ledger.request(key_of(&body.key)?);
    request.fingerprint = HERE.fingerprint(body.fingerprint)?;
    request.lease_ms = lease_ms(body.lease_ms, request.lease_ms)?;
    request.retention_ms = from_seconds("retention_seconds", body.retention_seconds, request.retention_ms)?;
    request.metadata = HERE.metadata(body.metadata)?;
    request.holder = Holder::Remote;
    if let Some(Text(nonce)) = body.nonce {
        request.nonce = HERE.nonce(&nonce)?;
    }
    Ok(request)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RenewBody<'a> {
    #[serde(borrow)]
    key: Text<'a>,
    #[serde(borrow)]
    token: Text<'a>,
    lease_ms: Option<Whole>,
}

pub(super) async fn renew(State(served): State<Served>, request: Request<Body>) -> Answer {
    let sent = receive(&served.admin.api, request).await?;
    let body: RenewBody<'_> = sent.read()?;
    let (key, token) = whose(&body.key, &body.token)?;
    let ledger = served.admin.api.ledger.clone();
    let lease_ms = lease_ms(body.lease_ms, ledger.settings().lease_ms)?;
    let renewed = served.finish(async move { ledger.renew(&key, token, lease_ms).await }).await?;
    settled(renewed, &Standing::renewed(lease_ms))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CompleteBody<'a> {
    #[serde(borrow)]
    key: Text<'a>,
    #[serde(borrow)]
    token: Text<'a>,
    #[serde(borrow)]
    outcome: &'a RawValue,
}

pub(super) async fn complete(State(served): State<Served>, request: Request<Body>) -> Answer {
    let sent = receive(&served.admin.api, request).await?;
    let body: CompleteBody<'_> = sent.read()?;
    let (key, token) = whose(&body.key, &body.token)?;
    let outcome = kept(&sent, body.outcome)?;
    let ledger = served.admin.api.ledger.clone();
    let completed = served.finish(async move { ledger.complete(&key, token, outcome).await }).await?;
    settled(completed, &Standing::of("done"))
}

/// The outcome, byte by byte as it was written, without a copy where it is most of the body.
fn kept(sent: &Sent, outcome: &RawValue) -> Result<Outcome, Problem> {
    let (size, most) = (outcome.get().len(), Limits::STANDARD.outcome_bytes);
    if size > most {
        return Err(refused("outcome", &format!("is {size} bytes; at most {most} are allowed")));
    }
    let bytes = match size > sent.bytes.len() / 2 {
        true => sent.bytes.slice_ref(outcome.get().as_bytes()),
        false => Bytes::copy_from_slice(outcome.get().as_bytes()),
    };
    Ok(Outcome::Kept(bytes))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReleaseBody<'a> {
    #[serde(borrow)]
    key: Text<'a>,
    #[serde(borrow)]
    token: Text<'a>,
}

pub(super) async fn release(State(served): State<Served>, request: Request<Body>) -> Answer {
    let sent = receive(&served.admin.api, request).await?;
    let body: ReleaseBody<'_> = sent.read()?;
    let (key, token) = whose(&body.key, &body.token)?;
    let ledger = served.admin.api.ledger.clone();
    let released = served.finish(async move { ledger.release(&key, token).await }).await?;
    settled(released, &Standing::of("released"))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DoubtBody<'a> {
    #[serde(borrow)]
    key: Text<'a>,
    #[serde(borrow)]
    token: Text<'a>,
    #[serde(borrow)]
    reason: Text<'a>,
}

pub(super) async fn doubt(State(served): State<Served>, request: Request<Body>) -> Answer {
    let sent = receive(&served.admin.api, request).await?;
    let body: DoubtBody<'_> = sent.read()?;
    let (key, token) = whose(&body.key, &body.token)?;
    HERE.within("reason", &body.reason.0, Limits::STANDARD.reason_bytes)?;
    let (ledger, reason) = (served.admin.api.ledger.clone(), body.reason.0.into_owned());
    let doubted = served.finish(async move { ledger.declare_in_doubt(&key, token, reason).await }).await?;
    settled(doubted, &Standing::of("in-doubt"))
}

fn key_of(text: &Text<'_>) -> Result<Key, Problem> {
    Key::new(Scope::new("", ROUTE), &*text.0).map_err(|error| HERE.limit("key", &error))
}

fn whose(key: &Text<'_>, token: &Text<'_>) -> Result<(Key, Token), Problem> {
    let token = token.0.parse().map_err(|_| HERE.refuses("token", "must be 32 hexadecimal digits"))?;
    Ok((key_of(key)?, token))
}

fn settled(settled: ichido_ledger::Result<Settled>, applied: &Standing) -> Answer {
    Ok(match settled.map_err(failed)? {
        Settled::Applied => applied.answer(StatusCode::OK),
        Settled::Stale(now) => Conflict::stale(now).into_response(),
    })
}

fn failed(error: Error) -> Problem {
    Refusal::from(error).into()
}
