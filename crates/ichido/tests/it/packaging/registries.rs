//! The command as npm and PyPI deliver it: the packages are built with the program under test, and installed into empty
//! environments without a network.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use ichido_testkit::required_env;
use tempfile::TempDir;

use super::{repository_path, run_ok};
use crate::{stderr, without_settings};

/// How long a new user waits for the first result of the demo.
const FIRST_SUCCESS: Duration = Duration::from_secs(10);

/// The packages, built by `cargo xtask package`.
static PACKAGES: LazyLock<TempDir> = LazyLock::new(|| {
    let packages = tempfile::tempdir().unwrap();
    let mut xtask = Command::new(required_env("ICHIDO_TEST_XTASK"));
    xtask.args(["package", "--program", env!("CARGO_BIN_EXE_ichido"), "--out"]).arg(packages.path());
    // cargo describes this crate in the variable, and xtask looks for itself there.
    run_ok(xtask.env("CARGO_MANIFEST_DIR", repository_path("xtask")), "");
    packages
});

/// The package whose file name begins and ends like this.
fn package(prefix: &str, suffix: &str) -> PathBuf {
    let names = std::fs::read_dir(PACKAGES.path()).unwrap().map(|entry| entry.unwrap().path());
    let matching = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with(prefix) && name.ends_with(suffix)
    };
    let found: Vec<_> = names.filter(matching).collect();
    assert_eq!(found.len(), 1, "{prefix}…{suffix}: {found:?}");
    found[0].clone()
}

fn npm_library() -> PathBuf {
    package(&format!("ichido-{}", env!("CARGO_PKG_VERSION")), ".tgz")
}

/// A program without settings from the environment, with the Node of the tests on its path.
fn program(path: impl AsRef<Path>, dir: &Path) -> Command {
    let mut command = Command::new(path.as_ref());
    without_settings(|name| {
        command.env_remove(name);
    });
    let node = PathBuf::from(required_env("ICHIDO_TEST_NODE"));
    let mut search = OsString::from(node.parent().unwrap());
    search.extend([":".into(), std::env::var_os("PATH").unwrap()]);
    command.env("PATH", search).current_dir(dir);
    command
}

/// An empty directory with these npm packages, and no other source of packages.
fn npm_install(options: &[&str], packages: &[PathBuf]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("package.json"), "{}").unwrap();
    let offline = ["install", "--offline", "--ignore-scripts", "--no-audit", "--no-fund"];
    run_ok(program("npm", dir.path()).args(offline).args(options).args(packages), "");
    dir
}

/// A virtual environment with this wheel or distribution, and no other source of packages than [`PACKAGES`].
fn pip_install(what: &Path) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let python = required_env("ICHIDO_TEST_PYTHON");
    run_ok(program(&python, dir.path()).args(["-m", "venv", "--without-pip", "."]), "");
    let mut pip = program(&python, dir.path());
    pip.args(["-m", "pip", "--python", "bin/python", "--disable-pip-version-check", "install"]);
    run_ok(pip.args(["--no-index", "--find-links"]).arg(PACKAGES.path()).arg(what), "");
    dir
}

/// Runs the demo to its end. Its first scenario must report its result soon.
fn demo_succeeds(mut command: Command) {
    let start = Instant::now();
    let mut demo = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut first_success = None;
    let mut printed = String::new();
    for line in BufReader::new(demo.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        if line.contains("ran once") {
            first_success.get_or_insert(start.elapsed());
        }
        printed += &(line + "\n");
    }
    assert!(demo.wait().unwrap().success() && printed.contains("no effect ran twice"), "{printed}");
    let first_success = first_success.expect("the first scenario reports what ran once");
    assert!(first_success < FIRST_SUCCESS, "the first success took {first_success:?}");
}

/// The one sentence of a command that has no program to run.
fn sentence(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let line = stderr(output);
    assert_eq!(line.trim_end().lines().count(), 1, "not one line: {line}");
    line
}

#[test]
fn npx_runs_the_demo_from_a_new_installation() {
    let dir = npm_install(&[], &[npm_library(), package("ichido-linux-", ".tgz")]);
    let npx = |args: &[&str]| {
        let mut npx = program("npx", dir.path());
        npx.args(["--no-install", "ichido"]).args(args);
        npx
    };
    demo_succeeds(npx(&["demo"]));
    assert_eq!(npx(&["ledger", "nonsense"]).output().unwrap().status.code(), Some(2));
    // The first condition that applies wins, and `default` always applies.
    let manifest = std::fs::read_to_string(dir.path().join("node_modules/ichido/package.json")).unwrap();
    let exports = manifest.split("\"exports\"").nth(1).unwrap();
    assert!(exports.find("\"types\"") < exports.find("\"default\""), "{manifest}");
    let library = "require('ichido').once && import('ichido').then((it) => console.log(typeof it.once))";
    let node = program(required_env("ICHIDO_TEST_NODE"), dir.path()).args(["-e", library]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&node.stdout).trim(), "function", "{node:?}");
}

/// A supervisor knows the process of the script only.
#[test]
fn npm_command_passes_sigterm_on_and_returns_the_exit_code() {
    let dir = npm_install(&[], &[npm_library(), package("ichido-linux-", ".tgz")]);
    let mut command = program(dir.path().join("node_modules/.bin/ichido"), dir.path());
    command.args(["claims", "--ledger", "memory:", "--listen", "127.0.0.1:0"]);
    let mut claims = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(claims.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("http://127.0.0.1:")), "it never listened");
    run_ok(Command::new("kill").args(["-s", "TERM", &claims.id().to_string()]), "");
    assert!(
        lines.any(|line| line.contains("stopping after the requests in progress")),
        "it was not asked to stop"
    );
    // The end of the output is the end of the program: nothing is left behind.
    lines.for_each(drop);
    assert_eq!(claims.wait().unwrap().code(), Some(0));
}

#[test]
fn npm_command_says_in_one_sentence_why_it_has_no_program() {
    let dir = npm_install(&["--omit=optional"], &[npm_library()]);
    let command = || program(dir.path().join("node_modules/.bin/ichido"), dir.path());
    let missing = sentence(&command().arg("demo").output().unwrap());
    assert!(missing.contains("is missing") && missing.contains("optional dependencies"), "{missing}");
    std::fs::write(
        dir.path().join("other.cjs"),
        "Object.defineProperty(process, 'platform', { value: 'sunos' })",
    )
    .unwrap();
    let other =
        sentence(&command().arg("demo").env("NODE_OPTIONS", "--require ./other.cjs").output().unwrap());
    assert!(other.contains("no program for sunos-") && other.contains("cargo install"), "{other}");
}

/// pip chooses among the wheels and the source distribution.
#[test]
fn pip_installs_the_wheel_with_the_program_and_runs_the_demo() {
    let dir = pip_install(Path::new("ichido"));
    demo_succeeds({
        let mut demo = program(dir.path().join("bin/ichido"), dir.path());
        demo.arg("demo");
        demo
    });
    run_ok(program(dir.path().join("bin/python"), dir.path()).args(["-c", "import ichido; ichido.once"]), "");
}

#[test]
fn wheel_for_other_platforms_says_in_one_sentence_that_it_has_no_program() {
    let dir = pip_install(&package("ichido-", "-any.whl"));
    let output = program(dir.path().join("bin/ichido"), dir.path()).arg("demo").output().unwrap();
    let sentence = sentence(&output);
    assert!(sentence.contains("no program for") && sentence.contains("cargo install"), "{sentence}");
    run_ok(program(dir.path().join("bin/python"), dir.path()).args(["-c", "import ichido; ichido.once"]), "");
}
