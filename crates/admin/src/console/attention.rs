//! What needs an operator: the first panel of the overview. On a good day it is one sentence.
//!
//! All items are in the page, those without a cause hidden, so that live updates can show them.

use maud::{Markup, html};

use super::Console;
use super::health::Health;
use super::page::{link, number};
use super::sampler::Snapshot;
use super::translations::{Translations, fill};
use crate::histories::LastLook;

/// How urgent an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Urgency {
    /// There is nothing to do: the item is hidden.
    None,
    Warn,
    Bad,
}

impl Urgency {
    fn name(self) -> &'static str {
        match self {
            Urgency::None => "none",
            Urgency::Warn => "warn",
            Urgency::Bad => "bad",
        }
    }
}

struct Item {
    name: &'static str,
    urgency: Urgency,
    text: String,
    /// Where the operator acts.
    to: Option<String>,
}

/// What needs attention now.
pub(super) struct Attention {
    items: Vec<Item>,
    t: &'static Translations,
}

impl Attention {
    /// Everything comes from the last samples: nothing is read here.
    pub(super) fn of(
        console: &Console,
        snapshot: &Snapshot,
        health: &Health,
        t: &'static Translations,
    ) -> Self {
        let counted = |name, urgency, count: Option<u64>, text: &str, to: String| {
            let count = count.unwrap_or_default();
            let urgency = if count == 0 { Urgency::None } else { urgency };
            Item { name, urgency, text: fill(text, number(count)), to: Some(to) }
        };
        let problem = health.problem();
        let mut items = vec![Item {
            name: "attention-health",
            urgency: if problem.is_some() { Urgency::Bad } else { Urgency::None },
            text: problem.unwrap_or_default(),
            to: None,
        }];
        let in_doubt = snapshot.stats.as_ref().and_then(|stats| stats.in_doubt);
        let to = link("/claims", &[("state", "in-doubt")]);
        items.push(counted("attention-in-doubt", Urgency::Bad, in_doubt, t.attention_in_doubt, to));
        if let Some((_, failed)) = &console.sampler.directories {
            let count = failed.cached().map(|listing| listing.count);
            let to = "/delivery?dir=failed".to_owned();
            items.push(counted("attention-failed", Urgency::Bad, count, t.attention_failed, to));
        }
        let twice = Some(snapshot.totals.suspected_twice);
        items.push(counted("attention-twice", Urgency::Bad, twice, t.attention_twice, "/claims".to_owned()));
        if let Some(LastLook::Found(found)) = console.app.admin.histories.last_look() {
            let count = Some(found.findings.len() as u64);
            let to = "/history#anomalies".to_owned();
            items.push(counted("attention-anomalies", Urgency::Warn, count, t.attention_anomalies, to));
        }
        Self { items, t }
    }

    pub(super) fn draw(&self) -> Markup {
        html! {
            section aria-labelledby="attention" {
                h2 #attention { (self.t.attention) }
                ul.attention {
                    @for item in &self.items {
                        li data-state-of={ (item.name) "-state" } data-state=(item.urgency.name()) {
                            @match &item.to {
                                Some(to) => a href=(to) data-live=(item.name) { (item.text) },
                                None => span data-live=(item.name) { (item.text) },
                            }
                        }
                    }
                    li.quiet data-state-of="attention-quiet-state" data-state=(self.quiet()) { (self.t.attention_none) }
                }
            }
        }
    }

    /// What live pages replace: texts and states.
    pub(super) fn live(&self) -> Vec<(String, String)> {
        let states =
            self.items.iter().map(|item| (format!("{}-state", item.name), item.urgency.name().to_owned()));
        let texts = self.items.iter().map(|item| (item.name.to_owned(), item.text.clone()));
        let quiet = ("attention-quiet-state".to_owned(), self.quiet().to_owned());
        texts.chain(states).chain([quiet]).collect()
    }

    /// The state of the sentence that is shown if there is nothing to do.
    fn quiet(&self) -> &'static str {
        let is_quiet = self.items.iter().all(|item| item.urgency == Urgency::None);
        if is_quiet { "good" } else { "none" }
    }
}
