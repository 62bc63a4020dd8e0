//! Delivery: what waits in the spool and what failed, oldest first; the notices about it.

use axum::extract::{Query, State};
use axum::response::Response;
use http::StatusCode;
use ichido_delivery::notice::{self, Event, Notice};
use ichido_delivery::store::{BatchDir, BatchHeader, FileName, Layout, ListedFile};
use ichido_delivery::time::parse_iso;
use maud::{Markup, html};
use serde::Deserialize;

use super::Console;
use super::directory_cache::{KEPT, Survey};
use super::overview::runs;
use super::page::{Section, View, link, number, table, time};
use super::translations::Words;
use crate::delivery_control::Desk;
use ichido_serve::visible;

/// Batches on a page.
const ROWS: usize = 25;
/// Notices that are shown.
const NOTICES: usize = 10;
/// Passes that are shown.
const RUNS: usize = 5;

#[derive(Debug, Default, Deserialize)]
pub(super) struct Asked {
    #[serde(default)]
    place: String,
    /// The last file of the page before.
    after: Option<String>,
    said: Option<String>,
}

/// A batch as a list shows it.
struct Row {
    listed: ListedFile,
    head: Option<BatchHeader>,
}

pub(super) fn place_of(word: &str) -> BatchDir {
    if word == BatchDir::Failed.as_str() { BatchDir::Failed } else { BatchDir::Spool }
}

pub(super) async fn delivery(
    view: View,
    State(console): State<Console>,
    Query(asked): Query<Asked>,
) -> Response {
    let w = view.w;
    let (Some(desk), Some(shelves)) = (console.desk(), &console.sampler.shelves) else {
        return view.refusal(StatusCode::NOT_FOUND, Section::None, w.delivers_not);
    };
    let place = place_of(&asked.place);
    let (spool, failed) = tokio::join!(shelves.0.look(), shelves.1.look());
    let survey = if place == BatchDir::Spool { &spool } else { &failed };
    let page = read(&desk.layout, place, survey.as_ref(), asked.after.as_deref()).await;
    let counts = [(BatchDir::Spool, &spool), (BatchDir::Failed, &failed)]
        .map(|(place, survey)| (place, count(survey.as_ref())));
    let known = console.sampler.look();
    let body = html! {
        @if let Some(said) = asked.said.as_deref().and_then(|said| w.said(said)) { p.notice.good role="status" { (said) } }
        @if let Some(held) = desk.held() { p.notice.bad role="alert" { (w.lane_is_held) " " (visible(&held)) } }
        (tabs(&counts, place, w))
        section aria-label=(place_name(place, w)) {
            @if page.is_empty() { p.empty { (if place == BatchDir::Spool { w.spool_empty } else { w.failed_empty }) } }
            @else { (rows(&view, place, &page)) }
            (pager(place, survey.as_ref(), asked.after.as_deref(), &page, w))
            @if view.may_act() && !page.is_empty() {
                p { a.button href=(link("/delivery/resend", &[("place", place.as_str())])) { (w.resend_all) "…" } }
            }
        }
        (runs(&desk.runs()[..desk.runs().len().min(RUNS)], w))
        (notices(desk, &known.figures.notices_sent, w).await)
    };
    view.page(Section::Delivery, w.delivery, body)
}

fn count(survey: Option<&Survey>) -> String {
    survey.map_or_else(|| "–".to_owned(), |survey| number(survey.count))
}

fn place_name(place: BatchDir, w: &Words) -> &'static str {
    match place {
        BatchDir::Spool => w.spool,
        BatchDir::Failed => w.failed,
    }
}

fn tabs(counts: &[(BatchDir, String)], here: BatchDir, w: &Words) -> Markup {
    html! {
        nav.tabs aria-label=(w.places) {
            @for (place, count) in counts {
                a href=(link("/delivery", &[("place", place.as_str())])) aria-current=[(*place == here).then_some("page")] {
                    (place_name(*place, w)) " " b { (count) }
                }
            }
        }
    }
}

/// The files of one page, each with its beginning. By names from memory; only what is shown is opened.
async fn read(layout: &Layout, place: BatchDir, survey: Option<&Survey>, after: Option<&str>) -> Vec<Row> {
    let Some(survey) = survey else { return Vec::new() };
    let after = after.and_then(|file| {
        Some(ListedFile { name: FileName::parse(place.as_str(), file)?, file: file.to_owned() })
    });
    let start = after.map_or(0, |after| survey.oldest.partition_point(|listed| *listed <= after));
    let page: Vec<ListedFile> = survey.oldest[start..].iter().take(ROWS).cloned().collect();
    let layout = layout.clone();
    let rows = move || {
        let row = |listed: ListedFile| Row { head: layout.header(place, &listed), listed };
        page.into_iter().map(row).collect()
    };
    tokio::task::spawn_blocking(rows).await.unwrap_or_default()
}

