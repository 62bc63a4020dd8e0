//! What was unusual in the last days: a list on the overview and on the history page.

use ichido_core::Timestamp;
use ichido_history::anomalies::{Finding, Found};
use maud::{Markup, html};

use super::Console;
use super::language::Language;
use super::page::{View, exact_time, number};
use super::translations::fill;
use crate::histories::LastLook;
use ichido_serve::visible;

/// The findings on the overview. The history page has them all.
const OVERVIEW_MAX: usize = 5;

/// The list of the overview: the newest findings.
pub(super) fn newest(view: &View, console: &Console) -> Markup {
    draw(view, console, OVERVIEW_MAX)
}

/// The list of the history page.
pub(super) fn all(view: &View, console: &Console) -> Markup {
    draw(view, console, usize::MAX)
}

fn draw(view: &View, console: &Console, most: usize) -> Markup {
    let t = view.t;
    let body = match console.app.admin.histories.last_look() {
        None => return html! {},
        Some(LastLook::Never) => html! { p.hint { (t.looking_for_anomalies) } },
        Some(LastLook::Failed(error)) => html! { p.notice.warn { (visible(&error)) } },
        Some(LastLook::Found(found)) => html! {
            @if found.findings.is_empty() { p.empty { (t.no_anomalies) } }
            @else { ul.findings { @for finding in found.findings.iter().rev().take(most) { (item(view, finding)) } } }
            @if found.findings.len() > most {
                p { a href="/history#anomalies" { (t.all_anomalies) (t.in_parentheses(number(found.findings.len() as u64))) } }
            }
            @if found.known_hours < Found::HOURS_MIN {
                p.hint { (fill(t.hours_to_judge, format_args!("{} / {}", found.known_hours, Found::HOURS_MIN))) }
            }
        },
    };
    html! { section aria-labelledby="anomalies" { h2 #anomalies { (t.anomalies) } (body) } }
}

fn item(view: &View, finding: &Finding) -> Markup {
    let text = match view.lang {
        Language::En => &finding.text,
        Language::Ja => &finding.text_ja,
    };
    html! {
        li {
            span.when { (exact_time(Timestamp(finding.at))) }
            " " span.mark.warn { (view.t.anomaly(finding.kind)) }
            " " span.sentence { (visible(text)) }
            " " a href=(finding.page) { (view.t.show_hours) }
        }
    }
}
