//! Parses the command line into an [`Invocation`], or a [`Refusal`] with the reason.

use std::fmt;
use std::path::PathBuf;

use anyhow::{Result, bail};

/// What `--help` prints.
const USAGE: &str = "\
Usage: cargo xtask COMMAND

  test [-- ARGS]           start real servers, run all tests (ARGS are passed to cargo test), stop the servers
  servers [-- COMMAND]     start the same servers and run COMMAND with their addresses in the environment;
                           without COMMAND, print the addresses and wait for the end of input
  bench NAME [-- ARGS]     run a benchmark with the servers that it needs; NAME is one of ledger, gateway, peers,
                           growth, claims, delivery, usage, console, similar
  simulate [OPTIONS]       run the file ledger on a simulated disk that crashes and fails (see `simulate --help`)
  ci                       check formatting, lints, documentation and packages, and run all tests
  lint                     check the layering of crates and find cycles between modules (see `lint --help`)
  deny                     check licences, bans, sources and advisories with cargo-deny
  package [--dist] [--program FILE] [--out DIR]
                           build the npm and Python packages into DIR (target/packages), with FILE or with a program
                           that is built now: fast, or for distribution with --dist
  release                  build every artefact of a release, with checksums, into dist/; upload nothing
  nightly                  simulate a million crashes, and build the packages of all platforms that this machine has
                           compilers for

To use a server of your own, set its variable: ICHIDO_TEST_POSTGRES_URL, ICHIDO_TEST_REDIS_URL,
ICHIDO_TEST_REDIS_CLUSTER_URL, ICHIDO_TEST_REDIS_TLS_URL, ICHIDO_TEST_DYNAMODB_URL or
ICHIDO_TEST_DYNAMODB_LOCAL_URL. That server is then neither installed nor started.
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

/// What `simulate --help` prints.
const SIMULATE_USAGE: &str = "\
Usage: cargo xtask simulate [OPTIONS]

Runs the file ledger on a simulated disk: callers, an operator, a sweeper and readers, interrupted by power losses, killed
processes, failed operations and flipped bits. Each seed is one run, which ends after 40 crashes. Every answer is compared
with a model. Runs on all cores, and stops at the first failure.

  --seeds N      run N seeds (1000)
  --from S       start with seed S (0)
  --seed S       run only seed S
  --crashes N    run seeds until there were N crashes
  --bug NAME     plant a bug that must be found: no-sync, no-directory-sync, no-checksums, drop-too-early,
                 drop-out-of-order or index-too-early
  --short-tags   find keys by eight bits only, so that many of them collide
  --json         print the summary as JSON

Progress goes to standard error, the summary to standard output. The exit code is 1 if a seed fails.

Examples:
  cargo xtask simulate                              1000 seeds
  cargo xtask simulate --seed 4711                  replay a failure
  cargo xtask simulate --bug no-sync                how long does it take to find this bug?
  cargo xtask simulate --from 1000000 --crashes 1000000 --json
";

/// A parsed command.
#[derive(Debug, PartialEq)]
pub(crate) enum Invocation {
    Help { text: &'static str },
    Test { extra: Vec<String> },
    Servers { command: Vec<String> },
    Bench { bench: Bench, extra: Vec<String> },
    Simulate { options: Vec<String> },
    Ci,
    Lint,
    Deny,
    Package { profile: Profile, program: Option<PathBuf>, out: Option<PathBuf> },
    Release,
    Nightly,
}

/// How the program is compiled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Profile {
    /// As for the tests: most of it is compiled already.
    Release,
    /// Small and fast, but slow to compile.
    Dist,
}

/// A benchmark that `cargo xtask bench` knows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Bench {
    /// Claims per second of every ledger backend.
    Ledger,
    /// Requests per second of the gateway, compared with other proxies.
    Gateway,
    /// Requests per second of the gateway and of other systems that protect a handler.
    Peers,
    /// How the cost of a keyed request grows with keys, gateways, responses and tenants.
    Growth,
    /// Checked events per second of the claim API, compared with a server that only parses and responds.
    Claims,
    /// Delivery from disk: scans, passes over the spool, sending with and without a copy on disk.
    Delivery,
    /// Event ids and sums of usage, compared with an implementation in Node.
    Usage,
    /// Pages over large amounts of data, and the cost of watching a gateway in the console.
    Console,
    /// How well and how fast near duplicates of events are found.
    Similar,
}

