//! The layout of every page, and the elements that pages are built from.

use axum::extract::{FromRef, FromRequestParts};
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{StatusCode, header};
use ichido_core::Timestamp;
use ichido_delivery::time::parse_iso;
use maud::{DOCTYPE, Markup, html};

use super::language::Language;
use super::translations::Translations;
use super::{PageContext, Sections, assets};
use crate::audit_log::Actor;
use crate::auth::{Access, Peer, Visitor};
use crate::browser::with_security_headers;
use crate::trace::ID_CHARS_MAX;
use ichido_serve::visible;

/// How the markup of an amount starts.
const AMOUNT: &str = "<span class=\"amount\">";

/// A section of the console.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    Overview,
    Claims,
    Events,
    History,
    Delivery,
    Usage,
    System,
    /// Sign-in and error pages.
    None,
}

/// Who views a page, in which language, and at which URL.
#[derive(Debug)]
pub(super) struct View {
    pub(super) lang: Language,
    pub(super) t: &'static Translations,
    pub(super) visitor: Visitor,
    peer: Peer,
    /// Path and query.
    path: String,
    sections: Sections,
}

impl<S: Send + Sync> FromRequestParts<S> for View
where
    PageContext: FromRef<S>,
{
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, StatusCode> {
        let (visitor, peer) = (parts.extensions.get::<Visitor>(), parts.extensions.get::<Peer>());
        let (Some(visitor), Some(peer)) = (visitor, peer) else { return Err(StatusCode::FORBIDDEN) };
        let lang = Language::of(&parts.headers);
        let path = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str).to_owned();
        let sections = PageContext::from_ref(state).sections;
        Ok(Self { lang, t: lang.translations(), visitor: visitor.clone(), peer: *peer, path, sections })
    }
}

impl View {
    /// The visitor, for the audit log.
    pub(super) fn actor(&self) -> Actor {
        self.visitor.actor(self.peer)
    }

    /// Whether the visitor may change anything.
    pub(super) fn may_act(&self) -> bool {
        self.visitor.access == Some(Access::Full)
    }

    /// A page.
    pub(super) fn page(&self, section: Section, title: &str, body: Markup) -> Response {
        self.page_with_status(StatusCode::OK, section, title, body)
    }

