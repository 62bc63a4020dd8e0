//! The plots of the history page as SVG. The pointer shows the value of each hour or source, and a table under each plot has them all.
//!
//! The axes do not move: the days of the period are always all there, and each day has 24 hours. Labels are text around the
//! drawing, so that they can be read aloud and do not shrink with it.

use std::fmt::Write;

use ichido_history::OTHER_SOURCES;
use maud::{Markup, html};

use super::report::{HOURS_PER_DAY, Hour, Report};
use crate::console::page::{hour_label, number};
use crate::console::translations::Translations;
use ichido_serve::visible;

/// The colours of the heat map, from few to many.
const LEVELS: u64 = 5;
/// The sources that are drawn. The table has more.
const SOURCES_DRAWN: usize = 12;
const SOURCES_LISTED: usize = 100;
/// The most bars of a plot over time.
const BARS_MAX: usize = 24 * 7;
/// The size of a drawing over time in its own units.
const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 120.0;

/// What came in, hour by hour and day by day. One hour may be marked.
pub(super) fn heat_map(report: &Report, marked: Option<usize>, t: &Translations) -> Markup {
    let most = report.hours.iter().map(|hour| hour.received).max().unwrap_or(0);
    let days: Vec<_> = report.hours.chunks(HOURS_PER_DAY).enumerate().collect();
    let label = |day: usize| hour_label(report.start_of(day * HOURS_PER_DAY), "%m-%d");
    html! {
        figure.plot {
            figcaption #heat-title { (t.received_by_hour) }
            ul.legend {
                li { span.block.heat-0 aria-hidden="true" {} "0" }
                @for level in 1..=LEVELS {
                    @if let Some(up_to) = upper_end(level, most) {
                        li { span class={ "block heat-" (level) } aria-hidden="true" {} "≤ " (number(up_to)) }
                    }
                }
            }
            div class={ "chart days-" (report.days) } {
                ol.rows aria-hidden="true" { @for (day, _) in &days { li { (label(*day)) } } }
                div.field {
                    svg viewBox={ "0 0 " (HOURS_PER_DAY) " " (report.days) } preserveAspectRatio="none" role="img" aria-labelledby="heat-title" {
                        @for (slot, hour) in report.hours.iter().enumerate() {
                            rect class={ "heat-" (level(hour.received, most)) @if marked == Some(slot) { " marked" } } x=(slot % HOURS_PER_DAY) y=(slot / HOURS_PER_DAY) width="1" height="1" {
                                title { (hour_label(report.start_of(slot), "%m-%d %H:00")) " – " (t.received) " " (number(hour.received)) (t.comma) (t.repeats) " " (number(hour.repeats)) }
                            }
                        }
                    }
                }
                div.axis aria-hidden="true" { @for hour in [0, 6, 12, 18] { span { (hour) ":00" } } }
            }
            details {
                summary { (t.values_as_table) }
                div.scroll tabindex="0" role="region" aria-label=(t.received_by_hour) {
                    table.small {
                        caption.hidden { (t.received_by_hour) }
                        thead { tr { th scope="col" { (t.day) } @for hour in 0..HOURS_PER_DAY { th.number scope="col" { (hour) } } } }
                        tbody {
                            @for (day, hours) in days.iter().rev() {
                                tr { th scope="row" { (label(*day)) } @for hour in *hours { td.number { (number(hour.received)) } } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The colour of a value: the square root lets small values differ, too.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a colour"
)]
fn level(value: u64, most: u64) -> u64 {
    if value == 0 {
        return 0;
    }
    (((value as f64 / most.max(1) as f64).sqrt() * LEVELS as f64).ceil() as u64).clamp(1, LEVELS)
}

/// The largest value with a colour. `None` if no value has it.
fn upper_end(of: u64, most: u64) -> Option<u64> {
    // At most the rounding of a square root away from the inverse.
    let near = most * of * of / (LEVELS * LEVELS);
    let highest =
        (near.saturating_sub(1)..=(near + 1).min(most)).rev().find(|value| level(*value, most) <= of)?;
    (level(highest, most) == of).then_some(highest)
}

/// Repeats by channel, repository or account.
pub(super) fn sources(report: &Report, t: &Translations) -> Markup {
    // All others together are not a source: they would set the scale.
    let drawn = report.sources.iter().filter(|source| source.repeats > 0 && source.name != OTHER_SOURCES);
    let drawn: Vec<_> = drawn.take(SOURCES_DRAWN).collect();
    let most = drawn.first().map_or(0, |source| source.repeats);
    let name = |name: &str| match name {
        "" => t.not_specified.to_owned(),
        OTHER_SOURCES => t.other.to_owned(),
        name => visible(name).to_string(),
    };
    let listed = report.sources.iter().take(SOURCES_LISTED);
    html! {
        figure.plot {
            figcaption #sources-title { (t.repeats_by_source) }
            @if drawn.is_empty() { p.hint { (t.no_repeats) } }
            @else {
                div.chart.sources {
                    ol.rows aria-hidden="true" { @for source in &drawn { li.key { (name(&source.name)) } } }
                    div.field {
                        svg viewBox={ "0 0 100 " (drawn.len()) } preserveAspectRatio="none" role="img" aria-labelledby="sources-title" {
                            @for (row, source) in drawn.iter().enumerate() {
                                rect.bar-0 x="0" y={ (row) ".15" } height=".7" width=(share(source.repeats, most)) {}
                                rect.hover x="0" y=(row) height="1" width="100" {
                                    title { (name(&source.name)) " – " (t.repeats) " " (number(source.repeats)) " / " (number(source.received)) " (" (percent(source.repeats, source.received)) ")" }
                                }
                            }
                        }
                    }
                    div.axis.ends aria-hidden="true" { span { "0" } span { (number(most)) } }
                }
            }
            details {
                summary { (t.values_as_table) }
                table.small {
                    caption.hidden { (t.repeats_by_source) }
                    thead { tr { th scope="col" { (t.source) } th.number scope="col" { (t.repeats) } th.number scope="col" { (t.received) } th.number scope="col" { (t.duplicate_rate) } } }
                    tbody {
                        @for source in listed {
                            tr {
                                th.key scope="row" { (name(&source.name)) }
                                td.number { (number(source.repeats)) }
                                td.number { (number(source.received)) }
                                td.number { (percent(source.repeats, source.received)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The width of a bar.
#[allow(clippy::cast_precision_loss, reason = "a drawing")]
fn share(value: u64, most: u64) -> String {
    format!("{:.2}", value as f64 / most.max(1) as f64 * 100.0)
}

/// A share as text.
#[allow(clippy::cast_precision_loss, reason = "rounded to a tenth of a percent")]
pub(super) fn percent(part: u64, whole: u64) -> String {
    match whole {
        0 => "–".to_owned(),
        whole => format!("{:.1} %", part as f64 / whole as f64 * 100.0),
    }
}

/// How long the ledger took: on average, and at most.
pub(super) fn latency(report: &Report, t: &Translations) -> Markup {
    let mean = |hour: &Hour| hour.latency_mean_us();
    let slowest = |hour: &Hour| hour.latency_mean_us().map(|_| hour.latency_max_us);
    html! {
        (over_time(report, "latency-mean", t.latency_mean, "bar-0", milliseconds, mean, None, t))
        (over_time(report, "latency-slowest", t.latency_slowest, "bar-1", milliseconds, slowest, None, t))
    }
}

/// When the fallback decided, or the ledger was unavailable.
pub(super) fn degraded(report: &Report, t: &Translations) -> Markup {
    let time = |ms: u64| hour_label(ms, "%m-%d %H:%M");
    let periods = report.degraded_periods();
    let table = html! {
        @if periods.is_empty() { p.hint { (t.never_degraded) } }
        @else {
            table.small {
                caption.hidden { (t.degraded_periods) }
                thead { tr { th scope="col" { (t.from_time) } th scope="col" { (t.to_time) } th.number scope="col" { (t.by_fallback) } th.number scope="col" { (t.ledger_unavailable) } } }
                tbody {
                    @for period in periods.iter().rev() {
                        tr {
                            th scope="row" { (time(period.from)) }
                            td { (time(period.to)) }
                            td.number { (number(period.fallback)) }
                            td.number { (number(period.unavailable)) }
                        }
                    }
                }
            }
        }
    };
    let value = |hour: &Hour| Some(hour.fallback + hour.unavailable);
    over_time(report, "degraded", t.degraded_periods, "bar-bad", number, value, Some(table), t)
}

fn milliseconds(us: u64) -> String {
    #[allow(clippy::cast_precision_loss, reason = "rounded to a tenth of a millisecond")]
    let ms = us as f64 / 1_000.0;
    format!("{ms:.1} ms")
}

/// Bars over time, with a table: of the bars, unless another one is given.
#[expect(clippy::too_many_arguments, reason = "one plot, described once")]
fn over_time(
    report: &Report,
    name: &str,
    title: &str,
    class: &str,
    text: fn(u64) -> String,
    value: impl Fn(&Hour) -> Option<u64>,
    table: Option<Markup>,
    t: &Translations,
) -> Markup {
    let per_bar = report.hours.len().div_ceil(BARS_MAX);
    let bars: Vec<_> = report.hours.chunks(per_bar).map(|hours| value(&Hour::sum(hours))).collect();
    let start = |bar: usize| report.start_of(bar * per_bar);
    let label = |bar: usize| hour_label(start(bar), "%m-%d %H:00");
    let top = round_up(bars.iter().flatten().copied().max().unwrap_or(0));
    #[allow(clippy::cast_precision_loss, reason = "a drawing")]
    let slot = WIDTH / bars.len().max(1) as f64;
    #[allow(clippy::cast_precision_loss, reason = "a drawing")]
    let left = |bar: usize| format!("{:.2}", bar as f64 * slot);
    let shown = |value: &Option<u64>| value.map_or_else(|| "–".to_owned(), text);
    html! {
        figure.plot {
            figcaption id={ (name) "-title" } { (title) }
            div.drawing {
                span.top aria-hidden="true" { (text(top)) }
                svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" role="img" aria-labelledby={ (name) "-title" } {
                    path.grid d=(midnights(report.days)) {}
                    path class=(class) d=(outline(&bars, top, slot)) {}
                    @for (bar, value) in bars.iter().enumerate() {
                        rect.hover x=(left(bar)) y="0" width=(format!("{slot:.2}")) height=(HEIGHT) {
                            title { (label(bar)) " – " (title) " " (shown(value)) }
                        }
                    }
                }
                span.left aria-hidden="true" { (hour_label(start(0), "%m-%d")) }
                span.right aria-hidden="true" { (hour_label(report.start_of(report.hours.len() - 1), "%m-%d")) }
            }
            details {
                summary { (t.values_as_table) }
                @match table {
                    Some(table) => (table),
                    None => {
                        table.small {
                            caption.hidden { (title) }
                            thead { tr { th scope="col" { (t.time) } th.number scope="col" { (title) } } }
                            tbody {
                                @for (bar, value) in bars.iter().enumerate().rev().filter(|(_, value)| value.is_some()) {
                                    tr { th scope="row" { (label(bar)) } td.number { (shown(value)) } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The bars as one shape.
#[allow(clippy::cast_precision_loss, reason = "a drawing")]
fn outline(bars: &[Option<u64>], top: u64, slot: f64) -> String {
    let mut path = String::new();
    for (bar, value) in bars.iter().enumerate().filter_map(|(bar, value)| Some((bar, (*value)?))) {
        let height = value as f64 / top.max(1) as f64 * (HEIGHT - 2.0);
        if height > 0.0 {
            // What is there is seen. Writing to a string does not fail.
            let (x, y, width) = (bar as f64 * slot + slot * 0.1, HEIGHT - height.max(1.0), slot * 0.8);
            let _ = write!(path, "M{x:.2} {HEIGHT}V{y:.2}h{width:.2}V{HEIGHT}z");
        }
    }
    path
}

#[allow(clippy::cast_precision_loss, reason = "a drawing")]
fn midnights(days: usize) -> String {
    let slot = WIDTH / days.max(1) as f64;
    (1..days).map(|day| format!("M{:.2} 0V{HEIGHT}", day as f64 * slot)).collect()
}

/// The upper end of a scale: a round number, so that it seldom changes.
fn round_up(value: u64) -> u64 {
    let unit = 10_u64.pow(value.max(1).ilog10());
    [1, 2, 5, 10].into_iter().map(|step| unit.saturating_mul(step)).find(|top| *top >= value).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_and_their_legend_agree() {
        for most in [0, 1, 2, 7, 25, 1_000, 123_457] {
            for value in 0..=most.min(2_000) {
                let level = level(value, most);
                assert_eq!(level == 0, value == 0);
                if level > 0 {
                    let up_to = upper_end(level, most).unwrap();
                    let below = (1..level).rev().find_map(|level| upper_end(level, most)).unwrap_or(0);
                    assert!(below < value && value <= up_to, "{value} of {most}: {below}..={up_to}");
                }
            }
            assert_eq!(level(most, most), if most == 0 { 0 } else { LEVELS });
            assert_eq!(upper_end(LEVELS, most), (most > 0).then_some(most));
        }
    }

    #[test]
    fn scales_end_at_round_numbers() {
        for (value, top) in [(0, 1), (1, 1), (3, 5), (10, 10), (11, 20), (999, 1_000), (5_001, 10_000)] {
            assert_eq!(round_up(value), top);
        }
        assert_eq!(round_up(u64::MAX), u64::MAX);
        assert_eq!(outline(&[None, Some(0), Some(5)], 5, 10.0), "M21.00 120V2.00h8.00V120z");
    }
}
