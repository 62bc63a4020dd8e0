//! `cargo xtask servers`: runs the servers of the tests for a developer.

use std::io;
use std::path::Path;

use anyhow::{Context, Result};

use crate::process::{Signal, TiedCommand};
use crate::servers::{Environment, Plan, Servers};
use crate::workspace;

/// Starts the servers and runs `command` with their addresses. Without a command, prints the addresses and waits.
pub(crate) fn run(command: &[String]) -> Result<u8> {
    let plan = Plan::from_environment();
    let missing = plan.missing();
    missing.require_installable()?;
    missing.install()?;
    plan.fetch()?;
    let servers = Servers::start(&plan)?;

    let exports = exports(servers.environment());
    let code = match command {
        [] => {
            print!("{exports}");
            eprintln!("xtask: press Ctrl-D or Ctrl-C to stop the servers");
            io::copy(&mut io::stdin(), &mut io::sink()).context("cannot wait for the end of input")?;
            0
        }
        [program, arguments @ ..] => {
            // Standard output belongs to the command.
            eprint!("{exports}");
            let mut command = TiedCommand::new(Path::new(program), Signal::Term).command;
            let environment = servers.environment().iter().map(|(name, value)| (name, value));
            workspace::run(command.args(arguments).envs(environment))?
        }
    };
    servers.stop();
    Ok(code)
}

/// The variables as shell commands, with quoted values.
fn exports(environment: &Environment) -> String {
    let quote = |value: &str| format!("'{}'", value.replace('\'', r"'\''"));
    environment
        .iter()
        .map(|(name, value)| format!("export {name}={}\n", quote(&value.to_string_lossy())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exported_values_survive_a_shell() {
        let environment = vec![("NAME", "it's here".into())];
        assert_eq!(exports(&environment), "export NAME='it'\\''s here'\n");
    }
}
