//! A log of effects: one line for each time that an effect happened.
//!
//! ichido neither writes nor reads these logs, so they are independent evidence.

use std::collections::BTreeMap;
use std::path::Path;

use ichido_serve::Failure;

/// How often each effect happened.
#[derive(Debug, Default)]
pub(super) struct EffectLog(BTreeMap<String, u32>);

/// How many effects happened once, more than once, and never.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) once: u32,
    pub(super) more_than_once: u32,
    pub(super) never: u32,
    /// A sentence for each effect that did not happen exactly once.
    pub(super) broken: Vec<String>,
}

impl EffectLog {
    /// Reads a log. A missing file is an empty log.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(Failure::internal(format!("cannot read {}: {error}", path.display()))),
        };
        let mut effects = BTreeMap::new();
        for name in text.lines() {
            *effects.entry(name.to_owned()).or_default() += 1;
        }
        Ok(Self(effects))
    }

    pub(super) fn count(&self, name: &str) -> u32 {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// Checks that each of these effects happened exactly once. `participle` says what happened, such as "handled".
    pub(super) fn tally(&self, names: impl Iterator<Item = String>, participle: &str) -> Tally {
        let mut tally = Tally::default();
        for name in names {
            match self.count(&name) {
                0 => {
                    tally.never += 1;
                    tally.broken.push(format!("{name} was never {participle}"));
                }
                1 => tally.once += 1,
                times => {
                    tally.more_than_once += 1;
                    tally.broken.push(format!("{name} was {participle} {times} times"));
                }
            }
        }
        tally
    }
}