    pub(super) fn page_with_status(
        &self,
        status: StatusCode,
        section: Section,
        title: &str,
        body: Markup,
    ) -> Response {
        let t = self.t;
        let page = html! {
            (DOCTYPE)
            html lang=(self.lang.tag()) {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (title) " · ichido" }
                    link rel="stylesheet" href=(assets::STYLE.href());
                    link rel="icon" type="image/svg+xml" href=(assets::ICON.href());
                    script src=(assets::SCRIPT.href()) defer {}
                }
                body {
                    a.skip href="#main" { (t.skip) }
                    header.top {
                        div.wide {
                            a.brand href="/" { "ichido" span lang="ja" { "一度" } }
                            @if self.visitor.access.is_some() { (self.navigation(section)) }
                            div.tools {
                                @if self.visitor.access.is_some() { (search_box(self.t)) }
                                (self.language_switch())
                                @if let Some(name) = self.visitor.known_name() { span.user title=(t.signed_in_as) { (visible(name)) } }
                                @if self.visitor.has_session() { (self.button("/sign-out", &[], t.sign_out, "quiet")) }
                            }
                        }
                    }
                    main #main .wide tabindex="-1" {
                        h1 { (title) }
                        @if self.visitor.access == Some(Access::Read) { p.hint { (t.read_only) } }
                        (body)
                    }
                    footer.wide { p { "ichido " (env!("CARGO_PKG_VERSION")) " · " (t.times_are_utc) } }
                }
            }
        };
        with_security_headers(
            (status, [(header::CONTENT_TYPE, "text/html; charset=utf-8")], page.into_string())
                .into_response(),
        )
    }

    fn navigation(&self, here: Section) -> Markup {
        let t = self.t;
        let Sections { ledger, history, delivery, usage } = self.sections;
        let links = [
            (ledger, Section::Overview, "/", t.overview),
            (ledger, Section::Claims, "/claims", t.claims),
            (ledger, Section::Events, "/events", t.events),
            (history, Section::History, "/history", t.history),
            (delivery, Section::Delivery, "/delivery", t.delivery),
            (usage, Section::Usage, "/usage", t.usage),
            (ledger, Section::System, "/system", t.system),
        ];
        let links = links.into_iter().filter(|(there, ..)| *there);
        html! {
            nav aria-label=(t.main_navigation) {
                ul {
                    @for (_, section, path, name) in links {
                        li { a href=(path) aria-current=[(section == here).then_some("page")] { (name) } }
                    }
                }
            }
        }
    }

    fn language_switch(&self) -> Markup {
        let other = self.lang.other();
        html! {
            form method="post" action="/language" {
                (self.csrf_field())
                input type="hidden" name="to" value=(other.tag());
                input type="hidden" name="back" value=(self.path);
                button.quiet type="submit" lang=(other.tag()) { (other.name()) }
            }
        }
    }

    /// The hidden field with the CSRF token.
    pub(super) fn csrf_field(&self) -> Markup {
        html! { input type="hidden" name="csrf" value=(self.visitor.csrf()); }
    }

    /// A form that consists of one button.
    pub(super) fn button(&self, action: &str, fields: &[(&str, &str)], label: &str, class: &str) -> Markup {
        html! {
            form method="post" action=(action) {
                (self.csrf_field())
                @for (name, value) in fields { input type="hidden" name=(name) value=(value); }
                button type="submit" class=(class) { (label) }
            }
        }
    }

    /// A link to what the history tells about a key, if there is a history.
    pub(super) fn timeline_link(&self, index: &str) -> Markup {
        html! {
            @if self.sections.history {
                p { a href=(link("/history/timeline", &[("hash", index)])) { (self.t.show_timeline) } }
            }
        }
    }

    /// A page with an error message.
    pub(super) fn error_page(&self, status: StatusCode, section: Section, why: &str) -> Response {
        let body = html! { p.notice.bad role="alert" { (visible(why)) } p { a href="/" { (self.t.back_to_overview) } } };
        self.page_with_status(status, section, self.t.error_title, body)
    }
}

/// A table. Narrow screens show each row as a card, each value with the name of its column.
pub(super) fn table(caption: &str, heads: &[&str], rows: &[Vec<Markup>]) -> Markup {
    captioned(&html! { caption { (caption) } }, heads, rows)
}

/// A table below a heading: only screen readers get the caption.
pub(super) fn table_under_heading(caption: &str, heads: &[&str], rows: &[Vec<Markup>]) -> Markup {
    captioned(&html! { caption.hidden { (caption) } }, heads, rows)
}

fn captioned(caption: &Markup, heads: &[&str], rows: &[Vec<Markup>]) -> Markup {
    let numbers: Vec<bool> = (0..heads.len()).map(|column| has_numbers(rows, column)).collect();
    // The roles repeat what the elements mean: browsers drop that meaning from tables that are laid out as cards.
    html! {
        table.cards role="table" {
            (caption)
            thead role="rowgroup" {
                tr role="row" { @for (head, is_number) in heads.iter().zip(&numbers) { th.number[*is_number] scope="col" role="columnheader" { (head) } } }
            }
            tbody role="rowgroup" {
                @for row in rows {
                    tr role="row" {
                        @for ((cell, head), is_number) in row.iter().zip(heads).zip(&numbers) {
                            td.number[*is_number] role="cell" data-label=(head) { (cell) }
                        }
                    }
                }
            }
        }
    }
}

/// Whether a column has numbers, and nothing else. It is aligned to the right.
fn has_numbers(rows: &[Vec<Markup>], column: usize) -> bool {
    let mut cells =
        rows.iter().filter_map(|row| row.get(column)).filter(|cell| !cell.0.is_empty()).peekable();
    cells.peek().is_some() && cells.all(is_number)
}

