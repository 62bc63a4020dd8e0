//! The overview, the claims and the sign-in page, in a real browser.

use ichido_testkit::http_client::{post, send};
use ichido_testkit::ledger_server::unique;
use ichido_testkit::orders::Orders;
use ichido_testkit::required_env;
use ichido_testkit::tcp_proxy::{Fault, TcpProxy};
use ichido_testkit::wait::eventually;

use super::browser::Browser;
use super::{EMULATIONS, HOSTILE, axe, check_page, start_with_claims};
use crate::anomalies::write_history;
use crate::serving::Serving;
use crate::support::Gateway;

#[test]
fn empty_pages_render_in_every_width_language_and_color_scheme() {
    let dir = tempfile::tempdir().unwrap();
    let claims = Serving::claims(dir.path(), "memory:", None);
    let browser = Browser::start();
    let at = |path: &str| format!("http://{}{path}", claims.address);
    check_page(&browser, &at("/"), "overview-empty");
    assert!(browser.text().contains("通常と異なる動きは見つかっていません"), "{}", browser.text());
    check_page(&browser, &at("/claims"), "claims-empty");
    assert!(browser.text().contains("claim はまだありません"), "{}", browser.text());
    check_page(&browser, &at("/events"), "events-empty");
    assert!(browser.text().contains("イベントはまだありません"), "{}", browser.text());
    for path in
        ["/claims?prefix=none", "/claims?state=done", "/events?prefix=none", "/claims/triage?route=none"]
    {
        browser.open(&at(path));
        assert!(browser.text().contains("検索条件を変えてください"), "{path}: {}", browser.text());
    }
    browser.open(&at("/claims?state=in-doubt"));
    assert!(browser.text().contains("対応は不要です"), "{}", browser.text());
    check_page(&browser, &at("/history"), "history-empty");
    assert!(browser.text().contains("この期間の記録はありません"), "{}", browser.text());
    check_page(&browser, &at("/history/timeline?find=none"), "timeline-empty");
    assert!(browser.text().contains("該当する記録はありません"), "{}", browser.text());
}

#[test]
fn full_pages_render_in_every_width_language_and_color_scheme() {
    let dir = tempfile::tempdir().unwrap();
    let claims = start_with_claims(dir.path());
    let browser = Browser::start();
    let at = |path: &str| format!("http://{}{path}", claims.address);
    eventually("the figures", || claims.get("/").text().contains(">367<").then_some(()));
    check_page(&browser, &at("/"), "overview");
    check_page(&browser, &at("/claims"), "claims");
    browser.click("a[rel=next]");
    assert!(browser.text().contains("最初のページ"), "{}", browser.text());
    check_page(&browser, &at("/claims/triage"), "claims-triage");
    check_page(&browser, &at("/claims?state=in-doubt"), "claims-in-doubt");
    browser.click("td a");
    let claim = browser.run("return location.href");
    check_page(&browser, claim.as_str().unwrap(), "claim");
    browser.click(".choices a");
    let confirm = browser.run("return location.href");
    check_page(&browser, confirm.as_str().unwrap(), "claim-confirm");
    check_page(&browser, &at("/events"), "events");
    browser.click("a[rel=next]");
    assert!(browser.text().contains("最初のページ"), "{}", browser.text());
    check_page(&browser, &at("/events/one?key=Ev7"), "event");
    browser.click(".choices a");
    let confirm = browser.run("return location.href");
    check_page(&browser, confirm.as_str().unwrap(), "event-confirm");
}

