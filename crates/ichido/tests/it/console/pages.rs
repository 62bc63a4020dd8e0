//! Pages as people see them.

use ichido_core::{Nonce, SystemEntropy};

use super::browser::Browser;
use super::{HOSTILE, check_page, start_with_claims};
use crate::claims::lossy_proxy::{Fault, Proxy};
use crate::serving::Serving;
use crate::support::http::{post, send};
use crate::support::{Gateway, Orders, eventually};

#[test]
fn empty_pages_render_in_every_width_language_and_color_scheme() {
    let dir = tempfile::tempdir().unwrap();
    let claims = Serving::claims(dir.path(), "memory:", None);
    let browser = Browser::start();
    let at = |path: &str| format!("http://{}{path}", claims.address);
    check_page(&browser, &at("/"), "overview-empty");
    check_page(&browser, &at("/claims"), "claims-empty");
    assert!(browser.text().contains("該当する claim はありません"), "{}", browser.text());
}

#[test]
fn full_pages_render_in_every_width_language_and_color_scheme() {
    let dir = tempfile::tempdir().unwrap();
    let claims = start_with_claims(dir.path());
    let browser = Browser::start();
    let at = |path: &str| format!("http://{}{path}", claims.address);
    eventually("the figures", || claims.get("/").body.contains(">367<").then_some(()));
    check_page(&browser, &at("/"), "overview");
    check_page(&browser, &at("/claims"), "claims");
    browser.click("a[rel=next]");
    assert!(browser.text().contains("最初のページ"), "{}", browser.text());
    check_page(&browser, &at("/claims?state=in-doubt"), "claims-in-doubt");
    browser.click("td a");
    let one = browser.run("return location.href");
    check_page(&browser, one.as_str().unwrap(), "claim");
    browser.click(".choices a");
    let confirm = browser.run("return location.href");
    check_page(&browser, confirm.as_str().unwrap(), "claim-confirm");
}

#[test]
fn hostile_names_are_text() {
    let dir = tempfile::tempdir().unwrap();
    let claims = start_with_claims(dir.path());
    let browser = Browser::start();
    browser.open(&format!("http://{}/claims?state=running&prefix=%3Cscript", claims.address));
    assert!(browser.text().contains(HOSTILE.trim_end_matches('\u{202e}')), "{}", browser.text());
    browser.click("td a");
    let text = browser.text();
    assert!(text.contains("onerror=alert(1)"), "{text}");
    assert!(
        text.contains("\\u{202e}") && !text.contains('\u{202e}'),
        "nothing turns the line around: {text}"
    );
    assert_eq!(browser.title(), "Claim · ichido");
    assert_eq!(browser.run("return document.querySelectorAll('main script, main img').length"), 0);
    assert_eq!(browser.logged_problems(), Vec::<String>::new());
}

#[test]
fn operator_resolves_claims_in_doubt() {
    let dir = tempfile::tempdir().unwrap();
    let claims = start_with_claims(dir.path());
    let browser = Browser::start();
    let in_doubt = || claims.get("/v1/claims?state=in-doubt").json()["claims"].as_array().unwrap().clone();
    let of = |key: &str| in_doubt().iter().any(|claim| claim["key"] == key);
    let keys: Vec<String> =
        in_doubt().iter().map(|claim| claim["key"].as_str().unwrap().to_owned()).collect();

    let named = |start: &str| keys.iter().find(|key| key.starts_with(start)).unwrap();

    // It happened: repeats get what the operator wrote.
    browser.open(&format!("http://{}/claims?state=in-doubt&prefix=doubt-0", claims.address));
    browser.click("td a");
    assert!(browser.text().contains("Check the system where it runs"), "{}", browser.text());
    browser.click("a[href*='as=done']");
    assert!(of(named("doubt-0")), "a question changes nothing");
    browser.type_text("textarea", "{\"id\": 17}");
    browser.click("main button.strong");
    assert!(browser.text().contains("The claim is done."), "{}", browser.text());
    let repeat = claims.post("/v1/claims", &serde_json::json!({ "key": named("doubt-0") }).to_string());
    assert_eq!((repeat.status, repeat.json()["outcome"].clone()), (200, serde_json::json!({ "id": 17 })));

    // It did not: the next one may run it. All by keyboard.
    browser.open(&format!("http://{}/claims?state=in-doubt&prefix=doubt-1", claims.address));
    browser.click("td a");
    browser.click("a[href*='as=absent']");
    browser.run("document.querySelector('main button.strong').focus(); window.before = true");
    browser.press(&["\u{e007}"]);
    eventually("the answer", || browser.text().contains("The key was released.").then_some(()));
    let repeat = claims.post("/v1/claims", &serde_json::json!({ "key": named("doubt-1") }).to_string());
    assert_eq!((repeat.status, repeat.json()["attempt"].clone()), (201, 1.into()));
    assert_eq!(in_doubt().len(), 2);

    let said = claims.stderr();
    for action in ["resolve as done", "resolve as absent"] {
        assert!(said.contains(&format!("\"action\":\"{action}\"")), "{said}");
    }
    assert!(!said.contains("doubt-0"), "a key may be a secret: {said}");
}

