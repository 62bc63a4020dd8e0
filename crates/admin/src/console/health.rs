//! The state of each component, and a summary at the top of the overview.
//!
//! Everything here is also sent to open pages, so that none of them stays green during an outage.

use maud::{Markup, html};

use super::sampler::Snapshot;
use super::translations::{Translations, fill};
use ichido_serve::visible;

/// The state of a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Good,
    /// It works, but degraded.
    Warn,
    Bad,
    /// Not checked yet.
    Unknown,
}

impl Status {
    fn name(self) -> &'static str {
        match self {
            Status::Good => "good",
            Status::Warn => "warn",
            Status::Bad => "bad",
            Status::Unknown => "unknown",
        }
    }
}

/// A component and its state.
struct Check {
    name: &'static str,
    label: &'static str,
    state: Status,
    text: String,
}

/// The health of all components.
pub(super) struct Health {
    checks: Vec<Check>,
    t: &'static Translations,
}

impl Health {
    /// The health of the components with these names, from the last checks.
    pub(super) fn of(names: &[&'static str], snapshot: &Snapshot, t: &'static Translations) -> Self {
        let mut checks: Vec<Check> = names.iter().map(|name| probed(name, snapshot, t)).collect();
        let totals = &snapshot.totals;
        if totals.has_fallback {
            let (state, text) = match totals.degraded {
                true => (Status::Warn, t.fallback_active),
                false => (Status::Good, t.fallback_standby),
            };
            checks.push(Check { name: "fallback", label: t.fallback, state, text: text.to_owned() });
        }
        let (state, text) = match snapshot.recent_errors() {
            0 => (Status::Good, t.no_recent_errors.to_owned()),
            errors => (Status::Bad, fill(t.recent_errors, super::page::number(errors))),
        };
        checks.push(Check { name: "responses", label: t.responses, state, text });
        Self { checks, t }
    }

    fn state(&self) -> Status {
        let is = |state: Status| self.checks.iter().any(|check| check.state == state);
        [Status::Bad, Status::Warn, Status::Unknown]
            .into_iter()
            .find(|state| is(*state))
            .unwrap_or(Status::Good)
    }

    /// A summary in one line.
    fn headline(&self) -> String {
        let t = self.t;
        let wrong = self.checks.iter().filter(|check| matches!(check.state, Status::Bad | Status::Warn));
        let labels: Vec<_> = wrong.map(|check| check.label).collect();
        match self.state() {
            Status::Good => t.health_good.to_owned(),
            Status::Unknown => t.health_checking.to_owned(),
            Status::Bad | Status::Warn => fill(t.health_bad, labels.join(t.comma)),
        }
    }

    /// The summary, if a component fails or works in a degraded mode.
    pub(super) fn problem(&self) -> Option<String> {
        matches!(self.state(), Status::Bad | Status::Warn).then(|| self.headline())
    }

    pub(super) fn draw(&self) -> Markup {
        html! {
            section aria-label=(self.t.health) {
                p.notice #health role="status" data-live="health" data-state-of="health-state" data-state=(self.state().name()) {
                    (self.headline())
                }
                ul.health {
                    @for check in &self.checks {
                        li data-state-of={ "health-" (check.name) "-state" } data-state=(check.state.name()) {
                            b { (check.label) } (self.t.colon) span data-live={ "health-" (check.name) } { (check.text) }
                        }
                    }
                }
            }
        }
    }

    /// What live pages replace: texts and states.
    pub(super) fn live(&self) -> Vec<(String, String)> {
        let mut live = vec![
            ("health".to_owned(), self.headline()),
            ("health-state".to_owned(), self.state().name().to_owned()),
        ];
        for check in &self.checks {
            live.push((format!("health-{}", check.name), check.text.clone()));
            live.push((format!("health-{}-state", check.name), check.state.name().to_owned()));
        }
        live
    }
}

fn probed(name: &'static str, snapshot: &Snapshot, t: &'static Translations) -> Check {
    let (state, text) = match snapshot.verdicts.iter().find(|verdict| verdict.name == name) {
        None => (Status::Unknown, t.health_checking.to_owned()),
        Some(verdict) => match &verdict.detail {
            None => (Status::Good, t.component_ok.to_owned()),
            Some(detail) => {
                (Status::Bad, format!("{}{}", t.component_failing, t.in_parentheses(visible(detail))))
            }
        },
    };
    Check { name, label: t.component(name), state, text }
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
    fn failing_component_is_in_the_headline() {
        let names = ["ledger", "upstream"];
        let of = |snapshot: &Snapshot| Health::of(&names, snapshot, &EN);
        let shown = |snapshot: &Snapshot| (of(snapshot).state(), of(snapshot).headline());
        let mut snapshot = Snapshot::default();
        assert_eq!(shown(&snapshot), (Status::Unknown, "Checking…".to_owned()));
        snapshot.verdicts = vec![verdict("ledger", None), verdict("upstream", None)];
        assert_eq!(shown(&snapshot), (Status::Good, "Everything is working.".to_owned()));
        snapshot.verdicts[1] = verdict("upstream", Some("h:1 is unreachable"));
        assert_eq!(shown(&snapshot), (Status::Bad, "Problems with: Upstream".to_owned()));
        assert_eq!(of(&snapshot).checks[1].text, "failing (h:1 is unreachable)");
    }

    #[test]
    fn errors_are_recent_for_a_minute() {
        let mut snapshot = Snapshot { verdicts: vec![verdict("ledger", None)], ..Snapshot::default() };
        let shown = |snapshot: &Snapshot| {
            let health = Health::of(&["ledger"], snapshot, &EN);
            (health.headline(), health.checks[1].text.clone())
        };
        let wrong = |text: &str| ("Problems with: Responses".to_owned(), text.to_owned());
        snapshot.samples.extend([sample(100, 0), sample(102, 7)]);
        assert_eq!(shown(&snapshot), wrong("7 errors in the last minute"));
        snapshot.samples.push_back(sample(160, 9));
        assert_eq!(shown(&snapshot), wrong("9 errors in the last minute"));
        snapshot.samples.extend([sample(162, 9), sample(220, 9)]);
        assert_eq!(
            shown(&snapshot),
            ("Everything is working.".to_owned(), "no errors in the last minute".to_owned())
        );
    }
}
