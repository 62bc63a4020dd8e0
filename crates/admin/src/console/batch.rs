//! One batch, and sending again: one or all that lie in a place.

use std::time::Duration;

use axum::extract::{Query, State};
use axum::response::Response;
use http::StatusCode;
use ichido_delivery::sender::Selection;
use ichido_delivery::store::{BatchDir, FileName, Layout, ListedFile, StoredBatch};
use ichido_delivery::time::parse_iso;
use maud::{Markup, html};
use serde::Deserialize;

use super::Console;
use super::delivery::place_of;
use super::form::Sent;
use super::page::{Section, View, facts, link, number, table, time};
use super::translations::Words;
use crate::audit::AUDIT;
use crate::browser::see;
use crate::delivery_control::{Desk, Ending};
use crate::state::Bodies;
use ichido_serve::{visible, visible_lines};

/// How long a page waits for what it ordered; what takes longer goes on without it.
const PATIENCE: Duration = Duration::from_secs(4);

#[derive(Debug, Deserialize)]
pub(super) struct Asked {
    #[serde(default)]
    place: String,
    #[serde(default)]
    file: String,
}

pub(super) async fn batch(
    view: View,
    State(console): State<Console>,
    Query(asked): Query<Asked>,
) -> Response {
    let w = view.w;
    let place = place_of(&asked.place);
    let found = match console.desk() {
        Some(desk) => read(&desk.layout, place, &asked.file).await,
        None => None,
    };
    let Some(stored) = found else {
        return view.refusal(StatusCode::NOT_FOUND, Section::Delivery, w.no_such_batch);
    };
    let body = match stored {
        Err(corrupt) => html! { p.notice.bad { (visible(&corrupt)) } },
        Ok(stored) => html! {
            (facts(&about(&stored, &asked.file, w)))
            @if view.may_act() {
                p { (view.button("/delivery/resend", &[("place", place.as_str()), ("file", &asked.file)], w.resend, "strong")) }
            }
            (attempts(&stored, w))
            (records(&stored, console.bodies(), w))
        },
    };
    let back =
        html! { (body) p { a href=(link("/delivery", &[("place", place.as_str())])) { (w.to_delivery) } } };
    view.page(Section::Delivery, w.batch, back)
}

fn listed(place: BatchDir, file: &str) -> Option<ListedFile> {
    FileName::parse(place.as_str(), file).map(|name| ListedFile { name, file: file.to_owned() })
}

async fn read(layout: &Layout, place: BatchDir, file: &str) -> Option<Result<StoredBatch, String>> {
    let (layout, listed) = (layout.clone(), listed(place, file)?);
    let read = tokio::task::spawn_blocking(move || layout.read(place, &listed)).await;
    Some(read.ok()?.ok()?.map_err(|corrupt| corrupt.to_string()))
}

fn about(stored: &StoredBatch, file: &str, w: &'static Words) -> Vec<(&'static str, Markup)> {
    let mut rows = vec![
        (w.batch_key, html! { code.key { (visible(stored.batch.key())) } }),
        (w.file, html! { code.key { (file) } }),
        (w.first_attempt, time(stored.first_attempt)),
        (w.passes, html! { (stored.retry_count) }),
        (w.records, html! { (number(stored.batch.records().len() as u64)) }),
    ];
    rows.extend(stored.not_before.map(|until| (w.not_before, time(until))));
    rows.extend(
        stored.last_error.as_ref().map(|error| (w.last_error, html! { span.key { (visible(error)) } })),
    );
    rows
}

fn attempts(stored: &StoredBatch, w: &'static Words) -> Markup {
    let at = |text: &str| parse_iso(text).map_or_else(|| html! { (text) }, time);
    let rows = stored
        .attempts
        .iter()
        .rev()
        .map(|attempt| vec![at(&attempt.at), html! { span.key { (visible(&attempt.error)) } }]);
    let rows: Vec<_> = rows.collect();
    html! {
        section aria-labelledby="attempts" {
            h2 #attempts { (w.history) }
            @if rows.is_empty() { p.empty { (w.no_history) } } @else { (table(w.history_caption, &[w.time, w.what], &rows)) }
        }
    }
}

