//! `ichido demo --serve` keeps running: its console shows what happened, and the command that it prints works.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command};

use ichido_testkit::http_client::{get, send};
use ichido_testkit::process::{Process, address_after};
use ichido_testkit::wait::eventually;

/// A demo that keeps running.
struct Demo {
    process: Process,
    printed: Vec<String>,
    console: SocketAddr,
    gateway: SocketAddr,
    meter: SocketAddr,
    /// Kept open, so that the demo can still print.
    _stdout: BufReader<ChildStdout>,
}

impl Demo {
    /// Starts a demo whose temporary files are in this directory too.
    fn start(dir: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ichido"));
        command.args(["demo", "--serve", "--keys", "30", "--workers", "8"]).current_dir(dir);
        crate::without_settings(|name| {
            command.env_remove(name);
        });
        let mut process = Process::start(command.env("TMPDIR", dir)).unwrap();
        let mut stdout = BufReader::new(process.child.stdout.take().unwrap());
        let mut printed: Vec<String> = Vec::new();
        while printed.last().is_none_or(|line| !line.trim_start().starts_with("curl ")) {
            let mut line = String::new();
            assert!(stdout.read_line(&mut line).unwrap() > 0, "exited: {printed:?} {}", process.stderr());
            printed.push(line);
        }
        let address = |name: &str| {
            let line = printed.iter().find(|line| line.trim_start().starts_with(name));
            let line = line.unwrap_or_else(|| panic!("{name}: {printed:?} {}", process.stderr()));
            address_after(&line.replacen("http://", "at ", 1).replace('/', " "), "at ")
        };
        let (console, gateway, meter) = (address("console"), address("gateway"), address("meter"));
        Self { process, printed, console, gateway, meter, _stdout: stdout }
    }

    fn page(&self, path: &str) -> String {
        let response = get(self.console, path);
        assert_eq!(response.status, 200, "{path}: {}", response.text());
        response.text()
    }

    /// Runs the printed curl command and returns its output.
    fn run_curl(&self) -> String {
        let output = Command::new("sh").args(["-c", self.printed.last().unwrap()]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

/// The text after `before`, up to `after`.
fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let rest = text.split_once(before).unwrap_or_else(|| panic!("{before:?} is not in {text}")).1;
    rest.split_once(after).unwrap().0
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn console_of_a_serving_demo_shows_what_happened() {
    let dir = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(dir.path());

    // The printed command creates one order; running it again replays the response.
    let (first, second) = (demo.run_curl(), demo.run_curl());
    let body = |response: &str| response.rsplit("\r\n\r\n").next().unwrap().to_owned();
    let is_replay = |response: &str| response.to_lowercase().contains("idempotency-replayed: true");
    assert!(first.starts_with("HTTP/1.1 201") && second.starts_with("HTTP/1.1 201"), "{first} {second}");
    assert_eq!((is_replay(&first), is_replay(&second)), (false, true), "{first} {second}");
    assert_eq!(body(&first), body(&second));

    // The overview has a figure of every kind.
    eventually("figures on the overview", || {
        let page = demo.page("/");
        let value = |figure: &str| {
            let text = between(&page, &format!("data-live=\"{figure}\">"), "<");
            text.replace(',', "").parse::<u64>().unwrap_or(0)
        };
        ["requests", "effects", "replays", "conflicts", "in-doubt", "spool", "failed"]
            .into_iter()
            .all(|figure| value(figure) > 0)
            .then_some(())
    });

    // A claim in doubt is listed, and an operator can resolve it.
    let list = demo.page("/claims?state=in-doubt");
    let one = between(&list, "href=\"/claims/one?", "\"").replace("&amp;", "&");
    let page = demo.page(&format!("/claims/one?{one}"));
    assert!(page.contains("It did not happen"), "{page}");
    let question = demo.page(&format!("/claims/resolve?{one}&as=absent"));
    let field = |name: &str| {
        let value = between(&question, &format!("name=\"{name}\" value=\""), "\"");
        format!("{name}={}", value.replace('/', "%2F").replace(' ', "%20"))
    };
    let fields = ["csrf", "key", "tenant", "route", "as", "attempt", "version"].map(field).join("&");
    let form = [("Content-Type", "application/x-www-form-urlencoded")];
    let response = send(demo.console, "POST", "/claims/resolve", &form, fields.as_bytes());
    assert_eq!(response.status, 303, "{fields}: {}", response.text());
    assert_eq!(get(demo.console, &format!("/claims/one?{one}")).status, 404, "the key is free");

    // Batches in spool and failed; usage of several models on several days.
    assert!(demo.page("/delivery").contains("Resend all"));
    assert!(demo.page("/delivery?dir=failed").contains("total_tokens must not be negative"));
    let usage = demo.page("/usage");
    for text in ["gpt-4o", "claude-3-5-sonnet", "gemini-2.0-flash", "app-3", "user-2"] {
        assert!(usage.contains(text), "{text} is not in {usage}");
    }
    assert!(usage.matches("<rect ").count() > 29, "too few bars: {usage}");
    let metered = get(demo.meter, "/v1/usage?group_by=day").json();
    assert_eq!(metered["rows"].as_array().unwrap().len(), 30, "{metered}");
    assert_eq!(get(demo.gateway, "/.well-known/idempotency").status, 200);

    // SIGTERM stops every process and removes every file.
    assert_eq!(entries(dir.path()).len(), 1, "only the temporary directory of the demo");
    demo.process.signal("TERM");
    assert_eq!(demo.process.exit_code(), 0, "{}", demo.process.stderr());
    assert_eq!(entries(dir.path()), Vec::<PathBuf>::new());
    for address in [demo.console, demo.gateway, demo.meter] {
        assert!(std::net::TcpStream::connect(address).is_err(), "{address} still accepts connections");
    }
}

#[test]
fn interrupted_demo_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ichido"));
    command.args(["demo", "--keys", "2000", "--workers", "8"]).current_dir(dir.path());
    let mut process = Process::start(command.env("TMPDIR", dir.path())).unwrap();
    eventually("the first scenario", || {
        let temporary = entries(dir.path()).pop()?;
        temporary.join("effects.log").exists().then_some(())
    });
    process.signal("INT");
    assert_eq!(process.exit_code(), 130);
    assert!(process.stderr().contains("the demo was interrupted"), "{}", process.stderr());
    assert_eq!(entries(dir.path()), Vec::<PathBuf>::new());
}
