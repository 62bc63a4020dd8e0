//! One claim: what is known of it, and an operator's word on it, said twice.

use axum::extract::{Query, State};
use axum::response::Response;
use http::StatusCode;
use ichido_ledger::{StateName, Summary};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;

use super::Console;
use super::claims::{href, state_mark, why};
use super::form::Sent;
use super::page::{Section, View, facts, link, number, time};
use super::translations::Words;
use crate::browser::see;
use crate::operator::{Operator, Refusal, Shown, Which, Word};
use crate::state::Bodies;
use ichido_serve::{visible, visible_lines};

#[derive(Debug, Deserialize)]
pub(super) struct One {
    key: String,
    #[serde(default)]
    tenant: String,
    #[serde(default)]
    route: String,
    /// What an operator is about to say.
    word: Option<String>,
    said: Option<String>,
}

impl One {
    fn which(&self) -> Which {
        Which { key: self.key.clone(), tenant: Some(self.tenant.clone()), route: Some(self.route.clone()) }
    }
}

/// What an operator can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Say {
    Done,
    Absent,
    Release,
}

impl Say {
    const ALL: [Say; 3] = [Say::Done, Say::Absent, Say::Release];

    fn word(self) -> &'static str {
        match self {
            Say::Done => "done",
            Say::Absent => "absent",
            Say::Release => "release",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|say| say.word() == word)
    }

    /// Whether it makes sense of a claim in this state.
    fn fits(self, state: StateName) -> bool {
        match state {
            StateName::InDoubt => self != Say::Release,
            StateName::Running => self == Say::Release,
            StateName::Done => false,
        }
    }

    /// Its name, and what comes of it.
    fn texts(self, w: &Words) -> (&'static str, &'static str) {
        match self {
            Say::Done => (w.say_done, w.say_done_means),
            Say::Absent => (w.say_absent, w.say_absent_means),
            Say::Release => (w.say_release, w.say_release_means),
        }
    }
}

pub(super) async fn claim(view: View, State(console): State<Console>, Query(one): Query<One>) -> Response {
    let w = view.w;
    let (claim, shown) = match find(&view, &console, &one).await {
        Ok(found) => found,
        Err(response) => return response,
    };
    let body = html! {
        @if let Some(said) = one.said.as_deref().and_then(|said| w.said(said)) { p.notice.good role="status" { (said) } }
        (facts(&about(&claim, &shown, w)))
        @if view.may_act() { (actions(&claim, w)) }
        (metadata(&claim, w))
        (outcome(&shown, console.bodies(), w))
        p { a href="/claims" { (w.to_claims) } }
    };
    view.page(Section::Claims, w.claim, body)
}

/// The question that comes before the word is taken.
pub(super) async fn confirm(view: View, State(console): State<Console>, Query(one): Query<One>) -> Response {
    let w = view.w;
    let (claim, _) = match find(&view, &console, &one).await {
        Ok(found) => found,
        Err(response) => return response,
    };
    let say = one.word.as_deref().and_then(Say::parse).filter(|say| say.fits(claim.state) && view.may_act());
    let Some(say) = say else { return view.refusal(StatusCode::CONFLICT, Section::Claims, w.not_now) };
    let (label, means) = say.texts(w);
    let fields = [("key", &claim.key), ("tenant", &claim.tenant), ("route", &claim.route)];
    let body = html! {
        (facts(&[(w.key, html! { span.key { (visible(&claim.key)) } }), (w.route, html! { span.key { (visible(&claim.route)) } }),
            (w.state, state_mark(claim.state, w)), (w.attempt, html! { (claim.attempt) })]))
        p.notice.warn { (means) }
        form.confirm method="post" action="/claims/say" {
            (view.secret())
            @for (name, value) in fields { input type="hidden" name=(name) value=(value); }
            input type="hidden" name="word" value=(say.word());
            input type="hidden" name="attempt" value=(claim.attempt);
            @if say == Say::Done {
                label for="outcome" { (w.outcome_for_repeats) }
                textarea #outcome name="outcome" rows="4" spellcheck="false" aria-describedby="outcome-hint" {}
                p #outcome-hint .hint { (w.outcome_for_repeats_hint) }
            }
            div.choice {
                button.strong type="submit" { (label) }
                a href=(href("/claims/one", &claim, &[])) { (w.cancel) }
            }
        }
    };
    view.page(Section::Claims, w.are_you_sure, body)
}

