//! Asks the upstream whether an effect in doubt happened.
//!
//! A question is a `GET` of its own, on a connection of its own: it shares nothing with the requests that are forwarded, so
//! it can neither delay them nor be replayed. Redirects are not followed: another place may know nothing of the effect.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::{CONNECTION, HOST, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderValue, Request, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use ichido_core::{Key, Scope, error_chain};
use ichido_http::{AskService, Asked, NotAsked, Question, Rules, Schedule};
use tokio::sync::watch;

use crate::server::Generation;
use crate::settings::{Settings, Upstream};

const AGENT: HeaderValue = HeaderValue::from_static(concat!("ichido/", env!("CARGO_PKG_VERSION")));

/// Asks an upstream that never changes.
#[derive(Debug)]
pub struct UpstreamQuestions {
    upstream: Upstream,
    rules: Rules,
}

impl UpstreamQuestions {
    /// Asks as these settings say.
    pub fn new(settings: Settings) -> Self {
        Self { upstream: settings.upstream, rules: settings.rules }
    }
}

impl AskService for UpstreamQuestions {
    fn schedule(&self, scope: &Scope) -> Result<Schedule, NotAsked> {
        self.rules.question(scope).map(|question| question.schedule)
    }

    fn is_automatic(&self) -> bool {
        self.rules.asks_by_itself()
    }

    fn ask<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Asked, NotAsked>> {
        Box::pin(ask(&self.upstream, &self.rules, key))
    }
}

/// Asks as the settings in force say.
#[derive(Clone, Debug)]
pub struct ReloadedQuestions(pub(crate) watch::Receiver<Arc<Generation>>);

impl AskService for ReloadedQuestions {
    fn schedule(&self, scope: &Scope) -> Result<Schedule, NotAsked> {
        self.0.borrow().layer.rules().question(scope).map(|question| question.schedule)
    }

    fn is_automatic(&self) -> bool {
        self.0.borrow().layer.rules().asks_by_itself()
    }

    fn ask<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Asked, NotAsked>> {
        let generation = self.0.borrow().clone();
        Box::pin(async move { ask(&generation.upstream, generation.layer.rules(), key).await })
    }
}

async fn ask(upstream: &Upstream, rules: &Rules, key: &Key) -> Result<Asked, NotAsked> {
    let question = rules.question(key.scope())?;
    let path = question.path(key)?;
    let asking = exchange(upstream, question, path, rules.answer_max_bytes);
    Ok(tokio::time::timeout(question.timeout, asking).await.unwrap_or_else(|_| {
        Asked::undecided(format!("the service did not answer within {} ms", question.timeout.as_millis()))
    }))
}

/// The reasons contain neither the key nor a header.
async fn exchange(upstream: &Upstream, question: &Question, path: PathAndQuery, bytes_max: usize) -> Asked {
    let request = match request(upstream, question, &path) {
        Ok(request) => request,
        Err(error) => return Asked::undecided(format!("cannot ask: {error}")),
    };
    let response = match client(upstream).request(request).await {
        Ok(response) => response,
        Err(error) if error.is_connect() => {
            return Asked::undecided(format!("the service cannot be reached: {}", error_chain(&error)));
        }
        Err(error) => return Asked::undecided(format!("the answer was lost: {}", error_chain(&error))),
    };
    let (head, body) = response.into_parts();
    match Limited::new(body, bytes_max).collect().await {
        Ok(body) => question.judge(head, &body.to_bytes()),
        Err(error) => {
            let why =
                format!("{}, and its body cannot be used: {}", head.status.as_u16(), error_chain(&*error));
            Asked { status: Some(head.status), ..Asked::undecided(why) }
        }
    }
}

fn request(
    upstream: &Upstream,
    question: &Question,
    path: &PathAndQuery,
) -> Result<Request<Empty<Bytes>>, http::Error> {
    let uri = Uri::builder().scheme(upstream.scheme.clone()).authority(upstream.authority.clone());
    let uri = uri.path_and_query(format!("{}{path}", upstream.prefix)).build()?;
    let mut request = Request::get(uri).header(USER_AGENT, AGENT).header(HOST, upstream.host());
    request = request.header(CONNECTION, HeaderValue::from_static("close"));
    let mut request = request.body(Empty::new())?;
    for (name, value) in &question.headers {
        request.headers_mut().insert(name, value.clone());
    }
    Ok(request)
}

fn client(upstream: &Upstream) -> Client<HttpsConnector<HttpConnector>, Empty<Bytes>> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    let connector = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config((*upstream.tls).clone())
        .https_or_http()
        .enable_http1()
        .wrap_connector(tcp);
    // A connection that the service is about to close must not look like an answer that was lost.
    Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector)
}