fn records(stored: &StoredBatch, bodies: Bodies, w: &'static Words) -> Markup {
    html! {
        section aria-labelledby="records" {
            h2 #records { (w.records) }
            @match bodies {
                Bodies::Masked => { p.empty { (w.records_masked) } },
                Bodies::Shown => {
                    pre.body tabindex="0" aria-label=(w.records) {
                        @for record in stored.batch.records() { (visible_lines(record.json())) "\n" }
                    }
                },
            }
        }
    }
}

/// The question before all of a place are sent again.
pub(super) async fn confirm(
    view: View,
    State(console): State<Console>,
    Query(asked): Query<Asked>,
) -> Response {
    let w = view.w;
    let place = place_of(&asked.place);
    let (true, Some((spool, failed))) = (view.may_act(), &console.sampler.shelves) else {
        return view.refusal(StatusCode::FORBIDDEN, Section::Delivery, w.read_only);
    };
    let shelf = if place == BatchDir::Spool { spool } else { failed };
    let count = shelf.look().await.map_or(0, |survey| survey.count);
    let means = if place == BatchDir::Spool { w.resend_spool_means } else { w.resend_failed_means };
    let body = html! {
        p.notice.warn { b { (number(count)) } " " (w.batches) " " (means) }
        form.confirm method="post" action="/delivery/resend" {
            (view.secret())
            input type="hidden" name="place" value=(place.as_str());
            div.choice {
                button.strong type="submit" { (w.resend_all) }
                a href=(link("/delivery", &[("place", place.as_str())])) { (w.cancel) }
            }
        }
    };
    view.page(Section::Delivery, w.are_you_sure, body)
}

pub(super) async fn resend(view: View, State(console): State<Console>, sent: Sent) -> Response {
    let w = view.w;
    let place = place_of(sent.text("place").unwrap_or_default());
    let Some(desk) = console.desk() else {
        return view.refusal(StatusCode::NOT_FOUND, Section::None, w.delivers_not);
    };
    let keys = match sent.text("file") {
        None => Vec::new(),
        Some(file) => match read(&desk.layout, place, file).await {
            Some(Ok(stored)) => vec![stored.batch.key().to_owned()],
            Some(Err(_)) | None => {
                return view.refusal(StatusCode::NOT_FOUND, Section::Delivery, w.no_such_batch);
            }
        },
    };
    let key = keys.first().cloned();
    let run = order(&view, &console, desk, Selection::new(place, keys, true), key).await;
    if let Some((spool, failed)) = &console.sampler.shelves {
        tokio::join!(spool.anew(), failed.anew());
    }
    let said = match run {
        Ordered::Busy => "busy",
        Ordered::UnderWay => "under-way",
        Ordered::Over(ending) => ending.word(),
    };
    see(&link("/delivery", &[("place", place.as_str()), ("said", said)]))
}

enum Ordered {
    Over(Ending),
    UnderWay,
    Busy,
}

/// Orders a pass and waits for it a while. Its line in the audit comes when it is over, whoever still waits.
async fn order(
    view: &View,
    console: &Console,
    desk: &Desk,
    selection: Selection,
    key: Option<String>,
) -> Ordered {
    let (who, place) = (view.peer.0, selection.batch_dir.as_str());
    let audit = move |result: &str, arrived: u64| {
        let action = if key.is_some() { "resend a batch" } else { "resend all" };
        tracing::info!(target: AUDIT, %who, action, place, key, result, arrived, "an operator's action");
    };
    let Some(over) = desk.order(selection) else {
        audit("busy", 0);
        return Ordered::Busy;
    };
    let task = console.served.actions.spawn(async move {
        let Ok(run) = over.await else {
            audit("stopped", 0);
            return None;
        };
        audit(run.ending().word(), run.arrived);
        Some(run.ending())
    });
    match tokio::time::timeout(PATIENCE, task).await {
        Ok(Ok(Some(ending))) => Ordered::Over(ending),
        Ok(_) | Err(_) => Ordered::UnderWay,
    }
}
