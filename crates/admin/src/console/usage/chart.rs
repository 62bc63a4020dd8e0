//! A stacked bar chart: a bar per day, a segment per model.

use ichido_meter::report::Group;
use jiff::ToSpan;
use jiff::civil::Date;
use maud::{Markup, html};

use crate::console::page::number;
use crate::console::translations::Translations;
use ichido_serve::visible;

/// Models with their own colour. The rest share one segment.
const COLOURS: usize = 5;
/// The size of the drawing in its own units.
const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 160.0;

/// Tokens by day and model.
pub(super) struct BarChart {
    days: Vec<Date>,
    /// The models with the most tokens first; the others follow as one entry with an empty name.
    models: Vec<(String, u64)>,
    /// Per day, per model.
    tokens: Vec<Vec<u64>>,
}

impl BarChart {
    pub(super) fn new(from: Date, to: Date, groups: &[Group]) -> Self {
        let days: Vec<Date> = from.series(1.day()).take_while(|day| *day <= to).collect();
        let mut models: Vec<(String, u64)> = Vec::new();
        for group in groups {
            let (model, tokens) = (model_of(group), tokens_of(group));
            match models.iter_mut().find(|(known, _)| *known == model) {
                Some((_, total)) => *total += tokens,
                None => models.push((model, tokens)),
            }
        }
        models.sort_by(|one, other| other.1.cmp(&one.1).then(one.0.cmp(&other.0)));
        let rest: u64 = models.iter().skip(COLOURS).map(|(_, tokens)| tokens).sum();
        let has_rest = models.len() > COLOURS;
        models.truncate(COLOURS);
        if has_rest {
            models.push((String::new(), rest));
        }
        let mut tokens = vec![vec![0; models.len()]; days.len()];
        for group in groups {
            let day = group.usage_date.as_deref().and_then(|day| day.parse::<Date>().ok());
            let day = day.and_then(|day| days.binary_search(&day).ok());
            let model = model_of(group);
            let model = models.iter().position(|(known, _)| *known == model).unwrap_or(COLOURS);
            if let Some(cell) = day.and_then(|day| tokens.get_mut(day)).and_then(|day| day.get_mut(model)) {
                *cell += tokens_of(group);
            }
        }
        Self { days, models, tokens }
    }

    fn top(&self) -> u64 {
        self.tokens.iter().map(|day| day.iter().sum()).max().unwrap_or(0).max(1)
    }

    /// The chart with its table.
    pub(super) fn draw(&self, t: &Translations, numbers: &Markup) -> Markup {
        let name = |model: &str| if model.is_empty() { t.other.to_owned() } else { model.to_owned() };
        let ends = (self.days.first(), self.days.last());
        let view = format!("0 0 {WIDTH} {HEIGHT}");
        html! {
            figure.plot {
                figcaption #bars-title { (t.tokens_by_day) }
                ul.legend {
                    @for (index, (model, tokens)) in self.models.iter().enumerate() {
                        li { span class={ "block bar-" (index) } aria-hidden="true" {} span.key { (visible(&name(model))) } " " b { (number(*tokens)) } }
                    }
                }
                div.drawing {
                    span.top aria-hidden="true" { (number(self.top())) }
                    svg.tall viewBox=(view) preserveAspectRatio="none" role="img" aria-labelledby="bars-title" {
                        @for (index, x, y, width, height) in self.rectangles() {
                            rect class={ "bar-" (index) } x=(x) y=(y) width=(width) height=(height) {}
                        }
                    }
                    @if let (Some(first), Some(last)) = ends {
                        span.left aria-hidden="true" { (first) }
                        span.right aria-hidden="true" { (last) }
                    }
                }
                details { summary { (t.values_as_table) } (numbers) }
            }
        }
    }

    /// The segments: model, left, top, width, height.
    #[allow(clippy::cast_precision_loss, reason = "a drawing")]
    fn rectangles(&self) -> Vec<(usize, String, String, String, String)> {
        let (slot, top) = (WIDTH / self.days.len().max(1) as f64, self.top() as f64);
        let mut rectangles = Vec::new();
        for (day, tokens) in self.tokens.iter().enumerate() {
            let mut foot = HEIGHT;
            for (model, tokens) in tokens.iter().enumerate().filter(|(_, tokens)| **tokens > 0) {
                let height = *tokens as f64 / top * (HEIGHT - 2.0);
                foot -= height;
                let text = |value: f64| format!("{value:.2}");
                rectangles.push((
                    model,
                    text(day as f64 * slot + slot * 0.1),
                    text(foot),
                    text(slot * 0.8),
                    text(height),
                ));
            }
        }
        rectangles
    }
}

pub(super) fn model_of(group: &Group) -> String {
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    format!("{} / {}", part(&group.provider), part(&group.model))
}

fn tokens_of(group: &Group) -> u64 {
    u64::try_from(group.total_tokens).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(day: &str, model: &str, total_tokens: i64) -> Group {
        let (usage_date, model) = (Some(day.to_owned()), Some(model.to_owned()));
        Group { usage_date, model, total_tokens, ..Group::default() }
    }

    #[test]
    fn models_beyond_the_colours_share_one_segment() {
        let mut groups: Vec<_> = (0..8).map(|n| group("2025-11-02", &format!("m{n}"), 100 - n)).collect();
        groups.push(group("2025-11-01", "m0", 7));
        groups.push(group("2025-10-31", "m0", 1_000));
        let chart = BarChart::new("2025-11-01".parse().unwrap(), "2025-11-03".parse().unwrap(), &groups);
        assert_eq!((chart.days.len(), chart.models.len()), (3, 6));
        assert_eq!(chart.models[5], (String::new(), 95 + 94 + 93));
        assert_eq!(chart.tokens[0], [7, 0, 0, 0, 0, 0], "days outside the period are not drawn");
        assert_eq!(chart.tokens[1][5], 282);
        assert_eq!(chart.tokens[2].iter().sum::<u64>(), 0);
        assert_eq!(chart.rectangles().len(), 7);
    }
}
