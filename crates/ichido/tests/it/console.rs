//! The console: in a real browser, and against those who should not be there.

mod access;
pub(crate) mod browser;
mod delivery;
mod pages;
mod usage;

use std::path::Path;

use self::browser::{Browser, Look};
use crate::serving::Serving;

/// A script, where one is not expected to run.
const HOSTILE: &str =
    "<script>document.title='owned'</script>\"'><img src=x onerror=alert(1)>&amp;{{7*7}}\u{202e}";

/// Every way to look that we care for: two widths, two languages, and each in light and dark.
const LOOKS: [(&str, Look); 8] = [
    ("wide-en-light", look(1280, "en-US", "light")),
    ("wide-en-dark", look(1280, "en-US", "dark")),
    ("wide-ja-light", look(1280, "ja", "light")),
    ("wide-ja-dark", look(1280, "ja", "dark")),
    ("narrow-en-light", look(390, "en-US", "light")),
    ("narrow-en-dark", look(390, "en-US", "dark")),
    ("narrow-ja-light", look(390, "ja", "light")),
    ("narrow-ja-dark", look(390, "ja", "dark")),
];

const fn look(width: u32, lang: &'static str, scheme: &'static str) -> Look {
    Look { width, lang, scheme }
}

/// Opens a page in every way, checks it, and leaves pictures.
fn looks_well(browser: &Browser, url: &str, name: &str) {
    let mut english = Vec::new();
    for (way, look) in LOOKS {
        browser.look(look);
        // Light and dark are two looks at one page.
        if look.scheme == "light" {
            browser.open(url);
        }
        let wrong = browser.run(include_str!("console/checks.js"));
        assert_eq!(wrong.as_array().map(Vec::len), Some(0), "{name}, {way}: {wrong:#}");
        let lang = browser.run("return document.documentElement.lang");
        assert_eq!(lang, look.lang[..2], "{name}, {way}");
        let words = words(browser);
        match look.lang {
            "ja" => {
                let left: Vec<_> = words.iter().filter(|word| english.contains(*word)).collect();
                assert!(left.is_empty(), "{name}, {way}: not translated: {left:?}");
            }
            _ => english = words,
        }
        assert_eq!(browser.complaints(), Vec::<String>::new(), "{name}, {way}");
        assert!(browser.title().ends_with(" · ichido"), "{}", browser.title());
        browser.picture(&format!("{name}-{way}"));
    }
}

/// The words of a page that are ours, and not someone's data.
fn words(browser: &Browser) -> Vec<String> {
    let words = browser.run(include_str!("console/interface_texts.js"));
    words.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
}

/// A process with claims in every state, and some whose names are meant to do harm.
fn with_claims(dir: &Path) -> Serving {
    with_claims_and(dir, &[])
}

fn with_claims_and(dir: &Path, variables: &[(&str, &str)]) -> Serving {
    let claims = Serving::claims_with(dir, "memory:", variables);
    let claim = |key: &str, lease_ms: u64| {
        let metadata = serde_json::json!({ "channel": "C01", HOSTILE: HOSTILE });
        let body = serde_json::json!({ "key": key, "lease_ms": lease_ms, "metadata": metadata });
        let answer = claims.post("/v1/claims", &body.to_string());
        assert_eq!(answer.status, 201, "{}", answer.body);
        answer.json()["token"].as_str().unwrap().to_owned()
    };
    for number in 0..60 {
        let key = format!("order-2026-{number:04}");
        let token = claim(&key, 600_000);
        let body = serde_json::json!({ "key": key, "token": token, "outcome": { "id": number, "note": "SECRET-ANSWER" } });
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
