//! Which crate may depend on which.

use crate::lint::metadata::{Dependency, Kind, Package};

/// The binary. A crate that needs something from it needs a library instead.
const BINARY: &str = "ichido";
/// Fakes and helpers for tests: any crate may have it as a dev-dependency.
const TESTKIT: &str = "ichido-testkit";
/// Where a reader finds [`LAYERS`].
const TABLE: &str = "LAYERS in xtask/src/lint/layers.rs";

/// The crates of the workspace that a crate may depend on.
enum May {
    Use(&'static [&'static str]),
    /// Every crate except the binary.
    UseAll,
}

/// The layering, bottom up: a crate depends only on crates listed above it. A crate may be listed before it exists.
const LAYERS: &[(&str, May)] = &[
    ("ichido-core", May::Use(&[])),
    ("ichido-postgres", May::Use(&[])),
    ("ichido-settings", May::Use(&["ichido-core"])),
    ("ichido-ledger", May::Use(&["ichido-core", "ichido-postgres"])),
    ("ichido-history", May::Use(&["ichido-core", "ichido-ledger", "ichido-settings"])),
    ("ichido-similar", May::Use(&["ichido-core"])),
    ("ichido-http", May::Use(&["ichido-core", "ichido-ledger", "ichido-similar"])),
    ("ichido-usage", May::Use(&["ichido-core", "ichido-postgres"])),
    ("ichido-delivery", May::Use(&["ichido-core", "ichido-settings"])),
    (
        "ichido-serve",
        May::Use(&["ichido-core", "ichido-http", "ichido-ledger", "ichido-settings", "ichido-similar"]),
    ),
    ("ichido-telemetry", May::Use(&["ichido-core", "ichido-http", "ichido-serve", "ichido-settings"])),
    (
        "ichido-meter",
        May::Use(&["ichido-core", "ichido-postgres", "ichido-serve", "ichido-settings", "ichido-usage"]),
    ),
    (
        "ichido-gateway",
        May::Use(&["ichido-core", "ichido-http", "ichido-ledger", "ichido-serve", "ichido-settings"]),
    ),
    (
        "ichido-export",
        May::Use(&[
            "ichido-core",
            "ichido-delivery",
            "ichido-postgres",
            "ichido-serve",
            "ichido-settings",
            "ichido-usage",
        ]),
    ),
    (
        "ichido-admin",
        May::Use(&[
            "ichido-core",
            "ichido-delivery",
            "ichido-history",
            "ichido-http",
            "ichido-ledger",
            "ichido-meter",
            "ichido-serve",
            "ichido-settings",
            "ichido-similar",
            "ichido-usage",
        ]),
    ),
    (BINARY, May::UseAll),
    (TESTKIT, May::UseAll),
    ("ichido-bench", May::UseAll),
    ("ichido-client-example", May::UseAll),
    ("orders", May::UseAll),
    ("xtask", May::UseAll),
];

/// Compares the manifests with [`LAYERS`] and returns the problems.
pub(crate) fn check(packages: &[Package]) -> Vec<String> {
    let mut problems = Vec::new();
    for package in packages {
        let Some((_, may)) = LAYERS.iter().find(|(name, _)| *name == package.name) else {
            problems.push(format!(
                "{}: crate {} is not in the layering; add it to {TABLE} with the crates it may depend on",
                package.label(),
                package.name
            ));
            continue;
        };
        let in_workspace =
            package.dependencies.iter().filter(|used| packages.iter().any(|other| other.name == used.name));
        problems.extend(in_workspace.filter_map(|used| refusal(package, may, used)));
    }
    problems
}

fn refusal(package: &Package, may: &May, used: &Dependency) -> Option<String> {
    // A crate may name itself as a dev-dependency, to enable features for its own tests.
    if used.name == package.name {
        return None;
    }
    let section = match used.kind {
        Kind::Normal => "dependency",
        Kind::Dev => "dev-dependency",
    };
    let (label, name, forbidden) = (package.label(), &package.name, &used.name);
    if used.name == BINARY {
        return Some(format!(
            "{label}: crate {name} must not have {BINARY} as a {section}; move the code it needs from the binary into \
             a library crate"
        ));
    }
    let allowed = match may {
        May::UseAll => return None,
        May::Use(allowed) => allowed,
    };
    if allowed.contains(&used.name.as_str()) || (used.kind == Kind::Dev && used.name == TESTKIT) {
        return None;
    }
    let allowed = if allowed.is_empty() { "no crate of the workspace".into() } else { allowed.join(", ") };
    Some(format!(
        "{label}: crate {name} must not have {forbidden} as a {section}; it may use {allowed}. Move the code that \
         needs both crates to a crate above them, or change {TABLE}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, dependencies: &[(&str, Kind)]) -> Package {
        let dependencies = dependencies
            .iter()
            .map(|(name, kind)| Dependency { name: (*name).into(), kind: *kind })
            .collect();
        Package { name: name.into(), directory: name.into(), dependencies, roots: Vec::new() }
    }

    fn problems(name: &str, dependencies: &[(&str, Kind)]) -> Vec<String> {
        let mut packages = vec![package(name, dependencies)];
        packages.extend(dependencies.iter().map(|(used, _)| package(used, &[])));
        check(&packages)
    }

    #[test]
    fn table_is_ordered_bottom_up() {
        for (at, (name, may)) in LAYERS.iter().enumerate() {
            let May::Use(allowed) = may else { continue };
            for used in *allowed {
                assert!(LAYERS[..at].iter().any(|(below, _)| below == used), "{name} uses {used}");
            }
        }
    }

    #[test]
    fn allowed_and_foreign_dependencies_pass() {
        assert!(problems("ichido-http", &[("ichido-ledger", Kind::Normal)]).is_empty());
        assert!(check(&[package("ichido-core", &[("serde", Kind::Normal)])]).is_empty());
        assert!(problems("ichido-bench", &[("ichido-http", Kind::Normal)]).is_empty());
    }

    #[test]
    fn forbidden_dependency_is_named_with_its_crate() {
        for kind in [Kind::Normal, Kind::Dev] {
            let problems = problems("ichido-ledger", &[("ichido-http", kind)]);
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert!(
                problems[0].starts_with("ichido-ledger: crate ichido-ledger must not have ichido-http as a")
            );
            assert!(problems[0].contains("it may use ichido-core, ichido-postgres"), "{problems:?}");
        }
    }

    #[test]
    fn testkit_is_for_tests_only() {
        assert!(problems("ichido-core", &[("ichido-testkit", Kind::Dev)]).is_empty());
        assert_eq!(problems("ichido-core", &[("ichido-testkit", Kind::Normal)]).len(), 1);
    }

    #[test]
    fn nothing_depends_on_the_binary() {
        for name in ["ichido-http", "ichido-bench", "ichido-testkit", "xtask"] {
            for kind in [Kind::Normal, Kind::Dev] {
                assert_eq!(problems(name, &[("ichido", kind)]).len(), 1, "{name} {kind:?}");
            }
        }
    }

    #[test]
    fn crate_outside_the_table_is_refused() {
        let problems = problems("ichido-novel", &[]);
        assert_eq!(problems.len(), 1);
        assert!(problems[0].contains("crate ichido-novel is not in the layering"), "{problems:?}");
    }
}
