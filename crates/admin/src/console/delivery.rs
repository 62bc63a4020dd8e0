//! The spool and the failed batches, oldest first, and the notices about them.

use axum::extract::{Query, State};
use axum::response::Response;
use http::StatusCode;
use ichido_delivery::notice::{self, Event, Notice};
use ichido_delivery::store::{BatchDir, BatchHeader, FileName, Layout, ListedFile};
use ichido_delivery::time::parse_iso;
use maud::{Markup, html};
use serde::Deserialize;

use super::Console;
use super::directory_cache::{DirectoryListing, LISTED_MAX};
use super::overview::passes;
use super::page::{Section, View, link, number, table, time};
use super::translations::{Translations, fill};
use crate::delivery_control::DeliveryControl;
use ichido_serve::visible;

/// Batches on a page.
const ROWS: usize = 25;
/// The most notices that are shown.
const NOTICES_MAX: usize = 10;
/// The most passes that are shown.
const PASSES_MAX: usize = 5;

#[derive(Debug, Default, Deserialize)]
pub(super) struct DeliveryQuery {
    #[serde(default)]
    dir: String,
    /// The last file of the page before.
    after: Option<String>,
    result: Option<String>,
}

/// A row of the list of batches.
struct Row {
    listed: ListedFile,
    head: Option<BatchHeader>,
}

pub(super) fn batch_dir_of(name: &str) -> BatchDir {
    if name == BatchDir::Failed.as_str() { BatchDir::Failed } else { BatchDir::Spool }
}

pub(super) async fn delivery(
    view: View,
    State(console): State<Console>,
    Query(query): Query<DeliveryQuery>,
) -> Response {
    let t = view.t;
    let (Some(delivery_control), Some(directories)) =
        (console.delivery_control(), &console.sampler.directories)
    else {
        return view.error_page(StatusCode::NOT_FOUND, Section::None, t.no_delivery);
    };
    let dir = batch_dir_of(&query.dir);
    let (spool, failed) = tokio::join!(directories.0.get(), directories.1.get());
    let listing = if dir == BatchDir::Spool { &spool } else { &failed };
    let page = read(&delivery_control.layout, dir, listing.as_ref(), query.after.as_deref()).await;
    let counts = [(BatchDir::Spool, &spool), (BatchDir::Failed, &failed)]
        .map(|(dir, listing)| (dir, count(listing.as_ref())));
    let snapshot = console.sampler.snapshot();
    let body = html! {
        @if let Some(result) = query.result.as_deref().and_then(|result| t.action_result(result)) { p.notice.good role="status" { (result) } }
        @if let Some(held) = delivery_control.held() { p.notice.bad role="alert" { (fill(t.lane_is_held, visible(&held))) } }
        (tabs(&counts, dir, t))
        p { a href="/delivery/slo" { (t.slo) } }
        section aria-label=(dir_name(dir, t)) {
            @if page.is_empty() { p.empty { (if dir == BatchDir::Spool { t.spool_empty } else { t.failed_empty }) } }
            @else { (rows(&view, dir, &page)) }
            (pager(dir, listing.as_ref(), query.after.as_deref(), &page, t))
            @if view.may_act() && !page.is_empty() {
                p { a.button href=(link("/delivery/resend", &[("dir", dir.as_str())])) { (t.resend_all) "…" } }
            }
        }
        (passes(&delivery_control.passes()[..delivery_control.passes().len().min(PASSES_MAX)], t))
        (notices(delivery_control, &snapshot.totals.notices_sent, t).await)
    };
    view.page(Section::Delivery, t.delivery, body)
}

fn count(listing: Option<&DirectoryListing>) -> String {
    listing.map_or_else(|| "–".to_owned(), |listing| number(listing.count))
}

fn dir_name(dir: BatchDir, t: &Translations) -> &'static str {
    match dir {
        BatchDir::Spool => t.spool,
        BatchDir::Failed => t.failed,
    }
}

fn tabs(counts: &[(BatchDir, String)], here: BatchDir, t: &Translations) -> Markup {
    html! {
        nav.tabs aria-label=(t.directories) {
            @for (dir, count) in counts {
                a href=(link("/delivery", &[("dir", dir.as_str())])) aria-current=[(*dir == here).then_some("page")] {
                    (dir_name(*dir, t)) " " b { (count) }
                }
            }
        }
    }
}

/// The batches of one page. Names come from memory; only the files that are shown are opened.
async fn read(
    layout: &Layout,
    dir: BatchDir,
    listing: Option<&DirectoryListing>,
    after: Option<&str>,
) -> Vec<Row> {
    let Some(listing) = listing else { return Vec::new() };
    let after = after.and_then(|file| {
        Some(ListedFile { name: FileName::parse(dir.as_str(), file)?, file: file.to_owned() })
    });
    let start = after.map_or(0, |after| listing.oldest.partition_point(|listed| *listed <= after));
    let page: Vec<ListedFile> = listing.oldest[start..].iter().take(ROWS).cloned().collect();
    let layout = layout.clone();
    let rows = move || {
        let row = |listed: ListedFile| Row { head: layout.header(dir, &listed), listed };
        page.into_iter().map(row).collect()
    };
    tokio::task::spawn_blocking(rows).await.unwrap_or_default()
}