/// Takes the word.
pub(super) async fn say(view: View, State(console): State<Console>, sent: Sent) -> Response {
    let w = view.w;
    let text = |name: &str| sent.text(name).unwrap_or_default().to_owned();
    let which = Which { key: text("key"), tenant: Some(text("tenant")), route: Some(text("route")) };
    let Some(say) = Say::parse(&text("word")) else {
        return view.refusal(StatusCode::BAD_REQUEST, Section::Claims, w.not_understood);
    };
    // What was confirmed was about this attempt, and not about one that began since.
    let now = console.served.operator().show(&which).await;
    if now.is_ok_and(|shown| shown.0.get("attempt").map(Value::to_string) != Some(text("attempt"))) {
        return view.refusal(StatusCode::CONFLICT, Section::Claims, w.not_now);
    }
    let outcome = Some(text("outcome")).filter(|outcome| !outcome.trim().is_empty());
    let said = match say {
        Say::Done => console.served.resolve(view.peer, which.clone(), Word::Done(outcome)).await,
        Say::Absent => console.served.resolve(view.peer, which.clone(), Word::Absent).await,
        Say::Release => console.served.release(view.peer, which.clone(), true).await,
    };
    console.sampler.changed();
    match (said, say) {
        (Ok(said), Say::Done) => {
            let which = [
                ("key", said.key.as_str()),
                ("tenant", said.tenant.as_str()),
                ("route", said.route.as_str()),
            ];
            see(&link("/claims/one", &[&which[..], &[("said", say.word())]].concat()))
        }
        // There is nothing left to be looked at.
        (Ok(_), Say::Absent | Say::Release) => {
            see(&link("/claims", &[("state", "in-doubt"), ("said", say.word())]))
        }
        (Err(refusal), _) => refused(&view, refusal),
    }
}

async fn find(view: &View, console: &Console, one: &One) -> Result<(Summary, Shown), Response> {
    let shown =
        console.served.operator().show(&one.which()).await.map_err(|refusal| refused(view, refusal))?;
    let claim = serde_json::from_value(Value::Object(shown.0.clone()));
    let claim = claim.map_err(|_| {
        view.refusal(StatusCode::INTERNAL_SERVER_ERROR, Section::Claims, view.w.not_understood)
    })?;
    Ok((claim, shown))
}

fn refused(view: &View, refusal: Refusal) -> Response {
    let w = view.w;
    match refusal {
        Refusal::NoSuchClaim => view.refusal(StatusCode::NOT_FOUND, Section::Claims, w.no_such_claim),
        Refusal::Several { .. } | Refusal::Running | Refusal::Left(_) => {
            view.refusal(StatusCode::CONFLICT, Section::Claims, w.not_now)
        }
        other @ (Refusal::Ledger(_) | Refusal::Failed(_)) => {
            view.refusal(StatusCode::SERVICE_UNAVAILABLE, Section::Claims, &why(other))
        }
    }
}

