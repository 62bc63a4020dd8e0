//! What to run, and how much of it: the same words for every benchmark.

use std::time::Duration;

use crate::table::Table;

/// What to run, and how much of it.
#[derive(Clone, Debug)]
pub struct Plan {
    pub rounds: usize,
    /// How long each measurement takes.
    pub time: Duration,
    /// Keyed requests before memory is looked at.
    pub many: u64,
    names: Vec<String>,
}

/// A figure measures something and writes it into the table.
pub type Figure = fn(&Plan, &mut Table);

impl Plan {
    fn read(arguments: &[String]) -> Self {
        let names = arguments.iter().filter(|argument| !argument.starts_with("--")).cloned().collect();
        match arguments.iter().any(|argument| argument == QUICK) {
            true => Self { rounds: 5, time: Duration::from_secs(1), many: 500_000, names },
            false => Self { rounds: 7, time: Duration::from_secs(3), many: 5_000_000, names },
        }
    }

    /// The same, in one round.
    pub fn once(&self) -> Self {
        Self { rounds: 1, ..self.clone() }
    }

    fn wants(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|wanted| wanted == name)
    }
}

/// Runs the figures that were asked for, or one of the parts that they measure: `--role NAME …`.
pub fn run(figures: &[(&str, Figure)], be: fn(&[String])) {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [first, role @ ..] = arguments.as_slice()
        && first == ROLE
    {
        return be(role);
    }
    let is_known = |word: &str| word == QUICK || figures.iter().any(|(name, _)| *name == word);
    if let Some(unknown) = arguments.iter().find(|word| !is_known(word)) {
        let names: Vec<_> = figures.iter().map(|(name, _)| *name).collect();
        eprintln!("unknown: {unknown}; what can be said is {QUICK} and {}", names.join(" "));
        std::process::exit(2);
    }
    let plan = Plan::read(&arguments);
    let mut table = Table::default();
    for (name, figure) in figures {
        if plan.wants(name) {
            figure(&plan, &mut table);
        }
    }
    table.print();
}

/// The argument that makes measuring short.
const QUICK: &str = "--quick";
/// The argument that makes a benchmark one of its parts.
pub const ROLE: &str = "--role";
