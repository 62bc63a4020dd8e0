//! Compares what the ledger recorded with what the log of effects shows.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::demo::effect_log::EffectLog;
use crate::demo::ledger_worker::operation_name;
use crate::demo::report::{Comparison, ScenarioReport, print_counts};
use crate::output;

/// Rows of the table of claims in doubt.
const SHOWN_IN_DOUBT_MAX: usize = 6;

/// What one run of the worker process reported.
#[derive(Debug, Default)]
pub(super) struct Run {
    /// Operations whose completion was acknowledged.
    pub(super) completed: BTreeSet<String>,
    /// Calls that were answered without running anything.
    pub(super) duplicates: u64,
}

/// A claim that was in doubt after the crash.
#[derive(Clone, Debug, Serialize)]
pub(super) struct InDoubt {
    pub(super) key: String,
    pub(super) reason: String,
    /// What the log of effects shows. The ledger cannot know it.
    pub(super) happened: bool,
}

pub(super) struct Evidence<'a> {
    pub(super) effects: &'a EffectLog,
    pub(super) runs: &'a [Run],
    /// The operations that are done in the ledger at the end.
    pub(super) done: &'a BTreeSet<String>,
}

#[derive(Debug, Serialize)]
pub(in crate::demo) struct Report {
    operations: u32,
    executions: u64,
    ran_once: usize,
    ran_twice: usize,
    never_ran: usize,
    duplicates_answered: u64,
    in_doubt_after_kill: Vec<InDoubt>,
    broken: Vec<String>,
}

impl Report {
    pub(super) fn new(operations: u32, in_doubt_after_kill: Vec<InDoubt>, evidence: Evidence<'_>) -> Self {
        let Evidence { effects, runs, done } = evidence;
        let names: Vec<String> = (0..operations).map(operation_name).collect();
        let ran = |wanted: fn(u32) -> bool| names.iter().filter(|name| wanted(effects.count(name))).count();
        let mut broken = Vec::new();
        for name in &names {
            if effects.count(name) > 1 {
                broken.push(format!("{name} ran {} times", effects.count(name)));
            }
            if !done.contains(name) {
                broken.push(format!("{name} is not done at the end"));
            }
        }
        for name in runs.iter().flat_map(|run| &run.completed) {
            if effects.count(name) == 0 {
                broken.push(format!("{name} was acknowledged, but its effect is not in the log"));
            }
        }
        Self {
            operations,
            executions: names.iter().map(|name| u64::from(effects.count(name))).sum(),
            ran_once: ran(|count| count == 1),
            ran_twice: ran(|count| count > 1),
            never_ran: ran(|count| count == 0),
            duplicates_answered: runs.iter().map(|run| run.duplicates).sum(),
            in_doubt_after_kill,
            broken,
        }
    }

    fn print_in_doubt(&self) {
        let mut table = output::table(&["in doubt after kill -9", "reason", "log of effects", "resolved as"]);
        for claim in self.in_doubt_after_kill.iter().take(SHOWN_IN_DOUBT_MAX) {
            let (evidence, resolution) =
                if claim.happened { ("it happened", "done") } else { ("it did not happen", "absent") };
            table.add_row([claim.key.as_str(), claim.reason.as_str(), evidence, resolution]);
        }
        table.print();
        if self.in_doubt_after_kill.len() > SHOWN_IN_DOUBT_MAX {
            outln!("… and {} more", self.in_doubt_after_kill.len() - SHOWN_IN_DOUBT_MAX);
        }
    }
}

impl ScenarioReport for Report {
    const NAME: &'static str = "ledger";

    fn broken(&self) -> &[String] {
        &self.broken
    }

    fn comparison(&self) -> Comparison {
        Comparison {
            scenario: format!("Ledger: {} operations, racing workers, kill -9", self.operations),
            with_ichido: format!(
                "{} ran once, {} twice, {} never; {} were in doubt until resolved",
                self.ran_once,
                self.ran_twice,
                self.never_ran,
                self.in_doubt_after_kill.len()
            ),
            without_ichido: format!(
                "{} runs: {} duplicate calls run again",
                self.executions + self.duplicates_answered,
                self.duplicates_answered
            ),
        }
    }

    fn print(&self) {
        self.print_in_doubt();
        print_counts([
            ("operations", u64::from(self.operations)),
            ("ran once", self.ran_once as u64),
            ("ran twice", self.ran_twice as u64),
            ("never ran", self.never_ran as u64),
            ("in doubt after kill -9, then resolved", self.in_doubt_after_kill.len() as u64),
            ("duplicate calls, answered without running", self.duplicates_answered),
        ]);
    }
}
