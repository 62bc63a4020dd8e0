//! Shows one batch, and resends one batch or all batches of a directory.

use std::time::Duration;

use axum::extract::{Query, State};
use axum::response::Response;
use http::StatusCode;
use ichido_core::error_chain;
use ichido_delivery::sender::Selection;
use ichido_delivery::store::{BatchDir, FileName, Layout, ListedFile, StoredBatch};
use ichido_delivery::time::parse_iso;
use maud::{Markup, html};
use serde::Deserialize;

use super::Console;
use super::delivery::batch_dir_of;
use super::form::OperatorForm;
use super::page::{Section, View, facts, link, number, table, time};
use super::translations::Translations;
use crate::audit_log::{self, Action, Outcome, Pending, blocking};
use crate::browser::see_other;
use crate::delivery_control::{DeliveryControl, PassResult};
use crate::state::Bodies;
use ichido_serve::{visible, visible_lines};

/// How long a page waits for the pass it requested. A longer pass continues without the page.
const TIMEOUT: Duration = Duration::from_secs(4);

#[derive(Debug, Deserialize)]
pub(super) struct BatchQuery {
    #[serde(default)]
    dir: String,
    #[serde(default)]
    file: String,
}

pub(super) async fn batch(
    view: View,
    State(console): State<Console>,
    Query(query): Query<BatchQuery>,
) -> Response {
    let t = view.t;
    let dir = batch_dir_of(&query.dir);
    let found = match console.delivery_control() {
        Some(delivery_control) => read(&delivery_control.layout, dir, &query.file).await,
        None => None,
    };
    let Some(stored) = found else {
        return view.error_page(StatusCode::NOT_FOUND, Section::Delivery, t.no_such_batch);
    };
    let body = match stored {
        Err(corrupt) => html! { p.notice.bad { (visible(&corrupt)) } },
        Ok(stored) => html! {
            (facts(&about(&stored, &query.file, t)))
            @if view.may_act() {
                p { (view.button("/delivery/resend", &[("dir", dir.as_str()), ("file", &query.file)], t.resend, "strong")) }
            }
            p { a href=(link("/trace", &[("id", stored.batch.key())])) { (t.trace_batch) } }
            (attempts(&stored, t))
            (records(&stored, console.bodies(), t))
        },
    };
    let back =
        html! { (body) p { a href=(link("/delivery", &[("dir", dir.as_str())])) { (t.back_to_delivery) } } };
    view.page(Section::Delivery, t.batch, back)
}

fn listed(dir: BatchDir, file: &str) -> Option<ListedFile> {
    FileName::parse(dir.as_str(), file).map(|name| ListedFile { name, file: file.to_owned() })
}

async fn read(layout: &Layout, dir: BatchDir, file: &str) -> Option<Result<StoredBatch, String>> {
    let (layout, listed) = (layout.clone(), listed(dir, file)?);
    let read = tokio::task::spawn_blocking(move || layout.read(dir, &listed)).await;
    Some(read.ok()?.ok()?.map_err(|corrupt| corrupt.to_string()))
}

fn about(stored: &StoredBatch, file: &str, t: &'static Translations) -> Vec<(&'static str, Markup)> {
    let mut rows = vec![
        (t.batch_key, html! { code.key { (visible(stored.batch.key())) } }),
        (t.file, html! { code.key { (file) } }),
        (t.first_attempt, time(stored.first_attempt)),
        (t.passes, html! { (stored.retry_count) }),
        (t.records, html! { (number(stored.batch.records().len() as u64)) }),
    ];
    rows.extend(stored.not_before.map(|until| (t.not_before, time(until))));
    rows.extend(
        stored.last_error.as_ref().map(|error| (t.last_error, html! { span.key { (visible(error)) } })),
    );
    rows
}

fn attempts(stored: &StoredBatch, t: &'static Translations) -> Markup {
    let at = |text: &str| parse_iso(text).map_or_else(|| html! { (text) }, time);
    let rows = stored
        .attempts
        .iter()
        .rev()
        .map(|attempt| vec![at(&attempt.at), html! { span.key { (visible(&attempt.error)) } }]);
    let rows: Vec<_> = rows.collect();
    html! {
        section aria-labelledby="attempts" {
            h2 #attempts { (t.history) }
            @if rows.is_empty() { p.empty { (t.no_history) } } @else { (table(t.history_caption, &[t.time, t.event], &rows)) }
        }
    }
}

fn records(stored: &StoredBatch, bodies: Bodies, t: &'static Translations) -> Markup {
    html! {
        section aria-labelledby="records" {
            h2 #records { (t.records) }
            @match bodies {
                Bodies::Masked => { p.empty { (t.records_masked) } },
                Bodies::Shown => {
                    pre.body tabindex="0" aria-label=(t.records) {
                        @for record in stored.batch.records() { (visible_lines(record.json())) "\n" }
                    }
                },
            }
        }
    }
}

