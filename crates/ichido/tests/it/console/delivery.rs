//! The delivery's pages: what waits, what failed, and sending again.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::browser::Browser;
use super::{HOSTILE, check_page};
use crate::delivery::Fixture;
use crate::delivery::daemon::admin_address;
use crate::delivery::receiver::Reply;
use crate::support::http::get;
use crate::support::{Process, eventually};

/// A daemon that does nothing by itself after its first pass.
fn daemon(stage: &Fixture) -> (Process, SocketAddr) {
    let mut command = stage.command(&["run", "--admin", "127.0.0.1:0", "--ledger", "memory:"]);
    let daemon = Process::start(command.env("RESEND_CRON", "0 0 1 1 *").env("MAX_RETRIES", "0"));
    let admin = admin_address(&daemon);
    eventually("the first pass", || get(admin, "/delivery").text().contains("schedule").then_some(()));
    (daemon, admin)
}

/// Batches that wait, and some that are no records.
fn filled(records: usize) -> Fixture {
    let stage = Fixture::new();
    stage.receiver.on_request(|_| Reply::Status(503, HOSTILE.to_owned()));
    stage.send(records, &[("BATCH_SIZE", "1"), ("MAX_RETRIES", "0")]).ends_with(3);
    stage
}

#[test]
fn delivery_pages_render_in_every_width_language_and_color_scheme() {
    let empty = Fixture::new();
    let (_daemon, admin) = daemon(&empty);
    let browser = Browser::start();
    check_page(&browser, &format!("http://{admin}/delivery"), "delivery-empty");

    let stage = filled(60);
    let broken = stage.path().join("broken.jsonl");
    std::fs::write(&broken, format!("{HOSTILE}\nno record\n")).unwrap();
    stage.run(&["send", broken.to_str().unwrap()], &[("MAX_RETRIES", "0")]).ends_with(4);
    let (_daemon, admin) = daemon(&stage);
    let at = |path: &str| format!("http://{admin}{path}");
    check_page(&browser, &at("/delivery"), "delivery");
    assert!(browser.text().contains("HTTP 503"), "{}", browser.text());
    browser.click("a[rel=next]");
    browser.click("a[rel=next]");
    assert!(!browser.has("a[rel=next]"), "60 on three pages: {}", browser.text());
    browser.click("td a");
    let batch = browser.run("return location.href");
    check_page(&browser, batch.as_str().unwrap(), "batch");
    assert!(!browser.text().contains("source_event_id"), "records are masked");
    check_page(&browser, &at("/delivery?dir=failed"), "delivery-failed");
    check_page(&browser, &at("/delivery/resend?dir=failed"), "delivery-confirm");
    eventually("the depth", || get(admin, "/").text().contains(">60<").then_some(()));
    check_page(&browser, &at("/"), "overview-delivery");
}

#[test]
fn operator_resends_one_and_all() {
    let stage = filled(5);
    let (daemon, admin) = daemon(&stage);
    assert_eq!(stage.files("spool").len(), 5);
    stage.receiver.on_request(|_| Reply::Accept);
    let browser = Browser::start();
    browser.open(&format!("http://{admin}/delivery"));
    browser.click("td button");
    assert!(browser.text().contains("Everything was delivered."), "{}", browser.text());
    assert_eq!((stage.receiver.counts().len(), stage.files("spool").len()), (1, 4));
    browser.click("main a.button");
    assert!(browser.text().contains("4 batches"), "{}", browser.text());
    assert_eq!(stage.receiver.counts().len(), 1, "a question sends nothing");
    browser.click("main button.strong");
    assert!(browser.text().contains("The spool is empty."), "{}", browser.text());
    assert_eq!(stage.receiver.counts().into_values().collect::<Vec<_>>(), [1; 5], "each one once");
    assert_eq!(stage.files("spool").len(), 0);
    assert!(browser.text().contains("operator"), "among the last runs: {}", browser.text());
    let said = daemon.stderr();
    for action in ["resend a batch", "resend all"] {
        assert!(said.contains(&format!("\"action\":\"{action}\"")), "{said}");
    }
    assert_eq!(browser.logged_problems(), Vec::<String>::new());
}

