//! Line plots over time as SVG. Labels and numbers are text around the drawing, so that they can be read aloud and do
//! not shrink with it.

use std::collections::VecDeque;
use std::fmt::Write;

use maud::{Markup, html};

use super::page::{clock, number};
use super::sampler::{HISTORY, Sample};
use super::translations::Translations;

/// Points of a line.
const POINTS: u64 = 90;
const STEP_MS: u64 = HISTORY.as_secs() * 1_000 / POINTS;
/// Points per row of the table.
const POINTS_PER_ROW: usize = 6;
/// The size of the drawing in its own units.
const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 120.0;

/// Lines over the same period, with one scale.
pub(super) struct Plot {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    lines: Vec<Line>,
    /// The time of the last point, in milliseconds since the epoch.
    end_ms: u64,
}

/// A line, with gaps where values are unknown.
struct Line {
    label: &'static str,
    points: Vec<Option<f64>>,
}

impl Plot {
    pub(super) fn new(name: &'static str, title: &'static str, samples: &VecDeque<Sample>) -> Self {
        let end_ms = samples.back().map_or(0, |last| last.at.0);
        Self { name, title, lines: Vec::new(), end_ms }
    }

    /// Adds a line with the rate per second of a counter.
    #[must_use]
    pub(super) fn rate(
        mut self,
        label: &'static str,
        samples: &VecDeque<Sample>,
        of: fn(&Sample) -> u64,
    ) -> Self {
        let at = |moment: u64| samples.iter().rev().find(|sample| sample.at.0 <= moment).map(of);
        #[allow(clippy::cast_precision_loss, reason = "a point of a drawing")]
        let points = self.moments().map(|moment| {
            let (before, after) = (at(moment.saturating_sub(STEP_MS))?, at(moment)?);
            Some(after.saturating_sub(before) as f64 * 1_000.0 / STEP_MS as f64)
        });
        let points = points.collect();
        self.lines.push(Line { label, points });
        self
    }

    /// Adds a line with the values of a gauge.
    #[must_use]
    pub(super) fn depth(
        mut self,
        label: &'static str,
        samples: &VecDeque<Sample>,
        of: fn(&Sample) -> Option<u64>,
    ) -> Self {
        let at = |moment: u64| samples.iter().rev().find(|sample| sample.at.0 <= moment).and_then(of);
        #[allow(clippy::cast_precision_loss, reason = "a point of a drawing")]
        let points = self.moments().map(|moment| at(moment).map(|depth| depth as f64)).collect();
        self.lines.push(Line { label, points });
        self
    }

    fn moments(&self) -> impl Iterator<Item = u64> + use<> {
        let end = self.end_ms;
        (1..=POINTS).map(move |point| end.saturating_sub((POINTS - point) * STEP_MS))
    }

    /// What live pages replace: the scale, the lines and the last values.
    pub(super) fn live(&self) -> Vec<(String, String)> {
        let name = self.name;
        let mut live = vec![(format!("{name}-top"), self.top_text())];
        for (index, line) in self.lines.iter().enumerate() {
            live.push((format!("{name}-line-{index}"), self.path(line)));
            live.push((format!("{name}-last-{index}"), text(line.points.last().copied().flatten())));
        }
        live
    }

    pub(super) fn draw(&self, t: &Translations) -> Markup {
        let name = self.name;
        let view = format!("0 0 {WIDTH} {HEIGHT}");
        html! {
            figure.plot {
                figcaption id={ (name) "-title" } { (self.title) }
                ul.legend {
                    @for (index, line) in self.lines.iter().enumerate() {
                        li {
                            span class={ "swatch line-" (index) } aria-hidden="true" {}
                            (line.label) " "
                            b data-live={ (name) "-last-" (index) } { (text(line.points.last().copied().flatten())) }
                        }
                    }
                }
                div.drawing {
                    span.top aria-hidden="true" data-live={ (name) "-top" } { (self.top_text()) }
                    svg viewBox=(view) preserveAspectRatio="none" role="img" aria-labelledby={ (name) "-title" } {
                        path.grid d={ "M0 " (HEIGHT / 2.0) "H" (WIDTH) } {}
                        @for (index, line) in self.lines.iter().enumerate() {
                            path class={ "line line-" (index) } data-path={ (name) "-line-" (index) } d=(self.path(line)) {}
                        }
                    }
                    span.left aria-hidden="true" { (t.fifteen_minutes_ago) }
                    span.right aria-hidden="true" { (t.now) }
                }
                details {
                    summary { (t.values_as_table) }
                    (self.table(t))
                }
            }
        }
    }