fn rows(view: &View, dir: BatchDir, page: &[Row]) -> Markup {
    let t = view.t;
    let row = |Row { listed, head }: &Row| {
        let file = [("dir", dir.as_str()), ("file", listed.file.as_str())];
        let mut cells = vec![
            html! { a.key href=(link("/delivery/batch", &file)) { (listed.name.key) } },
            html! { @match head { Some(head) => (time(head.first_attempt)), None => (listed.name.at) } },
            html! { @if let Some(head) = head { (head.retry_count) } },
            html! { @if let Some(error) = head.as_ref().and_then(|head| head.last_error.as_deref()) { span.key { (visible(error)) } } },
        ];
        if dir == BatchDir::Spool {
            let until = head.as_ref().and_then(|head| head.not_before);
            cells.insert(3, html! { @if let Some(until) = until { (time(until)) } });
        }
        if view.may_act() {
            cells.push(view.button("/delivery/resend", &file, t.resend, "quiet"));
        }
        cells
    };
    let mut heads = vec![t.batch, t.first_attempt, t.passes, t.last_error];
    if dir == BatchDir::Spool {
        heads.insert(3, t.not_before);
    }
    if view.may_act() {
        heads.push(t.action);
    }
    let caption = if dir == BatchDir::Spool { t.spool_caption } else { t.failed_caption };
    table(caption, &heads, &page.iter().map(row).collect::<Vec<_>>())
}

fn pager(
    dir: BatchDir,
    listing: Option<&DirectoryListing>,
    after: Option<&str>,
    page: &[Row],
    t: &Translations,
) -> Markup {
    let last = listing.and_then(|listing| listing.oldest.last()).map(|listed| listed.file.as_str());
    let next = page.last().map(|row| row.listed.file.as_str()).filter(|file| Some(*file) != last);
    let is_truncated = next.is_none() && listing.is_some_and(|listing| listing.count > LISTED_MAX as u64);
    html! {
        @if next.is_some() || after.is_some() {
            nav.pager aria-label=(t.pages) {
                @if after.is_some() { a href=(link("/delivery", &[("dir", dir.as_str())])) { (t.first_page) } }
                @if let Some(next) = next {
                    a rel="next" href=(link("/delivery", &[("dir", dir.as_str()), ("after", next)])) { (t.next_page) }
                }
            }
        }
        @if is_truncated { p.hint { (t.list_truncated) } }
    }
}

async fn notices(
    delivery_control: &DeliveryControl,
    sent: &[(String, u64)],
    t: &'static Translations,
) -> Markup {
    let dir = delivery_control.layout.root().join("notices");
    let waiting = tokio::task::spawn_blocking(move || notice::waiting(&dir, NOTICES_MAX)).await;
    let waiting = waiting.ok().and_then(Result::ok);
    let (count, first) = waiting.unwrap_or_default();
    let rows: Vec<_> = first.iter().map(|notice| row_of(notice, t)).collect();
    html! {
        section aria-labelledby="notices" {
            h2 #notices { (t.notices) }
            p {
                (t.notices_waiting) (t.colon) b { (number(count)) } " · " (t.notices_sent) (t.colon)
                @if sent.is_empty() { b { "0" } }
                @for (index, (channel, count)) in sent.iter().enumerate() { @if index > 0 { (t.comma) } (t.channel(channel)) " " b { (number(*count)) } }
            }
            @if !rows.is_empty() { (table(t.notices_caption, &[t.time, t.event, t.details], &rows)) }
        }
    }
}

fn row_of(notice: &Notice, t: &Translations) -> Vec<Markup> {
    let (what, details) = match &notice.event {
        Event::Failed(failed) => (t.notice_failed, format!("{}: {}", failed.file_path, failed.last_error)),
        Event::Expired(failed) => (t.notice_expired, format!("{}: {}", failed.file_path, failed.last_error)),
        Event::Held { lane, reason } => (t.notice_held, format!("{lane}: {reason}")),
        Event::SpoolFull { reason } => (t.notice_full, reason.clone()),
        Event::InvalidInput { count, reason } => (t.notice_invalid_input, format!("{count}: {reason}")),
        Event::Anomaly { text, .. } => (t.notice_anomaly, text.clone()),
        Event::Budget { tenant, app, month, threshold, used, limit, unit } => {
            let of = app.as_deref().unwrap_or(tenant);
            (t.notice_budget, format!("{of}, {month}: {used} / {limit} {unit} ({threshold} %)"))
        }
        Event::Recovered { outage, since } => (t.notice_recovered, format!("{outage} ({since})")),
    };
    let at = parse_iso(&notice.at).map_or_else(|| html! { (notice.at) }, time);
    vec![at, html! { (what) }, html! { span.key { (visible(&details)) } }]
}
