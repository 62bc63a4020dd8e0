//! Live updates of an open page: server-sent events with texts by name, no markup.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, StatusCode, header};
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::page::View;
use super::{Console, overview};
use crate::browser::with_security_headers;

/// The most live pages at once. Further pages stay as they were loaded.
pub(super) const LIVE_PAGES_MAX: usize = 32;

struct Watcher {
    view: View,
    console: Console,
    updates: watch::Receiver<u64>,
    _permit: OwnedSemaphorePermit,
}

pub(super) async fn live(view: View, State(console): State<Console>) -> Response {
    let Ok(permit) = Arc::clone(&console.live_pages).try_acquire_owned() else {
        return with_security_headers(StatusCode::SERVICE_UNAVAILABLE.into_response());
    };
    let updates = console.sampler.subscribe();
    let watcher = Watcher { view, console, updates, _permit: permit };
    let events = stream::unfold(watcher, |mut watcher| async move {
        let stop = watcher.console.stop.clone();
        // Shutdown ends the stream instead of waiting for open pages.
        stop.run_until_cancelled(watcher.updates.changed()).await?.ok()?;
        let texts: serde_json::Map<_, _> = overview::live(&watcher.view, &watcher.console)
            .into_iter()
            .map(|(name, text)| (name, text.into()))
            .collect();
        let event = format!("data: {}\n\n", serde_json::Value::from(texts));
        Some((Ok::<_, Infallible>(Bytes::from(event)), watcher))
    });
    let mut response = with_security_headers(Body::from_stream(events).into_response());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response
}
