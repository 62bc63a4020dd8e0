//! The libraries for Node and Python, tested by their own test suites against this program and the real servers.

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

use ichido_testkit::required_env;
use tempfile::TempDir;

use super::{repository_path, run_ok};

/// A built copy of the npm library, next to links to the directories that its tests read.
static NPM_LIBRARY: LazyLock<TempDir> = LazyLock::new(|| {
    let dir = tempfile::tempdir().unwrap();
    let packages = dir.path().join("packages");
    std::fs::create_dir(&packages).unwrap();
    symlink(repository_path("crates").canonicalize().unwrap(), dir.path().join("crates")).unwrap();
    symlink(repository_path("packages/vectors").canonicalize().unwrap(), packages.join("vectors")).unwrap();
    run_ok(Command::new("cp").arg("-R").arg(repository_path("packages/typescript")).arg(&packages), "");
    let library = packages.join("typescript");
    run_ok(Command::new("rm").arg("-rf").args(["node_modules", "dist"]).current_dir(&library), "");
    let modules = PathBuf::from(required_env("ICHIDO_TEST_NPM_LIBRARY")).join("node_modules");
    symlink(modules, library.join("node_modules")).unwrap();
    run_ok(Command::new(required_env("ICHIDO_TEST_NODE")).arg("build.mjs").current_dir(&library), "");
    dir
});

/// The npm library, as it is installed: its manifest and what was built.
pub(super) fn npm_library() -> PathBuf {
    NPM_LIBRARY.path().join("packages/typescript")
}

#[test]
fn npm_library_passes_its_tests() {
    let library = npm_library();
    let tests = std::fs::read_dir(library.join("test")).unwrap().map(|entry| entry.unwrap().path());
    let mut tests: Vec<PathBuf> =
        tests.filter(|path| path.to_string_lossy().ends_with(".test.mjs")).collect();
    tests.sort();
    assert!(tests.len() >= 7, "{tests:?}");
    let mut node = Command::new(required_env("ICHIDO_TEST_NODE"));
    node.args(["--test", "--test-concurrency=1"]).args(tests).current_dir(library);
    let printed = run_ok(node.env("ICHIDO_TEST_BINARY", env!("CARGO_BIN_EXE_ichido")), "");
    assert!(printed.contains("# fail 0") && printed.contains("# skipped 0"), "{printed}");
}

#[test]
fn python_library_passes_its_tests() {
    let caches = tempfile::tempdir().unwrap();
    let mut pytest = Command::new(required_env("ICHIDO_TEST_PYTHON_PACKAGE"));
    pytest
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider"])
        .current_dir(repository_path("packages/python"));
    pytest.env("PYTHONDONTWRITEBYTECODE", "1").env("MYPY_CACHE_DIR", caches.path());
    let printed = run_ok(pytest.env("ICHIDO_TEST_BINARY", env!("CARGO_BIN_EXE_ichido")), "");
    let summary = printed.lines().rev().find(|line| line.contains(" passed")).unwrap_or_default();
    assert!(!summary.is_empty() && !summary.contains("skipped"), "{printed}");
}
