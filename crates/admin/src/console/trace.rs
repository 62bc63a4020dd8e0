//! Follows one id. The search box at the top of every page leads here.

use axum::Router;
use axum::extract::{FromRef, Query, State};
use axum::response::Response;
use axum::routing::get;
use http::StatusCode;
use ichido_core::error_chain;
use maud::{Markup, html};
use serde::Deserialize;

use super::PageContext;
use super::page::{Section, View, number, table_under_heading, time_of};
use super::translations::{Translations, fill};
use crate::state::{AppState, UsageSource};
use crate::trace::{Event, Place, Trace, is_id, trace_in_meter};
use ichido_serve::visible;

/// The characters of a long key that are shown. The whole key is its title.
const KEY_CHARS: usize = 16;

/// What a process can look into.
#[derive(Clone, Debug)]
pub(super) enum Searched {
    App(AppState),
    Meter(UsageSource),
}

#[derive(Clone, Debug)]
struct TraceContext {
    page: PageContext,
    searched: Searched,
}

impl FromRef<TraceContext> for PageContext {
    fn from_ref(context: &TraceContext) -> Self {
        context.page.clone()
    }
}

pub(super) fn routes(page: PageContext, searched: Searched) -> Router {
    Router::new().route("/trace", get(show)).with_state(TraceContext { page, searched })
}

#[derive(Debug, Default, Deserialize)]
struct Wanted {
    #[serde(default)]
    id: String,
}

async fn show(
    view: View,
    State(context): State<TraceContext>,
    Query(Wanted { id }): Query<Wanted>,
) -> Response {
    let t = view.t;
    // People copy ids with the spaces around them.
    let id = id.trim();
    if !is_id(id) {
        let body = html! { p.empty { (t.trace_hint) } };
        return view.page(Section::None, t.trace, body);
    }
    let trace = match &context.searched {
        Searched::App(app) => match app.trace(id).await {
            Ok(trace) => trace,
            Err(error) => {
                return view.error_page(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    Section::None,
                    &error_chain(&error),
                );
            }
        },
        Searched::Meter(usage) => trace_in_meter(usage, &context.page.audit, id).await,
    };
    view.page(Section::None, t.trace, result(&trace, t))
}

fn result(trace: &Trace, t: &'static Translations) -> Markup {
    html! {
        p { span.key { (visible(&trace.id)) } }
        @if trace.found {
            h2 { (t.trace_timeline) }
            @if trace.omitted > 0 { p.hint { (fill(t.trace_omitted, number(trace.omitted))) } }
            (timeline(&trace.timeline, t))
        } @else {
            p.empty { (t.trace_nothing) }
        }
        h2 { (t.looked_into) }
        (table_under_heading(t.looked_into, &[t.trace_place, t.trace_searched, t.trace_found], &looked_into(trace, t)))
        @if !trace.not_looked_into.is_empty() {
            h2 { (t.not_looked_into) }
            (table_under_heading(t.not_looked_into, &[t.trace_place, t.trace_why], &not_looked_into(trace, t)))
        }
    }
}

fn timeline(events: &[Event], t: &'static Translations) -> Markup {
    let row = |event: &Event| {
        vec![
            time_of(&event.at),
            html! { (t.place(event.place)) },
            html! { (visible(t.trace_event(event.place, &event.event))) },
            html! { @if let Some(key) = &event.key { span.key title=(visible(key)) { (visible(&short(key))) } } },
            html! { span.detail { (visible(&event.details_line())) } },
        ]
    };
    let heads = [t.time, t.trace_place, t.trace_what, t.key, t.details];
    table_under_heading(t.trace_timeline, &heads, &events.iter().map(row).collect::<Vec<_>>())
}

fn looked_into(trace: &Trace, t: &'static Translations) -> Vec<Vec<Markup>> {
    let row = |looked: &crate::trace::LookedInto| {
        vec![
            html! { (t.place(looked.place)) },
            html! { span.detail { (visible(&looked.what)) } },
            html! { span.amount { (number(looked.found)) } },
        ]
    };
    trace.looked_into.iter().map(row).collect()
}

fn not_looked_into(trace: &Trace, t: &'static Translations) -> Vec<Vec<Markup>> {
    let row = |not_looked: &crate::trace::NotLookedInto| {
        vec![html! { (t.place(not_looked.place)) }, html! { span.detail { (visible(&not_looked.why)) } }]
    };
    trace.not_looked_into.iter().map(row).collect()
}

/// A batch key is a hash, whose start is enough for people.
fn short(key: &str) -> String {
    let is_hash = key.len() == 64 && key.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_hash { format!("{}…", &key[..KEY_CHARS]) } else { key.to_owned() }
}

impl Translations {
    fn place(&self, place: Place) -> &'static str {
        match place {
            Place::Export => self.place_export,
            Place::Receipts => self.place_receipts,
            Place::InFlight => self.place_in_flight,
            Place::Spool => self.spool,
            Place::Failed => self.failed,
            Place::Meter => self.place_meter,
            Place::Ledger => self.place_ledger,
            Place::History => self.history,
            Place::Audit => self.place_audit,
        }
    }

    /// What happened. Actions in the audit log are shown as they are recorded.
    pub(super) fn trace_event<'a>(&self, place: Place, event: &'a str) -> &'a str {
        match (place, event) {
            (Place::Audit, action) => action,
            (Place::History, decision) => self.decision(decision),
            (_, "recorded-as-sent") => self.traced_sent,
            (_, "batched") => self.traced_batched,
            (_, "request") => self.traced_request,
            (_, "delivered") => self.traced_delivered,
            (_, "spooled") => self.traced_spooled,
            (_, "failed") => self.traced_failed,
            (_, "split") => self.traced_split,
            (_, "accepted") => self.traced_accepted,
            (_, "in-flight") => self.traced_in_flight,
            (_, "waiting-in-spool") => self.traced_in_spool,
            (_, "waiting-in-failed") => self.traced_in_failed,
            (_, "counted") => self.traced_counted,
            (_, "received") => self.traced_received,
            (_, "received-again") => self.traced_received_again,
            (_, "claimed") => self.traced_claimed,
            (_, "running") => self.state_running,
            (_, "in-doubt") => self.state_in_doubt,
            (_, "done") => self.state_done,
            (_, "marked") => self.traced_marked,
            (_, other) => other,
        }
    }
}