#[test]
fn overview_updates_live() {
    let dir = tempfile::tempdir().unwrap();
    let claims = Serving::claims(dir.path(), "memory:", None);
    let browser = Browser::start();
    browser.open(&format!("http://{}/", claims.address));
    let live = |name: &str| {
        browser
            .run(&format!("return document.querySelector('[data-live={name}]').textContent"))
            .as_str()
            .unwrap()
            .to_owned()
    };
    eventually("the stream", || {
        (browser.run("return document.querySelector('#live').dataset.state") == "on").then_some(())
    });
    assert_eq!(live("effects"), "0");
    let body = serde_json::json!({ "events": [{ "key": "a" }, { "key": "b" }, { "key": "a" }] });
    claims.post("/v1/events/check", &body.to_string());
    eventually("the figures without a reload", || {
        (live("effects") == "2" && live("replays") == "1").then_some(())
    });
    assert!(browser.text().contains("Live"), "{}", browser.text());
    browser.run("document.querySelector('[data-live-pause]').click()");
    assert!(browser.text().contains("Paused"), "{}", browser.text());
    assert_eq!(browser.logged_problems(), Vec::<String>::new());
}

/// First the service behind goes down, then the ledger, then both are back, and at last the process itself is gone. Nobody
/// loads the page again.
#[test]
fn an_open_overview_shows_an_outage_and_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let redis =
        std::env::var("ICHIDO_TEST_REDIS_URL").expect("ICHIDO_TEST_REDIS_URL: run `cargo xtask test`");
    let redis: url::Url = redis.parse().unwrap();
    let proxy = Proxy::start(redis.socket_addrs(|| Some(6379)).unwrap()[0]);
    let ledger = format!("redis://{}?prefix=console-{}:", proxy.addr(), Nonce::draw(&SystemEntropy));
    let orders = Orders::start(dir.path());
    let port = orders.address.port();
    let mut gateway = Gateway::start(dir.path(), orders.address, &ledger, "");
    let browser = Browser::start();
    browser.open(&format!("http://{}/", gateway.admin));
    let text =
        |name: &str| browser.run(&format!("return document.querySelector('[data-live={name}]').textContent"));
    let state = |name: &str| {
        browser.run(&format!("return document.querySelector('[data-state-of={name}-state]').dataset.state"))
    };
    eventually("all is well", || (state("health") == "good").then_some(()));
    assert_eq!(text("health"), "Everything is working.");

    drop(orders);
    assert_eq!(post(gateway.address, "/orders", "\"a\"", "{}").status, 502);
    assert_eq!(send(gateway.address, "POST", "/orders", &[], b"{}").status, 400);
    eventually("the service behind is seen to be down", || {
        let seen = (state("health") == "bad" && state("health-upstream") == "bad")
            && (text("errors") == "1" && text("refused") == "1" && text("effects") == "0");
        seen.then_some(())
    });
    assert_eq!(text("health"), "Problems with: Upstream, Responses");
    assert!(
        text("health-upstream").as_str().unwrap().contains("cannot connect to"),
        "{}",
        text("health-upstream")
    );
    assert_eq!((state("health-ledger"), text("requests")), ("good".into(), "2".into()));

    proxy.set(Fault::Refuse);
    assert_eq!(post(gateway.address, "/orders", "\"b\"", "{}").status, 503);
    eventually("the ledger is seen to be down", || {
        (state("health-ledger") == "bad" && text("errors") == "2").then_some(())
    });
    let wrong = browser.run(include_str!("checks.js"));
    assert_eq!(wrong, serde_json::json!([]), "also in an outage: {wrong:#}");
    browser.save_screenshot("overview-outage");

    proxy.set(Fault::None);
    let orders = Orders::start_at(dir.path(), port);
    eventually("both are seen to be back", || {
        (state("health-ledger") == "good" && state("health-upstream") == "good").then_some(())
    });
    assert_eq!(post(gateway.address, "/orders", "\"a\"", "{}").status, 201);
    eventually("an effect", || (text("effects") == "1").then_some(()));

    gateway.process.kill();
    eventually("the process is seen to be gone", || {
        (state("health") == "unknown" && state("health-ledger") == "unknown").then_some(())
    });
    assert_eq!(text("health"), "Not connected. This page is out of date.");
    browser.save_screenshot("overview-gone");
    drop(orders);
}