/// Asks for confirmation before all batches of a directory are resent.
pub(super) async fn confirm(
    view: View,
    State(console): State<Console>,
    Query(query): Query<BatchQuery>,
) -> Response {
    let t = view.t;
    let dir = batch_dir_of(&query.dir);
    let (true, Some((spool, failed))) = (view.may_act(), &console.sampler.directories) else {
        return view.error_page(StatusCode::FORBIDDEN, Section::Delivery, t.read_only);
    };
    let directory = if dir == BatchDir::Spool { spool } else { failed };
    let count = directory.get().await.map_or(0, |listing| listing.count);
    let means = if dir == BatchDir::Spool { t.resend_spool_means } else { t.resend_failed_means };
    let body = html! {
        (facts(&[(t.batches, html! { (number(count)) })]))
        p.notice.warn { (means) }
        form.confirm method="post" action="/delivery/resend" {
            (view.csrf_field())
            input type="hidden" name="dir" value=(dir.as_str());
            div.choice {
                button.strong type="submit" { (t.resend_all) }
                a href=(link("/delivery", &[("dir", dir.as_str())])) { (t.cancel) }
            }
        }
    };
    view.page(Section::Delivery, t.are_you_sure, body)
}

pub(super) async fn resend(view: View, State(console): State<Console>, form: OperatorForm) -> Response {
    let t = view.t;
    let dir = batch_dir_of(form.text("dir").unwrap_or_default());
    let Some(delivery_control) = console.delivery_control() else {
        return view.error_page(StatusCode::NOT_FOUND, Section::None, t.no_delivery);
    };
    let keys = match form.text("file") {
        None => Vec::new(),
        Some(file) => match read(&delivery_control.layout, dir, file).await {
            Some(Ok(stored)) => vec![stored.batch.key().to_owned()],
            Some(Err(_)) | None => {
                return view.error_page(StatusCode::NOT_FOUND, Section::Delivery, t.no_such_batch);
            }
        },
    };
    let key = keys.first().cloned();
    let resend = request_pass(&view, &console, delivery_control, Selection::new(dir, keys, true), key).await;
    if let Some((spool, failed)) = &console.sampler.directories {
        tokio::join!(spool.refresh(), failed.refresh());
    }
    let result = match resend {
        Resend::NotRecorded(error) => {
            tracing::error!(error = error_chain(&error), "cannot record a resend; it is refused");
            return view.error_page(StatusCode::SERVICE_UNAVAILABLE, Section::Delivery, t.audit_unavailable);
        }
        Resend::Busy => "busy",
        Resend::Running => "under-way",
        Resend::Finished(result) => result.code(),
    };
    see_other(&link("/delivery", &[("dir", dir.as_str()), ("result", result)]))
}

enum Resend {
    Finished(PassResult),
    Running,
    Busy,
    /// The intent cannot be recorded, so nothing is sent.
    NotRecorded(audit_log::Error),
}

/// Requests a pass and waits a while for it. Its result is recorded when it ends, even if nobody waits any more.
async fn request_pass(
    view: &View,
    console: &Console,
    delivery_control: &DeliveryControl,
    selection: Selection,
    key: Option<String>,
) -> Resend {
    let place = selection.batch_dir.as_str();
    let action = Action {
        place: Some(place.to_owned()),
        before: Some(place.to_owned()),
        ..Action::named(if key.is_some() { "resend a batch" } else { "resend all" })
    };
    let action = Action { batches: key.into_iter().collect(), ..action };
    let (audit, actor) = (console.app.audit.clone(), view.actor());
    let pending = match blocking(move || audit.begin(actor, action)).await {
        Ok(pending) => pending,
        Err(error) => return Resend::NotRecorded(error),
    };
    let Some(finished) = delivery_control.request(selection) else {
        finish(pending, Outcome { arrived: Some(0), ..Outcome::of("busy") }).await;
        return Resend::Busy;
    };
    let task = console.app.actions.spawn(async move {
        let Ok(pass) = finished.await else {
            finish(pending, Outcome { arrived: Some(0), ..Outcome::of("stopped") }).await;
            return None;
        };
        let after = (pass.result() == PassResult::AllArrived).then(|| "delivered".to_owned());
        let outcome = Outcome { after, arrived: Some(pass.arrived), ..Outcome::of(pass.result().code()) };
        finish(pending, outcome).await.then(|| pass.result())
    });
    match tokio::time::timeout(TIMEOUT, task).await {
        Ok(Ok(Some(result))) => Resend::Finished(result),
        Ok(_) | Err(_) => Resend::Running,
    }
}

/// Records the result. A pass whose result cannot be recorded is not reported as finished.
async fn finish(pending: Pending, outcome: Outcome) -> bool {
    let finished = blocking(move || pending.finish(outcome)).await;
    if let Err(error) = &finished {
        tracing::error!(error = error_chain(error), "cannot record the result of a resend");
    }
    finished.is_ok()
}