/// Whether a cell contains nothing but a number, or an amount with its unit.
fn is_number(cell: &Markup) -> bool {
    let text = cell.0.as_str();
    if text.starts_with(AMOUNT) {
        return true;
    }
    let is_part = |char: char| char.is_ascii_digit() || matches!(char, ',' | '.' | ' ' | '%');
    text.starts_with(|char: char| char.is_ascii_digit())
        && text.strip_suffix(" ms").unwrap_or(text).chars().all(is_part)
}

/// A list of names and values.
pub(super) fn facts(rows: &[(&str, Markup)]) -> Markup {
    html! { dl.facts { @for (name, value) in rows { div { dt { (name) } dd { (value) } } } } }
}

/// A number with thousands separators.
pub(super) fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A timestamp, to the second. The script shows how long ago it was; the exact time is the tooltip then.
pub(super) fn time(at: Timestamp) -> Markup {
    let moment = moment(at.0);
    html! {
        time data-relative datetime=(moment.strftime("%Y-%m-%dT%H:%M:%SZ")) title=(moment.strftime("%Y-%m-%d %H:%M:%S UTC")) {
            (moment.strftime("%Y-%m-%d %H:%M:%S"))
        }
    }
}

/// A timestamp that stays exact, for places where moments are compared.
pub(super) fn exact_time(at: Timestamp) -> Markup {
    let moment = moment(at.0);
    html! {
        time datetime=(moment.strftime("%Y-%m-%dT%H:%M:%SZ")) { (moment.strftime("%Y-%m-%d %H:%M:%S")) }
    }
}

/// A timestamp that is recorded as text.
pub(super) fn time_of(text: &str) -> Markup {
    match parse_iso(text) {
        Some(at) => time(at),
        None => html! { (visible(text)) },
    }
}

/// The search box of the trace, at the top of every page.
fn search_box(t: &Translations) -> Markup {
    html! {
        form.find method="get" action="/trace" role="search" aria-label=(t.trace) {
            input type="search" name="id" aria-label=(t.trace_label) placeholder=(t.trace_placeholder) required
                maxlength=(ID_CHARS_MAX) autocomplete="off" spellcheck="false";
        }
    }
}

/// The time of day.
pub(super) fn clock(ms: u64) -> String {
    moment(ms).strftime("%H:%M:%S").to_string()
}

/// A moment in the given format.
pub(super) fn hour_label(ms: u64, format: &str) -> String {
    moment(ms).strftime(format).to_string()
}

fn moment(ms: u64) -> jiff::Zoned {
    let at = i64::try_from(ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    at.unwrap_or(jiff::Timestamp::UNIX_EPOCH).to_zoned(jiff::tz::TimeZone::UTC)
}

/// A path with a query string.
pub(super) fn link(path: &str, query: &[(&str, &str)]) -> String {
    let mut text = url::form_urlencoded::Serializer::new(String::new());
    for (name, value) in query {
        text.append_pair(name, value);
    }
    let query = text.finish();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_numbers_are_aligned_to_the_right() {
        let cell = |text: &str| is_number(&html! { (text) });
        let amount = |text: &str| html! { span.amount { (text) } };
        assert!(is_number(&amount("≥ 99.90 %")));
        let row = |number: &str| vec![html! { (number) }, amount("–"), html! { (number) }, html! {}];
        let rows = [row("1"), vec![html! {}, amount("5 USD"), html! { "1 · failed" }, html! {}]];
        assert_eq!([0, 1, 2, 3].map(|column| has_numbers(&rows, column)), [true, true, false, false]);
        let html = table("caption", &["a", "b", "c", "d"], &rows).into_string();
        assert_eq!(html.matches(r#"<th class="number""#).count(), 2, "{html}");
        for number in ["0", "1,234", "12.5 %", "12 ms"] {
            assert!(cell(number), "{number}");
        }
        for text in ["", "–", "2026-11-18 10:00:00", "12 ms · timeout", "4f2a", "10.0.0.1:80"] {
            assert!(!cell(text), "{text}");
        }
    }

    #[test]
    fn numbers_and_links_are_well_formed() {
        for (value, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(number(value), text);
        }
        assert_eq!(link("/claims", &[]), "/claims");
        assert_eq!(link("/c", &[("key", "a&b=\"<é>")]), "/c?key=a%26b%3D%22%3C%C3%A9%3E");
    }
}