    fn table(&self, t: &Translations) -> Markup {
        let moments: Vec<u64> = self.moments().collect();
        let rows = (0..moments.len()).rev().step_by(POINTS_PER_ROW);
        html! {
            table.small {
                caption.hidden { (self.title) }
                thead { tr { th scope="col" { (t.time) } @for line in &self.lines { th.number scope="col" { (line.label) } } } }
                tbody {
                    @for row in rows {
                        tr {
                            th scope="row" { (clock(moments[row])) }
                            @for line in &self.lines { td.number { (text(line.points[row])) } }
                        }
                    }
                }
            }
        }
    }

    fn path(&self, line: &Line) -> String {
        let (top, mut path, mut pen_down) = (self.top(), String::new(), false);
        #[allow(clippy::cast_precision_loss, reason = "a point of a drawing")]
        for (index, point) in line.points.iter().enumerate() {
            let Some(value) = point else {
                pen_down = false;
                continue;
            };
            let x = index as f64 * WIDTH / (POINTS - 1) as f64;
            let y = HEIGHT - value / top * (HEIGHT - 4.0) - 2.0;
            // A zero-length stroke, so that a single point is visible as a dot. Writing to a string does not fail.
            let _ = match pen_down {
                true => write!(path, "L{x:.1} {y:.1}"),
                false => write!(path, "M{x:.1} {y:.1}h0"),
            };
            pen_down = true;
        }
        path
    }

    /// The upper end of the scale, a round number.
    fn top(&self) -> f64 {
        let most =
            self.lines.iter().flat_map(|line| line.points.iter().flatten()).fold(1.0_f64, |a, b| a.max(*b));
        let unit = 10_f64.powf(most.log10().floor());
        [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * unit).find(|top| *top >= most).unwrap_or(most)
    }

    fn top_text(&self) -> String {
        text(Some(self.top()))
    }
}

/// A value as text: whole if it is large, otherwise with one decimal.
fn text(value: Option<f64>) -> String {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rounded, and never below nought"
    )]
    match value {
        None => "–".to_owned(),
        Some(value) if value >= 10.0 || value.fract() == 0.0 => number(value.round() as u64),
        Some(value) => format!("{value:.1}"),
    }
}

#[cfg(test)]
mod tests {
    use ichido_core::Timestamp;

    use super::*;

    fn samples(seconds: u64, of: impl Fn(u64) -> Sample) -> VecDeque<Sample> {
        (0..=seconds / 2)
            .map(|turn| Sample { at: Timestamp(1_000_000_000 + turn * 2_000), ..of(turn * 2) })
            .collect()
    }

    #[test]
    fn steady_rate_is_a_flat_line() {
        let samples = samples(900, |second| Sample { effects: second * 5, ..Sample::default() });
        let plot = Plot::new("p", "t", &samples).rate("effects", &samples, |sample| sample.effects);
        let points = &plot.lines[0].points;
        assert_eq!(points.len() as u64, POINTS);
        assert!(
            points[1..].iter().all(|point| point.is_some_and(|rate| (rate - 5.0).abs() < 1e-9)),
            "{points:?}"
        );
        assert!((plot.top() - 5.0).abs() < 1e-9);
        assert_eq!(plot.live()[2], ("p-last-0".to_owned(), "5".to_owned()));
    }

    #[test]
    fn unknown_values_are_gaps() {
        let samples =
            samples(60, |second| Sample { spool: (second >= 30).then_some(7), ..Sample::default() });
        let plot = Plot::new("p", "t", &samples).depth("spool", &samples, |sample| sample.spool);
        let known = plot.lines[0].points.iter().flatten().count();
        assert_eq!(known, 4, "30, 40, 50 and 60 s");
        assert!(plot.path(&plot.lines[0]).matches('M').count() == 1);
        let none =
            Plot::new("p", "t", &VecDeque::new()).depth("spool", &VecDeque::new(), |sample| sample.spool);
        assert_eq!((none.path(&none.lines[0]), none.top_text()), (String::new(), "1".to_owned()));
    }
}