/// Whatever stops it, a batch that is still in the spool has not arrived, and neither page nor audit may say so.
#[test]
fn failed_resend_is_reported() {
    for trouble in [Reply::Status(503, String::new()), Reply::Status(401, String::new()), Reply::Disconnect] {
        let stage = filled(2);
        let (daemon, admin) = daemon(&stage);
        let reply = trouble.clone();
        stage.receiver.on_request(move |_| reply.clone());
        let browser = Browser::start();
        for action in ["td button", "main button.strong"] {
            browser.open(&format!("http://{admin}/delivery"));
            if action == "main button.strong" {
                browser.click("main a.button");
            }
            browser.click(action);
            let text = browser.text();
            assert!(text.contains("Not everything was delivered"), "{trouble:?}: {text}");
            assert!(!text.contains("Everything was delivered."), "{trouble:?}: {text}");
            assert_eq!(stage.files("spool").len(), 2, "{trouble:?}");
        }
        let said = daemon.stderr();
        let audited: Vec<_> = said.lines().filter(|line| line.contains("\"action\":\"resend")).collect();
        assert_eq!(audited.len(), 2, "{said}");
        assert!(audited.iter().all(|line| line.contains("\"result\":\"not-arrived\"")), "{audited:?}");
    }
}

#[test]
fn file_outside_the_spool_is_not_a_batch() {
    let stage = filled(1);
    let (_daemon, admin) = daemon(&stage);
    for file in ["..%2F..%2Finput.jsonl", "%2Fetc%2Fpasswd", "spool_20250118T120530Z_..%2F..%2Fx.json", ""] {
        assert_eq!(get(admin, &format!("/delivery/batch?dir=spool&file={file}")).status, 404, "{file}");
    }
}

#[test]
fn small_spool_is_listed_fresh_for_each_page() {
    let stage = filled(2);
    let (_daemon, admin) = daemon(&stage);
    let (path, _) = stage.files("spool").remove(0);
    let more = path.with_file_name("spool_20250118T120530Z_00000000abcd.json");
    let shows = |count: usize| {
        let page = get(admin, "/delivery").text();
        let rows = page.matches("href=\"/delivery/batch?").count();
        assert_eq!((rows, page.contains(&format!("<b>{count}</b>"))), (count, true), "{page}");
        assert_eq!(page.contains("00000000abcd"), count == 3, "{page}");
    };
    shows(2);
    for _ in 0..5 {
        std::fs::copy(&path, &more).unwrap();
        shows(3);
        std::fs::remove_file(&more).unwrap();
        shows(2);
    }
}

/// By names alone: opening that many files would take seconds.
#[test]
fn twenty_thousand_files_do_not_delay_a_page() {
    let stage = filled(1);
    let (path, _) = stage.files("spool").remove(0);
    let bytes = std::fs::read(&path).unwrap();
    for number in 0..20_000 {
        let name = format!(
            "spool_20250118T{:02}{:02}{:02}Z_{number:012x}.json",
            number % 24,
            number % 60,
            number % 59
        );
        std::fs::write(path.with_file_name(name), &bytes).unwrap();
    }
    // One answer of that kind ends a pass.
    stage.receiver.on_request(|_| Reply::Status(401, String::new()));
    let (_daemon, admin) = daemon(&stage);
    eventually("the count", || get(admin, "/delivery").text().contains("20,001").then_some(()));
    for path in ["/", "/claims", "/delivery", "/delivery?after=spool_20250118T120000Z_000000000000.json"] {
        let quickest = (0..20).map(|_| {
            let began = Instant::now();
            assert_eq!(get(admin, path).status, 200);
            began.elapsed()
        });
        let quickest = quickest.min().unwrap();
        assert!(quickest < Duration::from_millis(50), "{path} took {quickest:?}");
    }
}