#[test]
fn language_choice_is_remembered() {
    let dir = tempfile::tempdir().unwrap();
    let claims = start_with_claims(dir.path());
    let browser = Browser::start();
    browser.open(&format!("http://{}/claims?prefix=order-2026-0001", claims.address));
    assert!(browser.text().contains("Key starts with"), "{}", browser.text());
    browser.click("button[lang=ja]");
    assert!(browser.text().contains("キー（前方一致）"), "{}", browser.text());
    assert!(browser.text().contains("order-2026-0001"), "where one was: {}", browser.text());
    browser.open(&format!("http://{}/", claims.address));
    assert!(browser.text().contains("重複検出率"), "{}", browser.text());
    browser.click("button[lang=en]");
    assert!(browser.text().contains("Duplicate rate"), "{}", browser.text());
}

#[test]
fn users_sign_in_and_out() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = [("ICHIDO_ADMIN_TOKEN", "s3cret"), ("ICHIDO_ADMIN_READ_TOKEN", "l00k")];
    let claims = Serving::claims_with(dir.path(), "memory:", &tokens);
    let browser = Browser::start();
    let at = |path: &str| format!("http://{}{path}", claims.address);
    check_page(&browser, &at("/sign-in"), "sign-in");
    browser.emulate(super::EMULATIONS[0].1);
    browser.open(&at("/claims"));
    assert_eq!(browser.title(), "Sign in · ichido");
    browser.type_text("#token", "wrong");
    browser.click("main button");
    assert!(browser.text().contains("not valid"), "{}", browser.text());
    assert_eq!(browser.logged_problems().len(), 1, "401 is one");
    browser.type_text("#token", "l00k");
    browser.click("main button");
    assert!(browser.text().contains("You have read-only access."), "{}", browser.text());
    let cookies = browser.cookies();
    let session = cookies.iter().find(|cookie| cookie["httpOnly"] == true).unwrap();
    assert_eq!((session["sameSite"].as_str(), cookies.len()), (Some("Strict"), 1), "{cookies:?}");
    assert_eq!(browser.run("return document.cookie"), "", "no script reads it");
    assert!(!browser.run("return document.documentElement.outerHTML").as_str().unwrap().contains("l00k"));
    browser.click("form[action='/sign-out'] button");
    assert_eq!(browser.title(), "Sign in · ichido");
    browser.open(&at("/"));
    assert_eq!(browser.title(), "Sign in · ichido");
    assert_eq!(browser.logged_problems(), Vec::<String>::new());
}

/// Tab leads to the skip link first, and each thing that has the focus can be seen to have it.
#[test]
fn pages_work_with_the_keyboard_alone() {
    let dir = tempfile::tempdir().unwrap();
    let claims = start_with_claims(dir.path());
    let browser = Browser::start();
    browser.open(&format!("http://{}/claims?state=in-doubt", claims.address));
    let focused = || {
        browser.run("const e = document.activeElement; return [e.className || e.id || e.textContent, getComputedStyle(e).outlineStyle]")
    };
    browser.press(&["\u{e004}"]);
    assert_eq!(focused()[0], "skip");
    browser.press(&["\u{e007}"]);
    eventually("the main part", || (focused()[0] == "wide" || focused()[0] == "main").then_some(()));
    browser.press(&["\u{e004}"]);
    assert_eq!(focused(), serde_json::json!(["prefix", "solid"]));
    browser.press(&["d", "o", "u", "b", "t", "-", "3", "\u{e007}"]);
    eventually("the search", || {
        let there = browser.run("return location.search").as_str()?.contains("prefix=doubt-3");
        (there && browser.run("return document.readyState") == "complete").then_some(())
    });
    assert_eq!(browser.run("return document.querySelectorAll('tbody tr').length"), 1);
}
