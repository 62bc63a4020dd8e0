//! The delivery pages: spooled and failed batches, and resending them.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ichido_testkit::http_client::get;
use ichido_testkit::process::Process;
use ichido_testkit::receiver::Reply;
use ichido_testkit::wait::eventually;

use super::browser::Browser;
use super::{HOSTILE, check_page};
use crate::delivery::Fixture;

/// Starts a daemon whose schedule does not come due during a test: it makes its first pass and then stays idle.
fn start_daemon(stage: &Fixture) -> (Process, SocketAddr) {
    let mut command = stage.command(&["run", "--admin", "127.0.0.1:0", "--ledger", "memory:"]);
    let mut process =
        Process::start(command.env("RESEND_CRON", "0 0 1 1 *").env("MAX_RETRIES", "0")).unwrap();
    let admin = process.wait_for_address("admin on ").unwrap();
    eventually("the first pass", || get(admin, "/delivery").text().contains("schedule").then_some(()));
    (process, admin)
}

/// A spool with one batch per record: the receiver responds with 503 and a [`HOSTILE`] body.
fn stage_with_spool(records: usize) -> Fixture {
    let stage = Fixture::new();
    stage.receiver.on_batch(|_| Reply::Status(503, HOSTILE.to_owned()));
    stage.send(records, &[("BATCH_SIZE", "1"), ("MAX_RETRIES", "0")]).exits_with(3);
    stage
}

#[test]
fn delivery_pages_render_in_every_width_language_and_color_scheme() {
    let empty = Fixture::new();
    let (_daemon, admin) = start_daemon(&empty);
    let browser = Browser::start();
    check_page(&browser, &format!("http://{admin}/delivery"), "delivery-empty");
    check_page(&browser, &format!("http://{admin}/delivery/slo"), "delivery-slo-empty");

    let stage = stage_with_spool(60);
    let broken = stage.path().join("broken.jsonl");
    std::fs::write(&broken, format!("{HOSTILE}\nno record\n")).unwrap();
    stage.run(&["send", broken.to_str().unwrap()], &[("MAX_RETRIES", "0")]).exits_with(4);
    let (_daemon, admin) = start_daemon(&stage);
    let at = |path: &str| format!("http://{admin}{path}");
    check_page(&browser, &at("/delivery"), "delivery");
    assert!(browser.text().contains("HTTP 503"), "{}", browser.text());
    browser.click("a[rel=next]");
    browser.click("a[rel=next]");
    assert!(!browser.has("a[rel=next]"), "60 batches must fill three pages: {}", browser.text());
    browser.click("td a");
    let batch = browser.run("return location.href");
    check_page(&browser, batch.as_str().unwrap(), "batch");
    assert!(!browser.text().contains("source_event_id"), "records must be masked");
    check_page(&browser, &at("/delivery?dir=failed"), "delivery-failed");
    check_page(&browser, &at("/delivery/resend?dir=failed"), "delivery-confirm");
    check_page(&browser, &at("/delivery/slo"), "delivery-slo");
    assert!(
        browser.text().contains("成功基準") || browser.text().contains("Success criteria"),
        "{}",
        browser.text()
    );
    check_page(&browser, &at("/trace?id=e7"), "trace");
    check_page(&browser, &at("/trace?id=unknown"), "trace-nothing");
    check_page(&browser, &at("/trace"), "trace-empty");
    eventually("the spool depth", || get(admin, "/").text().contains(">60<").then_some(()));
    check_page(&browser, &at("/"), "overview-delivery");
}

#[test]
fn operator_resends_one_batch_and_then_the_rest() {
    let stage = stage_with_spool(5);
    let (daemon, admin) = start_daemon(&stage);
    assert_eq!(stage.files("spool").len(), 5);
    stage.receiver.on_batch(|_| Reply::Accept);
    let browser = Browser::start();
    browser.open(&format!("http://{admin}/delivery"));
    browser.click("td button");
    assert!(browser.text().contains("Everything was delivered."), "{}", browser.text());
    assert_eq!((stage.receiver.record_count(), stage.files("spool").len()), (1, 4));
    browser.click("main a.button");
    assert!(browser.text().contains("Batches\n4"), "{}", browser.text());
    assert_eq!(stage.receiver.record_count(), 1, "the confirmation page must not send anything");
    browser.click("main button.strong");
    assert!(browser.text().contains("The spool is empty."), "{}", browser.text());
    assert_eq!(
        stage.receiver.counts().into_values().collect::<Vec<_>>(),
        [1; 5],
        "each batch must arrive once"
    );
    assert_eq!(stage.files("spool").len(), 0);
    assert!(browser.text().contains("operator"), "missing from the last runs: {}", browser.text());
    let log = daemon.stderr();
    for action in ["resend a batch", "resend all"] {
        assert!(log.contains(&format!("\"action\":\"{action}\"")), "{log}");
    }
    assert_eq!(browser.logged_problems(), Vec::<String>::new());
}

