//! Figures as they change, for a page that is open: server-sent events with texts by name, no markup.

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
use crate::browser::secured;

/// Pages that may be live at once; the next ones stay as they were loaded.
pub(super) const MOST: usize = 32;

struct Watcher {
    view: View,
    console: Console,
    turns: watch::Receiver<u64>,
    _place: OwnedSemaphorePermit,
}

pub(super) async fn live(view: View, State(console): State<Console>) -> Response {
    let Ok(place) = Arc::clone(&console.watchers).try_acquire_owned() else {
        return secured(StatusCode::SERVICE_UNAVAILABLE.into_response());
    };
    let turns = console.sampler.turns();
    let watcher = Watcher { view, console, turns, _place: place };
    let events = stream::unfold(watcher, |mut watcher| async move {
        let stop = watcher.console.stop.clone();
        // The end of the process ends the stream: it waits for nobody who looks.
        stop.run_until_cancelled(watcher.turns.changed()).await?.ok()?;
        let texts: serde_json::Map<_, _> = overview::live(&watcher.view, &watcher.console)
            .into_iter()
            .map(|(name, text)| (name, text.into()))
            .collect();
        let event = format!("data: {}\n\n", serde_json::Value::from(texts));
        Some((Ok::<_, Infallible>(Bytes::from(event)), watcher))
    });
    let mut response = secured(Body::from_stream(events).into_response());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response
}
