use std::fs;
use std::path::Path;

use super::*;
use crate::scratch::Temporary;

/// Writes the files of a crate, checks it, and returns the problems with paths relative to the crate.
fn problems(files: &[(&str, &str)]) -> Vec<String> {
    let directory = Temporary::directory(&std::env::temp_dir()).unwrap();
    let at = directory.path();
    for (name, text) in files {
        let file = at.join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    let package = Package {
        name: "sample".into(),
        directory: "crates/sample".into(),
        dependencies: Vec::new(),
        roots: vec![at.join("lib.rs")],
    };
    let prefix = format!("{}/", at.display());
    check(&[package]).unwrap().into_iter().map(|problem| problem.replace(&prefix, "")).collect()
}

fn has_cycle(files: &[(&str, &str)]) -> bool {
    !problems(files).is_empty()
}

#[test]
fn two_modules_that_use_each_other_are_a_cycle() {
    let found = problems(&[
        ("lib.rs", "mod a;\nmod b;"),
        ("a.rs", "use std::fmt;\n\nuse crate::b::B;\npub struct A;"),
        ("b.rs", "use super::a::A;\npub struct B;"),
    ]);
    assert_eq!(found, ["crates/sample: a → b → a\n  a → b: a.rs:3 crate::b::B\n  b → a: b.rs:1 super::a::A"]);
}

#[test]
fn cycle_of_three_is_printed_once() {
    let found = problems(&[
        ("lib.rs", "mod a;\nmod b;\nmod c;"),
        ("a.rs", "use crate::b::B;"),
        ("b.rs", "use crate::c::C;\npub struct B;\nfn f() { crate::c::g() }"),
        ("c.rs", "use crate::a;\npub struct C;\npub fn g() {}"),
    ]);
    assert_eq!(
        found,
        [
            "crates/sample: a → b → c → a\n  a → b: a.rs:1 crate::b::B\n  b → c: b.rs:1 crate::c::C (and 1 more)\n  \
          c → a: c.rs:1 crate::a"
        ]
    );
}

#[test]
fn each_edge_is_shown_in_its_shortest_cycle() {
    let found = problems(&[
        ("lib.rs", "mod a;\nmod b;\nmod c;"),
        ("a.rs", "use crate::b::B;"),
        ("b.rs", "use crate::{a::A, c::C};"),
        ("c.rs", "use crate::a::A;"),
    ]);
    let titles: Vec<&str> = found.iter().filter_map(|problem| problem.lines().next()).collect();
    assert_eq!(titles, ["crates/sample: a → b → a", "crates/sample: a → b → c → a"]);
}

#[test]
fn modules_that_only_use_those_below_them_are_no_cycle() {
    assert!(!has_cycle(&[
        ("lib.rs", "mod a;\nmod b;\nmod c;"),
        ("a.rs", "use crate::{b::B, c::C};"),
        ("b.rs", "use crate::c::C;\npub struct B;"),
        ("c.rs", "pub struct C;"),
    ]));
}

#[test]
fn re_export_leads_to_the_module_that_has_the_item() {
    let found = problems(&[
        ("lib.rs", "mod outer;"),
        ("outer.rs", "mod a;\nmod b;\npub use self::a::A as Renamed;\nuse b::*;"),
        ("outer/a.rs", "use crate::outer::B;\npub struct A;"),
        ("outer/b.rs", "use super::Renamed;\npub struct B;"),
    ]);
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("crates/sample: outer::a → outer::b → outer::a\n"), "{found:?}");
}

#[test]
fn qualified_path_in_a_body_counts() {
    for body in [
        "pub fn f() { crate::b::g() }",
        "pub fn f() { println!(\"{}\", crate::b::g()) }",
        "pub fn f() { use super::b; b::g() }",
        "use crate as root; pub fn f() { root::b::g() }",
        "use super::*; pub fn f() { b::g() }",
        "use super::*; pub fn f() { g() }",
        "pub fn f(b: Box<dyn crate::b::T>) {}",
        "#[serde(with = \"crate::b\")] struct S;",
    ] {
        let files = [
            ("lib.rs", "mod a;\nmod b;\nuse b::g;"),
            ("a.rs", body),
            ("b.rs", "pub fn g() { crate::a::f() }\npub trait T {}"),
        ];
        assert!(has_cycle(&files), "{body}");
    }
}

#[test]
fn name_in_an_inner_scope_hides_the_module() {
    assert!(!has_cycle(&[
        ("lib.rs", "mod a;\nmod b;"),
        ("a.rs", "use super::*;\npub fn f() { use other::b; b::g() }"),
        ("b.rs", "use crate::a::f;"),
    ]));
}

#[test]
fn cycle_deep_inside_counts_between_the_siblings_that_contain_it() {
    let found = problems(&[
        ("lib.rs", "mod a;\nmod b;"),
        ("a.rs", "pub mod x;"),
        ("a/x.rs", "use super::super::b::y::Y;\npub struct X;"),
        ("b.rs", "pub mod y;"),
        ("b/y.rs", "pub struct Y;\nfn f(_: super::super::a::x::X) {}"),
    ]);
    assert_eq!(
        found,
        ["crates/sample: a → b → a\n  a → b: a/x.rs:1 super::super::b::y::Y\n  \
          b → a: b/y.rs:2 super::super::a::x::X"]
    );
}

#[test]
fn inline_modules_and_path_attributes_are_modules() {
    assert!(has_cycle(&[
        ("lib.rs", "mod a { use super::b::B; pub struct A; }\n#[path = \"elsewhere.rs\"]\nmod b;"),
        ("elsewhere.rs", "use crate::a::A;\npub struct B;"),
    ]));
}

#[test]
fn macro_in_textual_scope_counts() {
    assert!(has_cycle(&[
        ("lib.rs", "#[macro_use]\nmod a;\nmod b;"),
        ("a.rs", "macro_rules! say { () => { $crate::b::f() } }"),
        ("b.rs", "pub fn f() { if true { say!() } }"),
    ]));
}

#[test]
fn exported_macro_belongs_to_its_module() {
    assert!(has_cycle(&[
        ("lib.rs", "mod a;\nmod b;"),
        ("a.rs", "#[macro_export]\nmacro_rules! say { () => {} }\nuse crate::b::f;"),
        ("b.rs", "pub fn f() { crate::say!() }"),
    ]));
}

#[test]
fn items_of_the_parent_are_shared() {
    assert!(!has_cycle(&[
        ("lib.rs", "mod a;\nmod b;\npub struct Shared(a::A, b::B);\npub use http::Request;"),
        ("a.rs", "use crate::{Request, Shared};\npub struct A;"),
        ("b.rs", "use super::{a::A, Shared};\npub struct B;"),
    ]));
}

#[test]
fn tests_may_use_anything() {
    assert!(!has_cycle(&[
        ("lib.rs", "mod a;\nmod b;\n#[cfg(test)]\nmod testing;"),
        ("a.rs", "use crate::b::B;\npub struct A;"),
        (
            "b.rs",
            "#[cfg(test)]\nmod tests { use crate::a::A; }\n#[cfg(test)]\nuse crate::a::A;\npub struct B;"
        ),
    ]));
}

#[test]
fn missing_file_is_an_error() {
    let package = Package {
        name: "sample".into(),
        directory: "crates/sample".into(),
        dependencies: Vec::new(),
        roots: vec![Path::new("/nonexistent/lib.rs").into()],
    };
    let error = check(&[package]).unwrap_err();
    assert_eq!(error.to_string(), "cannot read /nonexistent/lib.rs");
}