fn about(claim: &Summary, shown: &Shown, w: &'static Words) -> Vec<(&'static str, Markup)> {
    let word = |name: &str| {
        shown.0.get(name).map(|value| value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned))
    };
    let seconds = |name: &str| shown.0.get(name).and_then(Value::as_u64).map(|ms| number(ms / 1_000));
    let mut rows = vec![
        (w.key, html! { span.key { (visible(&claim.key)) } }),
        (w.state, html! { (state_mark(claim.state, w)) @if claim.local { " " (w.local) } }),
        (w.tenant, html! { span.key { (visible(&claim.tenant)) } }),
        (w.route, html! { span.key { (visible(&claim.route)) } }),
        (w.attempt, html! { (claim.attempt) }),
        (w.holder, html! { (w.holder_of(claim.holder)) }),
        (w.claimed_at, time(claim.claimed_at)),
        (
            w.renewed_at,
            html! { (time(claim.renewed_at)) " (" (word("renewals").unwrap_or_default()) " " (w.times) ")" },
        ),
    ];
    // What was left empty says nothing.
    rows.retain(|(name, _)| *name != w.tenant || !claim.tenant.is_empty());
    let moments = [
        (w.lease_until, claim.lease_until),
        (w.doubt_since, claim.doubt_since),
        (w.completed_at, claim.completed_at),
        (w.forgotten_at, claim.expires_at),
    ];
    rows.extend(moments.into_iter().filter_map(|(name, at)| at.map(|at| (name, time(at)))));
    rows.extend(claim.doubt_reason.as_ref().map(|reason| (w.doubt_reason, html! { (visible(reason)) })));
    rows.extend(seconds("lease_ms").map(|seconds| (w.lease, html! { (seconds) " s" })));
    rows.extend(seconds("retention_ms").map(|seconds| (w.retention, html! { (seconds) " s" })));
    let print = word("fingerprint").filter(|print| print.bytes().any(|digit| digit != b'0'));
    rows.extend(print.map(|print| (w.fingerprint, html! { code.key { (print) } })));
    rows.push((w.index, html! { code.key { (claim.index) } }));
    rows
}

fn actions(claim: &Summary, w: &'static Words) -> Markup {
    let says: Vec<_> = Say::ALL.into_iter().filter(|say| say.fits(claim.state)).collect();
    html! {
        @if !says.is_empty() {
            section aria-labelledby="word" {
                h2 #word { (w.your_word) }
                @if claim.state == StateName::InDoubt { p { (w.find_out_first) } }
                ul.choices {
                    @for say in says {
                        li {
                            a.button href=(href("/claims/say", claim, &[("word", say.word())])) { (say.texts(w).0) "…" }
                            span.hint { (say.texts(w).1) }
                        }
                    }
                }
            }
        }
    }
}

fn metadata(claim: &Summary, w: &'static Words) -> Markup {
    html! {
        section aria-labelledby="metadata" {
            h2 #metadata { (w.metadata) }
            @match serde_json::to_value(&claim.metadata) {
                Ok(Value::Object(fields)) if !fields.is_empty() => {
                    dl.facts { @for (name, value) in &fields { div { dt { (visible(name)) } dd.key { (visible(&value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned))) } } } }
                },
                _ => { p.empty { (w.no_metadata) } },
            }
        }
    }
}

/// The stored answer: hidden unless the settings allow it, since it is the callers' data.
fn outcome(shown: &Shown, bodies: Bodies, w: &'static Words) -> Markup {
    let (answer, plain) = (shown.0.get("answer"), shown.0.get("outcome"));
    if let Some(reason) = shown.0.get("answer_not_kept").and_then(Value::as_str) {
        return html! { h2 { (w.outcome) } p { (w.answer_not_kept) ": " (visible(reason)) } };
    }
    let Some(value) = answer.or(plain) else { return html! {} };
    let status = answer.and_then(|answer| answer.get("status")).map(Value::to_string);
    let bytes = shown.0.get("outcome_bytes").and_then(Value::as_u64);
    html! {
        section aria-labelledby="outcome" {
            h2 #outcome { (w.outcome) }
            p {
                @if let Some(status) = status { "HTTP " (status) " · " }
                @if let Some(bytes) = bytes { (number(bytes)) " " (w.bytes) }
            }
            @match bodies {
                Bodies::Masked => { p.empty { (w.body_masked) } },
                Bodies::Shown => { pre.body tabindex="0" aria-label=(w.outcome) { (visible_lines(&serde_json::to_string_pretty(value).unwrap_or_default())) } },
            }
        }
    }
}
