//! The command line: what was typed becomes an [`Invocation`], or a [`Refusal`] that says why not.

use std::fmt;

use anyhow::{Result, bail};

/// What `--help` prints.
const USAGE: &str = "\
Usage: cargo xtask COMMAND

  test [-- ARGS]           start the real servers, run every test with cargo (ARGS go to cargo test), stop them
  servers [-- COMMAND]     start the same servers and run COMMAND with their addresses, or wait for the end of input
  bench NAME [-- ARGS]     run a benchmark beside real servers; NAME: ledger, gateway, claims,
                           delivery, usage, console
  ci                       formatting, lints, tests
  lint                     check the layering of the crates and the cycles between modules (`lint --help`)
  deny                     check licences, bans, sources and advisories with cargo-deny

A server whose variable is set (ICHIDO_TEST_POSTGRES_URL, ICHIDO_TEST_REDIS_URL, ICHIDO_TEST_REDIS_CLUSTER_URL,
ICHIDO_TEST_REDIS_TLS_URL, ICHIDO_TEST_DYNAMODB_URL, ICHIDO_TEST_DYNAMODB_LOCAL_URL) is used as it is, and neither
installed nor started.
";

/// What `lint --help` prints.
const LINT_USAGE: &str = "\
Usage: cargo xtask lint

Checks the structure of the workspace. Prints each problem and exits with 1 if there are any.

Crates    A crate depends only on the crates that LAYERS in xtask/src/lint/layers.rs allows. Nothing depends on the
          binary, not even for tests. Dev-dependencies may also use ichido-testkit.

Modules   Sibling modules form no cycles. Module a depends on module b if code anywhere inside a names something
          anywhere inside b, directly or through a re-export. Items of the parent's own file are shared by its
          children. Test code is not checked.

A cycle is printed with one source line for each of its steps. To break it, move the item that one of these lines
names: down into a module that both sides use, or to the side that uses it.
";

/// One chore, checked and ready to run.
#[derive(Debug, PartialEq)]
pub(crate) enum Invocation {
    Help { text: &'static str },
    Test { extra: Vec<String> },
    Servers { command: Vec<String> },
    Bench { bench: Bench, extra: Vec<String> },
    Ci,
    Lint,
    Deny,
}

/// A benchmark that `cargo xtask bench` knows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Bench {
    /// Claims per second of every ledger backend.
    Ledger,
    /// Requests per second of the gateway, beside other proxies.
    Gateway,
    /// Checked events per second of the claim API, beside a server that only parses and replies.
    Claims,
    /// Batches from and to the disk: scans, passes over the spool, sending with and without a copy on disk.
    Delivery,
    /// Event ids and sums of usage, beside what the first exporter did in Node.
    Usage,
    /// Pages with much behind them, and a gateway that is watched beside one that is not.
    Console,
}

/// The operator asked for something that cannot be had as things are: exit code 2, and no work was done.
#[derive(Debug)]
pub(crate) struct Refusal(pub(crate) String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

impl Invocation {
    /// Reads the words after the program's name.
    pub(crate) fn parse(words: impl Iterator<Item = String>) -> Result<Self> {
        let mut own: Vec<String> = words.collect();
        let extra = match own.iter().position(|word| word == "--") {
            Some(at) => own.split_off(at).into_iter().skip(1).collect(),
            None => Vec::new(),
        };
        if own.iter().any(|word| word == "--help" || word == "-h") {
            let text = if own[0] == "lint" { LINT_USAGE } else { USAGE };
            return Ok(Self::Help { text });
        }
        let own: Vec<&str> = own.iter().map(String::as_str).collect();
        match own.as_slice() {
            [] | ["help"] => Ok(Self::Help { text: USAGE }),
            ["test"] => Ok(Self::Test { extra }),
            ["servers"] => Ok(Self::Servers { command: extra }),
            ["bench", name] => Ok(Self::Bench { bench: Bench::parse(name)?, extra }),
            ["bench"] => bail!(Refusal(format!("bench needs a name: {}", Bench::KNOWN))),
            ["ci"] if extra.is_empty() => Ok(Self::Ci),
            ["lint"] if extra.is_empty() => Ok(Self::Lint),
            ["deny"] if extra.is_empty() => Ok(Self::Deny),
            ["test" | "servers" | "bench", ..] => {
                bail!(Refusal(format!("arguments to pass on go after `--`\n\n{USAGE}")))
            }
            ["ci" | "lint" | "deny", ..] => bail!(Refusal(format!("`{}` takes no arguments", own[0]))),
            [other, ..] => bail!(Refusal(format!("unknown command `{other}`\n\n{USAGE}"))),
        }
    }
}

impl Bench {
    const KNOWN: &str = "ledger, gateway, claims, delivery, usage, console";

    fn parse(name: &str) -> Result<Self> {
        match name {
            "ledger" => Ok(Self::Ledger),
            "gateway" => Ok(Self::Gateway),
            "claims" => Ok(Self::Claims),
            "delivery" => Ok(Self::Delivery),
            "usage" => Ok(Self::Usage),
            "console" => Ok(Self::Console),
            other => bail!(Refusal(format!("unknown bench `{other}`; known: {}", Self::KNOWN))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Invocation> {
        Invocation::parse(line.split_whitespace().map(String::from))
    }

    #[test]
    fn what_follows_the_first_dashes_is_passed_on_untouched() {
        let extra = ["-p", "ichido-ledger", "--", "--help"].map(String::from).to_vec();
        assert_eq!(parse("test -- -p ichido-ledger -- --help").unwrap(), Invocation::Test { extra });
    }

    #[test]
    fn unknown_words_are_refused() {
        for line in ["tset", "test ledger", "bench", "bench lodger", "ci -- fast", "lint all", "deny now"] {
            assert!(parse(line).unwrap_err().is::<Refusal>(), "{line}");
        }
    }

    #[test]
    fn help_wins_over_everything_before_the_dashes() {
        for line in ["", "help", "--help", "test --help", "bench -h"] {
            assert_eq!(parse(line).unwrap(), Invocation::Help { text: USAGE }, "{line}");
        }
        assert_eq!(parse("lint --help").unwrap(), Invocation::Help { text: LINT_USAGE });
    }
}
