//! How the process is: each part with its state, and the sum of them in one line that stands at the top of the overview.
//!
//! Everything here is also sent to pages that are open, so that none of them stays green through an outage.

use maud::{Markup, html};

use super::sampler::Known;
use super::translations::Words;
use ichido_serve::visible;

/// How a part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Good,
    /// It works, but not as it should.
    Warn,
    Bad,
    /// It was not asked yet.
    Unknown,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            State::Good => "good",
            State::Warn => "warn",
            State::Bad => "bad",
            State::Unknown => "unknown",
        }
    }
}

/// One part.
struct Part {
    name: &'static str,
    label: &'static str,
    state: State,
    text: String,
}

/// What is known of all parts.
pub(super) struct Health {
    parts: Vec<Part>,
    w: &'static Words,
}

impl Health {
    /// The health of the parts with these names, from what was found last.
    pub(super) fn of(names: &[&'static str], known: &Known, w: &'static Words) -> Self {
        let mut parts: Vec<Part> = names.iter().map(|name| probed(name, known, w)).collect();
        let figures = &known.figures;
        if figures.has_fallback {
            let (state, text) = match figures.degraded {
                true => (State::Warn, w.fallback_answers),
                false => (State::Good, w.fallback_stands_by),
            };
            parts.push(Part { name: "fallback", label: w.fallback, state, text: text.to_owned() });
        }
        let (state, text) = match known.recent_errors() {
            0 => (State::Good, w.no_recent_errors.to_owned()),
            errors => (State::Bad, w.recent_errors.replace("{}", &super::page::number(errors))),
        };
        parts.push(Part { name: "answers", label: w.answers, state, text });
        Self { parts, w }
    }

    fn state(&self) -> State {
        let is = |state: State| self.parts.iter().any(|part| part.state == state);
        [State::Bad, State::Warn, State::Unknown].into_iter().find(|state| is(*state)).unwrap_or(State::Good)
    }

    /// All of it in one line.
    fn headline(&self) -> String {
        let w = self.w;
        let wrong = self.parts.iter().filter(|part| matches!(part.state, State::Bad | State::Warn));
        let labels: Vec<_> = wrong.map(|part| part.label).collect();
        match self.state() {
            State::Good => w.health_good.to_owned(),
            State::Unknown => w.health_checking.to_owned(),
            State::Bad | State::Warn => format!("{} {}", w.health_bad, labels.join(w.comma)),
        }
    }

    pub(super) fn draw(&self) -> Markup {
        html! {
            section aria-label=(self.w.health) {
                p.notice #health role="status" data-live="health" data-state-of="health-state" data-state=(self.state().word()) {
                    (self.headline())
                }
                ul.health {
                    @for part in &self.parts {
                        li data-state-of={ "health-" (part.name) "-state" } data-state=(part.state.word()) {
                            b { (part.label) } ": " span data-live={ "health-" (part.name) } { (part.text) }
                        }
                    }
                }
            }
        }
    }

    /// What a live page replaces: texts, and states.
    pub(super) fn live(&self) -> Vec<(String, String)> {
        let mut live = vec![
            ("health".to_owned(), self.headline()),
            ("health-state".to_owned(), self.state().word().to_owned()),
        ];
        for part in &self.parts {
            live.push((format!("health-{}", part.name), part.text.clone()));
            live.push((format!("health-{}-state", part.name), part.state.word().to_owned()));
        }
        live
    }
}

fn probed(name: &'static str, known: &Known, w: &'static Words) -> Part {
    let (state, text) = match known.verdicts.iter().find(|verdict| verdict.name == name) {
        None => (State::Unknown, w.health_checking.to_owned()),
        Some(verdict) => match &verdict.detail {
            None => (State::Good, w.works.to_owned()),
            Some(detail) => (State::Bad, format!("{} ({})", w.does_not_work, visible(detail))),
        },
    };
    Part { name, label: w.part(name), state, text }
}

#[cfg(test)]
mod tests {
    use ichido_core::Timestamp;

    use super::super::sampler::Sample;
    use super::super::translations::EN;
    use super::*;
    use ichido_serve::ProbeResult;

    fn verdict(name: &'static str, detail: Option<&str>) -> ProbeResult {
        ProbeResult { name, ok: detail.is_none(), detail: detail.map(ToOwned::to_owned) }
    }

    fn sample(seconds: u64, errors: u64) -> Sample {
        Sample { at: Timestamp(seconds * 1_000), errors, ..Sample::default() }
    }

    #[test]
    fn one_part_that_fails_is_in_the_headline() {
        let names = ["ledger", "upstream"];
        let of = |known: &Known| Health::of(&names, known, &EN);
        let told = |known: &Known| (of(known).state(), of(known).headline());
        let mut known = Known::default();
        assert_eq!(told(&known), (State::Unknown, "Checking…".to_owned()));
        known.verdicts = vec![verdict("ledger", None), verdict("upstream", None)];
        assert_eq!(told(&known), (State::Good, "Everything works.".to_owned()));
        known.verdicts[1] = verdict("upstream", Some("h:1 does not answer"));
        assert_eq!(told(&known), (State::Bad, "Something is wrong: Upstream".to_owned()));
        assert_eq!(of(&known).parts[1].text, "does not work (h:1 does not answer)");
    }

    #[test]
    fn errors_count_for_a_minute() {
        let mut known = Known { verdicts: vec![verdict("ledger", None)], ..Known::default() };
        let told = |known: &Known| {
            let health = Health::of(&["ledger"], known, &EN);
            (health.headline(), health.parts[1].text.clone())
        };
        let wrong = |text: &str| ("Something is wrong: Answers".to_owned(), text.to_owned());
        known.samples.extend([sample(100, 0), sample(102, 7)]);
        assert_eq!(told(&known), wrong("7 errors in the last minute"));
        known.samples.push_back(sample(160, 9));
        assert_eq!(told(&known), wrong("9 errors in the last minute"));
        known.samples.extend([sample(162, 9), sample(220, 9)]);
        assert_eq!(told(&known), ("Everything works.".to_owned(), "no errors in the last minute".to_owned()));
    }
}
