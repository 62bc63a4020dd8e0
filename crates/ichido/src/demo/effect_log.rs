//! The judge of the demo: compares what the ledger says with what the log of effects shows.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Serialize;

use super::Row;
use super::ledger::Round;
use crate::output;
use ichido_serve::Failure;

/// How often each effect happened.
#[derive(Debug, Default)]
pub(super) struct Effects(BTreeMap<String, u32>);

impl Effects {
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(Failure::internal(format!("{}: {error}", path.display()))),
        };
        let mut effects = BTreeMap::new();
        for key in text.lines() {
            *effects.entry(key.to_owned()).or_default() += 1;
        }
        Ok(Self(effects))
    }

    pub(super) fn count(&self, key: &str) -> u32 {
        self.0.get(key).copied().unwrap_or_default()
    }
}

/// A claim that was in doubt after the kill.
#[derive(Clone, Debug, Serialize)]
pub(super) struct InDoubt {
    pub(super) key: String,
    pub(super) reason: String,
    /// What the log of effects showed; the ledger could not know it.
    pub(super) happened: bool,
}

/// What the demo showed.
#[derive(Debug, Serialize)]
pub(super) struct Verdict {
    operations: u32,
    effects_run: u64,
    ran_once: usize,
    ran_twice: usize,
    never_ran: usize,
    repeats_answered: u64,
    in_doubt_after_kill: Vec<InDoubt>,
    broken: Vec<String>,
}

pub(super) fn judge(
    operations: u32,
    effects: &Effects,
    rounds: &[Round],
    in_doubt_after_kill: Vec<InDoubt>,
    done: &BTreeSet<String>,
) -> Result<Verdict, Failure> {
    let keys: Vec<String> = (0..operations).map(super::ledger_worker::key_text).collect();
    let times = |wanted: fn(u32) -> bool| keys.iter().filter(|key| wanted(effects.count(key))).count();
    let mut broken = Vec::new();
    for key in &keys {
        if effects.count(key) > 1 {
            broken.push(format!("{key} ran {} times", effects.count(key)));
        }
        if !done.contains(key) {
            broken.push(format!("{key} is not done at the end"));
        }
    }
    for key in rounds.iter().flat_map(|round| &round.done) {
        if effects.count(key) == 0 {
            broken.push(format!("{key} was acknowledged, but its effect is not in the log"));
        }
    }
    Ok(Verdict {
        operations,
        effects_run: keys.iter().map(|key| u64::from(effects.count(key))).sum(),
        ran_once: times(|count| count == 1),
        ran_twice: times(|count| count > 1),
        never_ran: times(|count| count == 0),
        repeats_answered: rounds.iter().map(|round| round.repeats).sum(),
        in_doubt_after_kill,
        broken,
    })
}

impl super::Verdict for Verdict {
    const NAME: &'static str = "ledger";

    fn broken(&self) -> &[String] {
        &self.broken
    }

    fn row(&self) -> Row {
        Row {
            sent: format!("{} operations, raced for, with a kill -9 in the middle", self.operations),
            happened: format!(
                "{} ran once, {} twice, {} never; {} were in doubt until an operator looked",
                self.ran_once,
                self.ran_twice,
                self.never_ran,
                self.in_doubt_after_kill.len()
            ),
            without: format!(
                "{} runs: each of the {} repeats runs again",
                self.effects_run + self.repeats_answered,
                self.repeats_answered
            ),
        }
    }

    fn print(&self) {
        outln!("");
        let mut table =
            output::table(&["in doubt after the kill", "why", "the log of effects shows", "resolved as"]);
        for doubt in self.in_doubt_after_kill.iter().take(12) {
            let (shows, resolved) =
                if doubt.happened { ("it happened", "done") } else { ("it did not happen", "absent") };
            table.add_row([doubt.key.as_str(), doubt.reason.as_str(), shows, resolved]);
        }
        outln!("{table}");
        if self.in_doubt_after_kill.len() > 12 {
            outln!("… and {} more", self.in_doubt_after_kill.len() - 12);
        }
        outln!("");
        let mut table = output::table(&["", "operations"]);
        for (what, count) in [
            ("asked for", u64::from(self.operations)),
            ("ran once", self.ran_once as u64),
            ("ran twice", self.ran_twice as u64),
            ("never ran", self.never_ran as u64),
            ("in doubt after kill -9, then resolved", self.in_doubt_after_kill.len() as u64),
            ("repeats answered without running", self.repeats_answered),
        ] {
            table.add_row([what.to_owned(), count.to_string()]);
        }
        outln!("{table}");
    }
}
