//! The arguments that all benchmarks share.

use std::time::Duration;

use crate::table::Table;

/// What to measure, and how thoroughly.
#[derive(Clone, Debug)]
pub struct Options {
    pub rounds: usize,
    /// How long each measurement takes.
    pub time: Duration,
    /// Keyed requests before memory is measured.
    pub many: u64,
    names: Vec<String>,
}

/// Measures something and adds it to the table.
pub type Measurement = fn(&Options, &mut Table);

impl Options {
    fn read(arguments: &[String]) -> Self {
        let names = arguments.iter().filter(|argument| !argument.starts_with("--")).cloned().collect();
        match arguments.iter().any(|argument| argument == QUICK) {
            true => Self { rounds: 5, time: Duration::from_secs(1), many: 500_000, names },
            false => Self { rounds: 7, time: Duration::from_secs(3), many: 5_000_000, names },
        }
    }

    /// The same with a single round.
    pub fn once(&self) -> Self {
        Self { rounds: 1, ..self.clone() }
    }

    fn wants(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|wanted| wanted == name)
    }
}

/// Runs the requested measurements, or one of the helper processes that they start: `--role NAME …`.
pub fn run(measurements: &[(&str, Measurement)], run_role: fn(&[String])) {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [first, role @ ..] = arguments.as_slice()
        && first == ROLE
    {
        return run_role(role);
    }
    let is_known =
        |argument: &str| argument == QUICK || measurements.iter().any(|(name, _)| *name == argument);
    if let Some(unknown) = arguments.iter().find(|argument| !is_known(argument)) {
        let names: Vec<_> = measurements.iter().map(|(name, _)| *name).collect();
        eprintln!("unknown argument {unknown}: expected {QUICK} or any of {}", names.join(" "));
        std::process::exit(2);
    }
    let options = Options::read(&arguments);
    let mut table = Table::default();
    for (name, measure) in measurements {
        if options.wants(name) {
            measure(&options, &mut table);
        }
    }
    table.print();
}

/// Shortens all measurements.
const QUICK: &str = "--quick";
/// Runs a helper process instead of measurements.
pub const ROLE: &str = "--role";