/// A batch that is still in the spool has not arrived, whatever the cause. Neither the page nor the audit log may claim
/// that it has.
#[test]
fn failed_resend_is_reported() {
    for failure in [Reply::Status(503, String::new()), Reply::Status(401, String::new()), Reply::Disconnect] {
        let stage = stage_with_spool(2);
        let (daemon, admin) = start_daemon(&stage);
        let reply = failure.clone();
        stage.receiver.on_batch(move |_| reply.clone());
        let browser = Browser::start();
        for action in ["td button", "main button.strong"] {
            browser.open(&format!("http://{admin}/delivery"));
            if action == "main button.strong" {
                browser.click("main a.button");
            }
            browser.click(action);
            let text = browser.text();
            assert!(text.contains("Not everything was delivered"), "{failure:?}: {text}");
            assert!(!text.contains("Everything was delivered."), "{failure:?}: {text}");
            assert_eq!(stage.files("spool").len(), 2, "{failure:?}");
        }
        let log = daemon.stderr();
        let audited: Vec<_> = log.lines().filter(|line| line.contains("\"action\":\"resend")).collect();
        assert_eq!(audited.len(), 2, "{log}");
        assert!(audited.iter().all(|line| line.contains("\"result\":\"not-arrived\"")), "{audited:?}");
    }
}

#[test]
fn file_outside_the_spool_is_not_a_batch() {
    let stage = stage_with_spool(1);
    let (_daemon, admin) = start_daemon(&stage);
    for file in ["..%2F..%2Finput.jsonl", "%2Fetc%2Fpasswd", "spool_20250118T120530Z_..%2F..%2Fx.json", ""] {
        assert_eq!(get(admin, &format!("/delivery/batch?dir=spool&file={file}")).status, 404, "{file}");
    }
}

#[test]
fn small_spool_is_read_again_for_each_request() {
    let stage = stage_with_spool(2);
    let (_daemon, admin) = start_daemon(&stage);
    let (path, _) = stage.files("spool").remove(0);
    let added = path.with_file_name("spool_20250118T120530Z_00000000abcd.json");
    let assert_shown = |count: usize| {
        let page = get(admin, "/delivery").text();
        let rows = page.matches("href=\"/delivery/batch?").count();
        assert_eq!((rows, page.contains(&format!("<b>{count}</b>"))), (count, true), "{page}");
        assert_eq!(page.contains("00000000abcd"), count == 3, "{page}");
    };
    assert_shown(2);
    for _ in 0..5 {
        std::fs::copy(&path, &added).unwrap();
        assert_shown(3);
        std::fs::remove_file(&added).unwrap();
        assert_shown(2);
    }
}

/// Pages use the file names only: opening that many files would take seconds.
#[test]
fn twenty_thousand_files_do_not_delay_a_page() {
    let stage = stage_with_spool(1);
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
    // A single 401 ends a pass.
    stage.receiver.on_batch(|_| Reply::Status(401, String::new()));
    let (_daemon, admin) = start_daemon(&stage);
    eventually("the file count", || get(admin, "/delivery").text().contains("20,001").then_some(()));
    for path in ["/", "/claims", "/delivery", "/delivery?after=spool_20250118T120000Z_000000000000.json"] {
        let quickest = (0..20).map(|_| {
            let start = Instant::now();
            assert_eq!(get(admin, path).status, 200);
            start.elapsed()
        });
        let quickest = quickest.min().unwrap();
        assert!(quickest < Duration::from_millis(50), "{path} took {quickest:?}");
    }
}