fn rows(view: &View, place: BatchDir, page: &[Row]) -> Markup {
    let w = view.w;
    let row = |Row { listed, head }: &Row| {
        let file = [("place", place.as_str()), ("file", listed.file.as_str())];
        let mut cells = vec![
            html! { a.key href=(link("/delivery/batch", &file)) { (listed.name.key) } },
            html! { @match head { Some(head) => (time(head.first_attempt)), None => (listed.name.at) } },
            html! { @if let Some(head) = head { (head.retry_count) } },
            html! { @if let Some(error) = head.as_ref().and_then(|head| head.last_error.as_deref()) { span.key { (visible(error)) } } },
        ];
        if place == BatchDir::Spool {
            let until = head.as_ref().and_then(|head| head.not_before);
            cells.insert(3, html! { @if let Some(until) = until { (time(until)) } });
        }
        if view.may_act() {
            cells.push(view.button("/delivery/resend", &file, w.resend, "quiet"));
        }
        cells
    };
    let mut heads = vec![w.batch, w.first_attempt, w.passes, w.last_error];
    if place == BatchDir::Spool {
        heads.insert(3, w.not_before);
    }
    if view.may_act() {
        heads.push(w.action);
    }
    let caption = if place == BatchDir::Spool { w.spool_caption } else { w.failed_caption };
    table(caption, &heads, &page.iter().map(row).collect::<Vec<_>>())
}

fn pager(place: BatchDir, survey: Option<&Survey>, after: Option<&str>, page: &[Row], w: &Words) -> Markup {
    let last = survey.and_then(|survey| survey.oldest.last()).map(|listed| listed.file.as_str());
    let next = page.last().map(|row| row.listed.file.as_str()).filter(|file| Some(*file) != last);
    let is_cut = next.is_none() && survey.is_some_and(|survey| survey.count > KEPT as u64);
    html! {
        @if next.is_some() || after.is_some() {
            nav.pager aria-label=(w.pages) {
                @if after.is_some() { a href=(link("/delivery", &[("place", place.as_str())])) { (w.first_page) } }
                @if let Some(next) = next {
                    a rel="next" href=(link("/delivery", &[("place", place.as_str()), ("after", next)])) { (w.next_page) }
                }
            }
        }
        @if is_cut { p.hint { (w.list_is_cut) } }
    }
}

async fn notices(desk: &Desk, sent: &[(String, u64)], w: &'static Words) -> Markup {
    let dir = desk.layout.root().join("notices");
    let waiting = tokio::task::spawn_blocking(move || notice::waiting(&dir, NOTICES)).await;
    let waiting = waiting.ok().and_then(Result::ok);
    let (count, first) = waiting.unwrap_or_default();
    let rows: Vec<_> = first.iter().map(|notice| row_of(notice, w)).collect();
    html! {
        section aria-labelledby="notices" {
            h2 #notices { (w.notices) }
            p {
                (w.notices_waiting) ": " b { (number(count)) } " · " (w.notices_sent) ": "
                @if sent.is_empty() { b { "0" } }
                @for (place, (channel, count)) in sent.iter().enumerate() { @if place > 0 { (w.comma) } (w.channel(channel)) " " b { (number(*count)) } }
            }
            @if !rows.is_empty() { (table(w.notices_caption, &[w.time, w.what, w.details], &rows)) }
        }
    }
}

fn row_of(notice: &Notice, w: &Words) -> Vec<Markup> {
    let (what, details) = match &notice.event {
        Event::Failed(failed) => (w.notice_failed, format!("{}: {}", failed.file_path, failed.last_error)),
        Event::Expired(failed) => (w.notice_expired, format!("{}: {}", failed.file_path, failed.last_error)),
        Event::Held { lane, reason } => (w.notice_held, format!("{lane}: {reason}")),
        Event::SpoolFull { reason } => (w.notice_full, reason.clone()),
        Event::InvalidInput { count, reason } => (w.notice_broken, format!("{count}: {reason}")),
        Event::Recovered { outage, since } => (w.notice_recovered, format!("{outage} ({since})")),
    };
    let at = parse_iso(&notice.at).map_or_else(|| html! { (notice.at) }, time);
    vec![at, html! { (what) }, html! { span.key { (visible(&details)) } }]
}
