//! The console: its pages in a real browser, and its protection against requests that must be refused.

mod access;
pub(crate) mod browser;
mod delivery;
mod pages;
mod usage;

use std::path::Path;

use ichido_testkit::required_env;

use self::browser::{Browser, Emulation};
use crate::serving::Serving;

/// Markup and a script that must never be interpreted: pages show it as text.
const HOSTILE: &str =
    "<script>document.title='owned'</script>\"'><img src=x onerror=alert(1)>&amp;{{7*7}}\u{202e}";

/// Two widths and two languages, each in light and dark. The two color schemes of a page follow each other.
const EMULATIONS: [(&str, Emulation); 8] = [
    ("wide-en-light", emulation(1280, "en-US", "light")),
    ("wide-en-dark", emulation(1280, "en-US", "dark")),
    ("wide-ja-light", emulation(1280, "ja", "light")),
    ("wide-ja-dark", emulation(1280, "ja", "dark")),
    ("narrow-en-light", emulation(390, "en-US", "light")),
    ("narrow-en-dark", emulation(390, "en-US", "dark")),
    ("narrow-ja-light", emulation(390, "ja", "light")),
    ("narrow-ja-dark", emulation(390, "ja", "dark")),
];

const fn emulation(width: u32, lang: &'static str, color_scheme: &'static str) -> Emulation {
    Emulation { width, lang, color_scheme }
}

/// The rules of axe-core, and what they find: the rule and the first element that breaks it.
fn axe() -> String {
    let file = Path::new(&required_env("ICHIDO_TEST_NODE_MODULES")).join("axe-core/axe.min.js");
    let rules = std::fs::read_to_string(file).unwrap();
    format!(
        "{rules}; return axe.run().then((found) => \
         found.violations.map((rule) => `${{rule.id}}: ${{rule.nodes[0].html.slice(0, 200)}}`));"
    )
}

/// Opens a page in each of the [`EMULATIONS`], checks it, and saves a screenshot.
fn check_page(browser: &Browser, url: &str, name: &str) {
    let mut english = Vec::new();
    for (variant, emulation) in EMULATIONS {
        browser.emulate(emulation);
        // The color scheme changes without a reload.
        if emulation.color_scheme == "light" {
            browser.open(url);
        }
        let problems = browser.run(include_str!("console/checks.js"));
        assert_eq!(problems.as_array().map(Vec::len), Some(0), "{name}, {variant}: {problems:#}");
        if (emulation.lang, emulation.color_scheme) == ("en-US", "light") {
            let violations = browser.run(&axe());
            assert_eq!(violations.as_array().map(Vec::len), Some(0), "{name}, {variant}: {violations:#}");
        }
        let lang = browser.run("return document.documentElement.lang");
        assert_eq!(lang, emulation.lang[..2], "{name}, {variant}");
        let texts = interface_texts(browser);
        match emulation.lang {
            "ja" => {
                let untranslated: Vec<_> = texts.iter().filter(|text| english.contains(*text)).collect();
                assert!(untranslated.is_empty(), "{name}, {variant}: not translated: {untranslated:?}");
            }
            _ => english = texts,
        }
        assert_eq!(browser.logged_problems(), Vec::<String>::new(), "{name}, {variant}");
        assert!(browser.title().ends_with(" · ichido"), "{}", browser.title());
        browser.save_screenshot(&format!("{name}-{variant}"));
    }
}

/// The texts of a page that belong to the console itself, without callers' data.
fn interface_texts(browser: &Browser) -> Vec<String> {
    let texts = browser.run(include_str!("console/interface_texts.js"));
    texts.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// Starts a process with claims in every state. Some have a [`HOSTILE`] key, metadata or reason.
fn start_with_claims(dir: &Path) -> Serving {
    start_with_claims_and_variables(dir, &[])
}

fn start_with_claims_and_variables(dir: &Path, variables: &[(&str, &str)]) -> Serving {
    let claims = Serving::claims_with(dir, "memory:", variables);
    let claim = |key: &str, lease_ms: u64| {
        let metadata = serde_json::json!({ "channel": "C01", HOSTILE: HOSTILE });
        let body = serde_json::json!({ "key": key, "lease_ms": lease_ms, "metadata": metadata });
        let response = claims.post("/v1/claims", &body.to_string());
        assert_eq!(response.status, 201, "{}", response.text());
        response.json()["token"].as_str().unwrap().to_owned()
    };
    for number in 0..60 {
        let key = format!("order-2026-{number:04}");
        let token = claim(&key, 600_000);
        let body = serde_json::json!({ "key": key, "token": token, "outcome": { "id": number, "note": "SECRET-OUTCOME" } });
        assert_eq!(claims.post("/v1/claims/complete", &body.to_string()).status, 200);
        claims.post("/v1/claims", &serde_json::json!({ "key": key }).to_string());
    }
    for key in ["running-1", "running-2", HOSTILE] {
        claim(key, 600_000);
    }
    for number in 0..4 {
        let key = format!("doubt-{number}-{}", "long".repeat(60));
        let token = claim(&key, 600_000);
        let body = serde_json::json!({ "key": key, "token": token, "reason": format!("timeout {HOSTILE}") });
        assert_eq!(claims.post("/v1/claims/doubt", &body.to_string()).status, 200);
    }
    let events: Vec<_> =
        (0..500).map(|number| serde_json::json!({ "key": format!("Ev{}", number % 300) })).collect();
    claims.post("/v1/events/check", &serde_json::json!({ "events": events }).to_string());
    claims
}