#[test]
fn history_pages_show_what_was_decided() {
    let dir = tempfile::tempdir().unwrap();
    let claims = start_with_claims(dir.path());
    for channel in ["C01", HOSTILE, "C01"] {
        let event = serde_json::json!({ "key": "Ev1000", "metadata": { "channel_id": channel } });
        let body = serde_json::json!({ "events": [event] });
        assert_eq!(claims.post("/v1/events/check", &body.to_string()).status, 200);
    }
    let browser = Browser::start();
    let at = |path: &str| format!("http://{}{path}", claims.address);
    // 60 orders and their repeats, 7 other claims, 500 events, and 3.
    eventually("everything is recorded", || claims.get("/history").text().contains(">630<").then_some(()));
    check_page(&browser, &at("/history"), "history-7");
    check_page(&browser, &at("/history?days=30"), "history-30");
    for details in [false, true] {
        let open = "for (const d of document.querySelectorAll('details')) d.open = true";
        browser.run(if details { open } else { "" });
        let problems = browser.run(include_str!("checks.js"));
        assert_eq!(problems.as_array().map(Vec::len), Some(0), "{problems:#}");
    }
    assert!(browser.text().contains("C01"), "{}", browser.text());
    let cells = "return document.querySelectorAll('[aria-labelledby=heat-title] rect > title').length";
    assert_eq!(browser.run(cells), 30 * 24);

    browser.open(&at("/events/one?key=Ev1000"));
    browser.click("a[href^='/history/timeline']");
    let timeline = browser.run("return location.href");
    check_page(&browser, timeline.as_str().unwrap(), "timeline");
    assert!(browser.text().contains("onerror=alert(1)"), "{}", browser.text());
    browser.open(&at("/claims?state=in-doubt&prefix=doubt-0"));
    browser.click("td a");
    browser.click("a[href^='/history/timeline']");
    let timeline = browser.run("return location.href");
    check_page(&browser, timeline.as_str().unwrap(), "timeline-in-doubt");
    browser.type_text("#find", "Ev7");
    browser.click("form.search button");
    assert!(browser.text().contains("Ev7"), "{}", browser.text());
}

#[test]
fn overview_starts_with_what_needs_attention() {
    let dir = tempfile::tempdir().unwrap();
    let quiet = Serving::claims(dir.path(), "memory:", None);
    let browser = Browser::start();
    browser.emulate(EMULATIONS[0].1);
    browser.open(&format!("http://{}/", quiet.address));
    assert!(browser.text().contains("Nothing needs attention."), "{}", browser.text());
    let other = tempfile::tempdir().unwrap();
    let claims = start_with_claims(other.path());
    let at = |path: &str| format!("http://{}{path}", claims.address);
    eventually("the claim in doubt", || {
        browser.open(&at("/"));
        browser.text().contains("Claims in doubt: 4.").then_some(())
    });
    assert!(!browser.text().contains("Nothing needs attention."), "{}", browser.text());
    check_page(&browser, &at("/"), "overview-attention");
    check_page(&browser, &at("/system"), "system");
    assert!(browser.text().contains("memory"), "{}", browser.text());
}

#[test]
fn unknown_address_is_a_page_for_browsers_and_a_problem_for_programs() {
    let dir = tempfile::tempdir().unwrap();
    let claims = Serving::claims(dir.path(), "memory:", None);
    let browser = Browser::start();
    let at = |path: &str| format!("http://{}{path}", claims.address);
    // Chromium logs each 404 as an error, so `check_page` does not apply.
    for (emulation, text) in
        [(EMULATIONS[0].1, "There is no such page"), (EMULATIONS[2].1, "ページが見つかりません")]
    {
        browser.emulate(emulation);
        for path in ["/no-such-page", "/problems/no-such-problem"] {
            browser.open(&at(path));
            assert!(browser.text().contains(text), "{}", browser.text());
            assert_eq!(browser.run(include_str!("checks.js")).as_array().map(Vec::len), Some(0));
            assert_eq!(browser.run(&axe()).as_array().map(Vec::len), Some(0));
        }
    }
    let missing = claims.get("/no-such-page");
    assert_eq!((missing.status, &missing.json()["type"]), (404, &"/problems/no-such-page".into()));
    // Chromium has logged the pages that do not exist.
    browser.logged_problems();
    for (code, english, japanese) in [
        ("no-such-claim", "There is no such claim.", "該当する claim はありません。"),
        ("in-doubt", "Nobody knows whether the effect happened.", "（結果未確定）"),
    ] {
        check_page(&browser, &at(&format!("/problems/{code}")), &format!("problem-{code}"));
        assert!(browser.text().contains(japanese), "{}", browser.text());
        browser.emulate(EMULATIONS[0].1);
        browser.open(&at(&format!("/problems/{code}")));
        assert!(browser.text().contains(english), "{}", browser.text());
    }
}