/// The command cannot run as given or on this machine. No work was done; the exit code is 2.
#[derive(Debug)]
pub(crate) struct Refusal(pub(crate) String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

impl Invocation {
    /// Parses the arguments after the program's name. Those after the first `--` are passed on.
    pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<Self> {
        let mut own: Vec<String> = arguments.collect();
        let extra = match own.iter().position(|argument| argument == "--") {
            Some(index) => own.split_off(index).into_iter().skip(1).collect(),
            None => Vec::new(),
        };
        if own.iter().any(|argument| argument == "--help" || argument == "-h") {
            let text = match own[0].as_str() {
                "lint" => LINT_USAGE,
                "simulate" => SIMULATE_USAGE,
                _ => USAGE,
            };
            return Ok(Self::Help { text });
        }
        let own: Vec<&str> = own.iter().map(String::as_str).collect();
        match own.as_slice() {
            [] | ["help"] => Ok(Self::Help { text: USAGE }),
            ["test"] => Ok(Self::Test { extra }),
            ["servers"] => Ok(Self::Servers { command: extra }),
            ["bench", name] => Ok(Self::Bench { bench: Bench::parse(name)?, extra }),
            ["bench"] => bail!(Refusal(format!("bench requires a name: {}", Bench::KNOWN))),
            ["simulate", options @ ..] if extra.is_empty() => parse_simulate(options),
            ["ci"] if extra.is_empty() => Ok(Self::Ci),
            ["lint"] if extra.is_empty() => Ok(Self::Lint),
            ["deny"] if extra.is_empty() => Ok(Self::Deny),
            ["release"] if extra.is_empty() => Ok(Self::Release),
            ["nightly"] if extra.is_empty() => Ok(Self::Nightly),
            ["package", options @ ..] if extra.is_empty() => parse_package(options),
            ["test" | "servers" | "bench", ..] => {
                bail!(Refusal(format!("put arguments to pass on after `--`\n\n{USAGE}")))
            }
            ["simulate", ..] => bail!(Refusal("simulate passes no arguments on".into())),
            ["ci" | "lint" | "deny" | "release" | "nightly", ..] => {
                bail!(Refusal(format!("`{}` takes no arguments", own[0])))
            }
            [other, ..] => bail!(Refusal(format!("unknown command `{other}`\n\n{USAGE}"))),
        }
    }
}

fn parse_package(options: &[&str]) -> Result<Invocation> {
    let (mut profile, mut program, mut out) = (Profile::Release, None, None);
    let mut options = options.iter();
    while let Some(option) = options.next() {
        let mut path = || match options.next() {
            Some(path) => Ok(Some(PathBuf::from(path))),
            None => bail!(Refusal(format!("{option} requires a path"))),
        };
        match *option {
            "--dist" => profile = Profile::Dist,
            "--program" => program = path()?,
            "--out" => out = path()?,
            other => bail!(Refusal(format!("unknown option `{other}` of package\n\n{USAGE}"))),
        }
    }
    if profile == Profile::Dist && program.is_some() {
        bail!(Refusal("--dist builds a program, and --program gives one; use one of them".into()));
    }
    Ok(Invocation::Package { profile, program, out })
}

/// Checks the options of `simulate`, so that a mistake is reported before anything is compiled.
fn parse_simulate(options: &[&str]) -> Result<Invocation> {
    let mut rest = options.iter();
    while let Some(option) = rest.next() {
        let is_value = |value: &str| match *option {
            "--bug" => !value.starts_with('-'),
            _ => value.parse::<u64>().is_ok(),
        };
        match *option {
            "--json" | "--short-tags" => {}
            "--seeds" | "--from" | "--seed" | "--crashes" | "--bug" => {
                if !rest.next().is_some_and(|value| is_value(value)) {
                    let what = if *option == "--bug" { "a name" } else { "a number" };
                    bail!(Refusal(format!("{option} requires {what}\n\n{SIMULATE_USAGE}")));
                }
            }
            other => bail!(Refusal(format!("unknown option `{other}` of simulate\n\n{SIMULATE_USAGE}"))),
        }
    }
    Ok(Invocation::Simulate { options: options.iter().map(ToString::to_string).collect() })
}

impl Bench {
    const KNOWN: &str = "ledger, gateway, peers, growth, claims, delivery, usage, console, similar";

    fn parse(name: &str) -> Result<Self> {
        match name {
            "ledger" => Ok(Self::Ledger),
            "gateway" => Ok(Self::Gateway),
            "peers" => Ok(Self::Peers),
            "growth" => Ok(Self::Growth),
            "claims" => Ok(Self::Claims),
            "delivery" => Ok(Self::Delivery),
            "usage" => Ok(Self::Usage),
            "console" => Ok(Self::Console),
            "similar" => Ok(Self::Similar),
            other => bail!(Refusal(format!("unknown benchmark `{other}`; use one of: {}", Self::KNOWN))),
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
    fn arguments_after_the_first_double_dash_are_passed_on() {
        let extra = ["-p", "ichido-ledger", "--", "--help"].map(String::from).to_vec();
        assert_eq!(parse("test -- -p ichido-ledger -- --help").unwrap(), Invocation::Test { extra });
    }

    #[test]
    fn unknown_arguments_are_refused() {
        for line in ["tset", "test ledger", "bench", "bench lodger", "ci -- fast", "lint all", "deny now"] {
            assert!(parse(line).unwrap_err().is::<Refusal>(), "{line}");
        }
    }

    #[test]
    fn package_takes_options_in_any_order() {
        let (program, out) = (Some("a/ichido".into()), Some("b".into()));
        let expected = Invocation::Package { profile: Profile::Release, program, out };
        assert_eq!(parse("package --out b --program a/ichido").unwrap(), expected);
        let expected = Invocation::Package { profile: Profile::Dist, program: None, out: None };
        assert_eq!(parse("package --dist").unwrap(), expected);
        for line in ["package --out", "package --fast", "package --dist --program a", "release now"] {
            assert!(parse(line).unwrap_err().is::<Refusal>(), "{line}");
        }
    }

    #[test]
    fn simulate_checks_its_options_before_anything_is_compiled() {
        let options = ["--from", "7", "--bug", "no-sync", "--json"].map(String::from).to_vec();
        assert_eq!(
            parse("simulate --from 7 --bug no-sync --json").unwrap(),
            Invocation::Simulate { options }
        );
        for line in
            ["simulate --seeds", "simulate --seed x", "simulate --bug --json", "simulate 7", "simulate -- 7"]
        {
            assert!(parse(line).unwrap_err().is::<Refusal>(), "{line}");
        }
    }

    #[test]
    fn help_takes_precedence_over_other_arguments() {
        for line in ["", "help", "--help", "test --help", "bench -h"] {
            assert_eq!(parse(line).unwrap(), Invocation::Help { text: USAGE }, "{line}");
        }
        assert_eq!(parse("lint --help").unwrap(), Invocation::Help { text: LINT_USAGE });
        assert_eq!(parse("simulate --help").unwrap(), Invocation::Help { text: SIMULATE_USAGE });
    }
}