#[test]
fn times_are_relative_with_the_exact_time_as_tooltip() {
    let dir = tempfile::tempdir().unwrap();
    let claims = start_with_claims(dir.path());
    let browser = Browser::start();
    browser.emulate(EMULATIONS[0].1);
    browser.open(&format!("http://{}/claims", claims.address));
    let shown =
        browser.run("const e = document.querySelector('time[data-relative]'); return [e.innerText, e.title]");
    let (text, title) = (shown[0].as_str().unwrap(), shown[1].as_str().unwrap());
    assert!(text == "now" || text.contains(" ago"), "{text}");
    assert!(title.ends_with(" UTC"), "{title}");
}

#[test]
fn anomaly_leads_to_its_hour() {
    let dir = tempfile::tempdir().unwrap();
    write_history(&dir.path().join("data/history"));
    let claims = Serving::claims(dir.path(), "memory:", None);
    let browser = Browser::start();
    let at = |path: &str| format!("http://{}{path}", claims.address);
    // This waits until the history has been read for the first time; pages do not.
    assert_eq!(claims.get("/v1/history/anomalies").status, 200);
    check_page(&browser, &at("/"), "overview-anomaly");
    assert!(browser.text().contains(r#""events" の発生元 "C1" からの受信が"#), "{}", browser.text());
    browser.click(".findings a");
    let top = browser.run("return document.querySelector('#hour').getBoundingClientRect().top");
    assert!(top.as_f64().unwrap() < 100.0, "the link leads to the hour: {top}");
    // With the fragment, opening the page again would not load it again.
    let hour = browser.run("return location.href.split('#')[0]");
    check_page(&browser, hour.as_str().unwrap(), "history-anomaly");
    assert_eq!(browser.run("return document.querySelectorAll('rect.marked').length"), 1);
    let value = "return document.querySelector('[aria-labelledby=hour] .value').innerText";
    assert_eq!(browser.run(value), "400");
    assert!(browser.has(".findings a"), "{}", browser.text());
    // Of a whole route, a week is shown.
    for path in ["/history?days=30&route=events", "/history?route=events&instance=one&at=0"] {
        browser.open(&at(path));
        assert_eq!(browser.run("return document.querySelectorAll('nav.tabs a').length"), 1);
        assert!(!browser.has("rect.marked") && !browser.has("#sources-title"));
    }
}

#[test]
fn operator_forgets_an_event_and_a_completed_claim() {
    let dir = tempfile::tempdir().unwrap();
    let claims = start_with_claims(dir.path());
    let browser = Browser::start();
    let check = |key: &str| {
        let body = serde_json::json!({ "events": [{ "key": key }] });
        claims.post("/v1/events/check", &body.to_string()).json()["results"][0]["is_new"].clone()
    };
    browser.open(&format!("http://{}/events", claims.address));
    browser.type_text("#prefix", "Ev299");
    browser.click("form.search button");
    browser.click("td a");
    browser.click("a[href^='/events/forget']");
    assert!(browser.text().contains("it is processed again"), "{}", browser.text());
    assert_eq!(check("Ev299"), false, "the confirmation page must not change the event");
    browser.type_text("#reason", "the bot lost it");
    browser.click("main button.strong");
    assert!(browser.text().contains("The event was forgotten."), "{}", browser.text());
    assert_eq!(check("Ev299"), true);

    let key = "order-2026-0017";
    browser.open(&format!("http://{}/claims?state=done&prefix={key}", claims.address));
    browser.click("td a");
    browser.click("a[href*='as=forget']");
    browser.type_text("#reason", "it answered 200 and did nothing");
    browser.click("main button.strong");
    assert!(browser.text().contains("The claim was forgotten."), "{}", browser.text());
    let retry = claims.post("/v1/claims", &serde_json::json!({ "key": key }).to_string());
    assert_eq!(retry.status, 201, "{}", retry.text());
    assert_eq!(browser.logged_problems(), Vec::<String>::new());

    let log = claims.stderr();
    for action in ["forget event", "forget"] {
        assert!(log.contains(&format!("\"action\":\"{action}\"")), "{log}");
    }
}

#[test]
fn hostile_names_are_shown_as_text() {
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
        "a bidi override must be escaped: {text}"
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
    let is_in_doubt = |key: &str| in_doubt().iter().any(|claim| claim["key"] == key);
    let keys: Vec<String> =
        in_doubt().iter().map(|claim| claim["key"].as_str().unwrap().to_owned()).collect();

    let named = |start: &str| keys.iter().find(|key| key.starts_with(start)).unwrap();

    // The effect happened: a retry gets the outcome that the operator wrote.
    browser.open(&format!("http://{}/claims?state=in-doubt&prefix=doubt-0", claims.address));
    browser.click("td a");
    assert!(browser.text().contains("Check the system where it runs"), "{}", browser.text());
    browser.click("a[href*='as=done']");
    assert!(is_in_doubt(named("doubt-0")), "the confirmation page must not change the claim");
    browser.type_text("textarea", "{\"id\": 17}");
    browser.click("main button.strong");
    assert!(browser.text().contains("The claim is done."), "{}", browser.text());
    let retry = claims.post("/v1/claims", &serde_json::json!({ "key": named("doubt-0") }).to_string());
    assert_eq!((retry.status, retry.json()["outcome"].clone()), (200, serde_json::json!({ "id": 17 })));

    // It did not happen: a retry may run it. The operator confirms with the keyboard.
    browser.open(&format!("http://{}/claims?state=in-doubt&prefix=doubt-1", claims.address));
    browser.click("td a");
    browser.click("a[href*='as=absent']");
    browser.run("document.querySelector('main button.strong').focus(); window.before = true");
    browser.press(&["\u{e007}"]);
    eventually("the result of the release", || {
        browser.text().contains("The key was released.").then_some(())
    });
    let retry = claims.post("/v1/claims", &serde_json::json!({ "key": named("doubt-1") }).to_string());
    assert_eq!((retry.status, retry.json()["attempt"].clone()), (201, 1.into()));
    assert_eq!(in_doubt().len(), 2);

    // The log is written by a thread of its own.
    let is_logged = |log: &str, action: &str| log.contains(&format!("\"action\":\"{action}\""));
    let log = eventually("the log of both actions", || {
        let log = claims.stderr();
        ["resolve as done", "resolve as absent"].iter().all(|action| is_logged(&log, action)).then_some(log)
    });
    assert!(!log.contains("doubt-0"), "a key may be a secret: {log}");
}

#[test]
fn overview_updates_without_a_reload() {
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
    eventually("the live stream", || {
        (browser.run("return document.querySelector('#live').dataset.state") == "on").then_some(())
    });
    assert_eq!(live("effects"), "0");
    let body = serde_json::json!({ "events": [{ "key": "a" }, { "key": "b" }, { "key": "a" }] });
    claims.post("/v1/events/check", &body.to_string());
    eventually("the new figures", || (live("effects") == "2" && live("replays") == "1").then_some(()));
    assert!(browser.text().contains("Live"), "{}", browser.text());
    browser.run("document.querySelector('[data-live-pause]').click()");
    assert!(browser.text().contains("Paused"), "{}", browser.text());
    assert_eq!(browser.logged_problems(), Vec::<String>::new());
}

/// The upstream goes down, then the ledger, then both come back, and finally the process itself is killed. The page is
/// never reloaded.
#[test]
fn open_overview_shows_an_outage_and_the_recovery() {
    let dir = tempfile::tempdir().unwrap();
    let redis: url::Url = required_env("ICHIDO_TEST_REDIS_URL").parse().unwrap();
    let proxy = TcpProxy::start(redis.socket_addrs(|| Some(6379)).unwrap()[0]);
    let ledger = format!("redis://{}?prefix=console-{}:", proxy.address(), unique());
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
    eventually("good health", || (state("health") == "good").then_some(()));
    assert_eq!(text("health"), "Everything is working.");

    drop(orders);
    assert_eq!(post(gateway.address, "/orders", "\"a\"", "{}").status, 502);
    assert_eq!(send(gateway.address, "POST", "/orders", &[], b"{}").status, 400);
    eventually("the upstream is shown as down", || {
        let shown = (state("health") == "bad" && state("health-upstream") == "bad")
            && (text("errors") == "1" && text("refused") == "1" && text("effects") == "0");
        shown.then_some(())
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
    eventually("the ledger is shown as down", || {
        (state("health-ledger") == "bad" && text("errors") == "2").then_some(())
    });
    let problems = browser.run(include_str!("checks.js"));
    assert_eq!(problems, serde_json::json!([]), "during the outage: {problems:#}");
    browser.save_screenshot("overview-outage");

    proxy.set(Fault::None);
    let orders = Orders::start_at(dir.path(), port);
    eventually("ledger and upstream are shown as recovered", || {
        (state("health-ledger") == "good" && state("health-upstream") == "good").then_some(())
    });
    assert_eq!(post(gateway.address, "/orders", "\"a\"", "{}").status, 201);
    eventually("an effect", || (text("effects") == "1").then_some(()));

    gateway.process.kill();
    eventually("the page shows that it lost the connection", || {
        (state("health") == "unknown" && state("health-ledger") == "unknown").then_some(())
    });
    assert_eq!(text("health"), "Not connected. This page is out of date.");
    browser.save_screenshot("overview-disconnected");
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
    assert!(browser.text().contains("order-2026-0001"), "the search is lost: {}", browser.text());
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
    assert_eq!(browser.logged_problems().len(), 1, "only the 401 is logged");
    browser.type_text("#token", "l00k");
    browser.click("main button");
    assert!(browser.text().contains("You have read-only access."), "{}", browser.text());
    let cookies = browser.cookies();
    let session = cookies.iter().find(|cookie| cookie["httpOnly"] == true).unwrap();
    assert_eq!((session["sameSite"].as_str(), cookies.len()), (Some("Strict"), 1), "{cookies:?}");
    assert_eq!(browser.run("return document.cookie"), "", "scripts must not see the session");
    assert!(!browser.run("return document.documentElement.outerHTML").as_str().unwrap().contains("l00k"));
    browser.click("form[action='/sign-out'] button");
    assert_eq!(browser.title(), "Sign in · ichido");
    browser.open(&at("/"));
    assert_eq!(browser.title(), "Sign in · ichido");
    assert_eq!(browser.logged_problems(), Vec::<String>::new());
}

/// The first Tab reaches the skip link, and the focused element has a visible outline.
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
    eventually("focus on the main content", || {
        (focused()[0] == "wide" || focused()[0] == "main").then_some(())
    });
    browser.press(&["\u{e004}"]);
    assert_eq!(focused(), serde_json::json!(["prefix", "solid"]));
    browser.press(&["d", "o", "u", "b", "t", "-", "3", "\u{e007}"]);
    eventually("the search result", || {
        let searched = browser.run("return location.search").as_str()?.contains("prefix=doubt-3");
        (searched && browser.run("return document.readyState") == "complete").then_some(())
    });
    assert_eq!(browser.run("return document.querySelectorAll('tbody tr').length"), 1);
}
