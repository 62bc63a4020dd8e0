//! Reloads: new rules, secrets and certificates take effect while requests are served, and none is dropped.

use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hmac::{Hmac, KeyInit, Mac};
use ichido_testkit::certificates::write_self_signed;
use ichido_testkit::http_client::{Response, connect, get, post, read_response, send};
use ichido_testkit::http_server::{HttpServer, Reply};
use ichido_testkit::process::Process;
use ichido_testkit::wait::eventually;
use serde_json::{Value, json};
use sha2::Sha256;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

const FILE: &str = "gateway.toml";

/// A gateway whose settings are all in its file.
struct Gateway {
    dir: tempfile::TempDir,
    process: Process,
    address: SocketAddr,
    admin: SocketAddr,
}

impl Gateway {
    fn start(settings: &str) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), "gateway", settings)
    }

    fn start_in(dir: tempfile::TempDir, command: &str, settings: &str) -> Self {
        std::fs::write(dir.path().join(FILE), settings).unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_ichido"));
        process.current_dir(dir.path());
        crate::without_settings(|name| {
            process.env_remove(name);
        });
        process.args([command, "--config", FILE, "--admin", "127.0.0.1:0", "--ledger", "memory:"]);
        let mut process = Process::start(&mut process).unwrap();
        let start = if command == "run" { "gateway listening on " } else { "ichido gateway: listening on " };
        let address = process.wait_for_address(start).unwrap();
        let admin = process.wait_for_address("admin on ").unwrap();
        Self { dir, process, address, admin }
    }

    /// Replaces the file as an editor or a deployment does, all at once.
    fn write(&self, settings: &str) {
        let new = self.dir.path().join("new.toml");
        std::fs::write(&new, settings).unwrap();
        std::fs::rename(new, self.dir.path().join(FILE)).unwrap();
    }

    /// Replaces the file, and waits until a reload that read the new file has this result.
    ///
    /// The first reload that ends after the replacement may have begun before it: the watch notices changes as well. The
    /// second one begins after the first has ended, so it has read the new file.
    #[track_caller]
    fn reload(&self, settings: &str, result: &str) {
        self.write(settings);
        for _ in 0..2 {
            let before = self.reloads(result);
            self.process.signal("HUP");
            eventually("a reload", || (self.reloads(result) > before).then_some(()));
        }
    }

    fn reloads(&self, result: &str) -> f64 {
        self.metric(&format!("ichido_reloads_total{{result=\"{result}\"}}"))
    }

    fn metric(&self, series: &str) -> f64 {
        let text = get(self.admin, "/metrics").text();
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok());
        value.unwrap_or_else(|| panic!("{series} is not in {text}"))
    }

    /// The log lines with this message, so far. A line is written some time after what it reports has taken effect.
    fn lines(&self, message: &str) -> Vec<Value> {
        let said = self.process.stderr();
        let lines = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line.to_string().contains(message)).collect()
    }

    /// Waits for a log line with this message whose field contains this text.
    #[track_caller]
    fn wait_for_line(&self, message: &str, field: &str, text: &str) -> Value {
        let contains_text = |line: &Value| line[field].as_str().is_some_and(|value| value.contains(text));
        eventually(&format!("{message}: {field} with {text}"), || {
            self.lines(message).into_iter().find(contains_text)
        })
    }
}

fn settings(upstream: SocketAddr, rest: &str) -> String {
    format!("[gateway]\nlisten = \"127.0.0.1:0\"\nupstream = \"http://{upstream}\"\n{rest}")
}

/// A service that counts its requests, and whose responses carry its name.
fn service(name: &'static str) -> (HttpServer, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let server = HttpServer::start(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        // Some requests are in progress at every moment.
        async move {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            Reply::status(201, name)
        }
    });
    (server.unwrap(), count)
}

/// An open connection that sends one request after the other.
struct Connection(BufReader<TcpStream>);

impl Connection {
    fn open(to: SocketAddr) -> Self {
        Self(BufReader::new(connect(to).unwrap()))
    }

    fn post(&mut self, path: &str, key: &str) -> std::io::Result<Response> {
        let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n");
        let key = if key.is_empty() { String::new() } else { format!("Idempotency-Key: \"{key}\"\r\n") };
        self.0.get_mut().write_all(format!("{head}{key}\r\n{{}}").as_bytes())?;
        read_response(&mut self.0)
    }
}

#[test]
fn no_request_is_dropped_by_reloads_under_load() {
    const CLIENTS: usize = 16;
    const RELOADS: usize = 12;
    let ((one, of_one), (other, of_other)) = (service("one"), service("other"));
    let route = |retention: usize| format!("[[gateway.routes]]\nretention_seconds = {}\n", 100 + retention);
    let gateway = Gateway::start(&settings(one.address(), &route(0)));
    let (done, sent) = (CancellationToken::new(), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        // The scope waits for the clients even if a reload fails, so a failure must stop them.
        let end = done.clone().drop_guard();
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (gateway, done, sent) = (&gateway, &done, &sent);
                scope.spawn(move || {
                    let mut connection = Connection::open(gateway.address);
                    for number in 0.. {
                        let response = connection.post("/orders", &format!("k{client}-{number}"));
                        assert_eq!(response.unwrap().status, 201);
                        sent.fetch_add(1, Ordering::SeqCst);
                        if done.is_cancelled() {
                            return;
                        }
                    }
                })
            })
            .collect();
        for reload in 1..=RELOADS {
            let upstream = if reload % 2 == 0 { &one } else { &other };
            let before = sent.load(Ordering::SeqCst);
            gateway.reload(&settings(upstream.address(), &route(reload)), "applied");
            eventually("requests after the reload", || {
                (sent.load(Ordering::SeqCst) > before + CLIENTS).then_some(())
            });
        }
        drop(end);
        clients.into_iter().for_each(|client| client.join().unwrap());
    });
    let effects = [of_one, of_other].map(|count| count.load(Ordering::SeqCst));
    let sent = sent.into_inner();
    assert_eq!(effects.iter().sum::<usize>(), sent, "each request ran once: {effects:?}");
    assert!(effects.iter().all(|count| *count > CLIENTS), "both services were used: {effects:?}");
    let first = gateway.metric("ichido_requests_total{route=\"POST,PATCH /**\",outcome=\"first\"}");
    assert_eq!(first, sent as f64, "the counters carry on");
    // A client has its response before the request is no longer counted as running.
    eventually("the end of all requests", || (gateway.metric("ichido_inflight") == 0.0).then_some(()));
}

#[test]
fn a_request_in_progress_finishes_with_the_old_rules_and_keeps_its_slot() {
    let (started, released) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let gates = (started.clone(), released.clone());
    let slow = HttpServer::start(move |_| {
        let (started, released) = gates.clone();
        async move {
            started.add_permits(1);
            released.acquire().await.unwrap().forget();
            Reply::status(201, "slow")
        }
    })
    .unwrap();
    let (fast, of_fast) = service("fast");
    let gateway = Gateway::start(&settings(slow.address(), "inflight_max = 1\n"));
    let address = gateway.address;
    let mut open = Connection::open(address);
    assert_eq!(open.post("/unkeyed", "").unwrap().problem(), "key-missing");
    let first = std::thread::spawn(move || post(address, "/orders", "\"k\"", "{}"));
    eventually("the first request", || (started.available_permits() == 1).then_some(()));
    let new = "[[gateway.routes]]\nmatch = \"POST /orders\"\nretention_seconds = 77\n";
    gateway.reload(&settings(fast.address(), &format!("inflight_max = 1\n{new}")), "applied");
    assert_eq!(
        open.post("/unkeyed", "").unwrap().text(),
        "fast",
        "the open connection follows the new rules"
    );
    let overloaded = open.post("/orders", "other").unwrap();
    assert_eq!(overloaded.problem(), "overloaded", "the old request still counts");
    released.add_permits(1);
    let first = first.join().unwrap();
    assert_eq!((first.status, first.text()), (201, "slow".to_owned()));
    assert_eq!(first.header("idempotency-key-lifetime"), Some("86400"), "as the old rules said");
    eventually("a free slot", || (open.post("/orders", "other").unwrap().status == 201).then_some(()));
    let replayed = post(gateway.address, "/orders", "\"k\"", "{}");
    assert!(replayed.is_replay() && replayed.text() == "slow", "{replayed:?}");
    assert_eq!(of_fast.load(Ordering::SeqCst), 2);
    // The limits are reloaded, too.
    gateway.reload(&settings(fast.address(), "inflight_max = 1\nbody_max_bytes = 1\n"), "applied");
    assert_eq!(open.post("/orders", "large").unwrap().problem(), "body-too-large");
}

#[test]
fn a_changed_file_is_noticed_without_a_signal() {
    let (service, _) = service("service");
    let gateway =
        Gateway::start(&settings(service.address(), "[[gateway.routes]]\nmatch = \"POST /orders\"\n"));
    let mut open = Connection::open(gateway.address);
    assert_eq!(open.post("/payments", "").unwrap().status, 201);
    gateway.write(&settings(service.address(), "[[gateway.routes]]\nmatch = \"POST /payments\"\n"));
    eventually("the new route", || {
        (open.post("/payments", "").unwrap().header("content-type") == Some("application/problem+json"))
            .then_some(())
    });
    assert_eq!(open.post("/orders", "").unwrap().status, 201);
    let line = eventually("the log line", || gateway.lines("settings reloaded").pop());
    assert_eq!(line["files"], FILE, "{line}");
    assert_eq!(line["settings"], "gateway.routes[0].match", "{line}");
    let rules = get(gateway.address, "/.well-known/idempotency").text();
    assert!(rules.contains("POST /payments") && !rules.contains("POST /orders"), "{rules}");
}

#[test]
fn invalid_settings_are_refused_as_a_whole() {
    let (service, _) = service("service");
    let good = settings(service.address(), "[[gateway.routes]]\nmatch = \"POST /orders\"\n");
    let gateway = Gateway::start(&good);
    let still_in_force = |gateway: &Gateway| {
        let mut connection = Connection::open(gateway.address);
        assert_eq!(connection.post("/orders", "").unwrap().problem(), "key-missing");
        assert_eq!(connection.post("/payments", "").unwrap().status, 201);
        assert_eq!(get(gateway.admin, "/readyz").status, 200);
    };
    let payments = "[[gateway.routes]]\nmatch = \"POST /payments\"\n";
    for (bad, error) in [
        (
            settings(service.address(), &format!("{payments}in_flight = \"queue\"\n")),
            "gateway.routes[0].in_flight: is \"queue\"; expected conflict or wait (gateway.toml:6)",
        ),
        (
            format!("[gateway]\nlisten = \"127.0.0.1:0\"\nupstream = \"ftp://:hunter2@h\"\n{payments}"),
            "gateway.upstream: is neither http nor https; expected something like http://127.0.0.1:5000 (gateway.toml:3)",
        ),
        (format!("{payments}[ledger\n"), "gateway.toml:3"),
    ] {
        gateway.reload(&bad, "refused");
        let line = gateway.wait_for_line("settings not reloaded", "error", error);
        assert_eq!(line["level"], "ERROR", "{line}");
        still_in_force(&gateway);
    }
    assert!(!gateway.process.stderr().contains("hunter2"));
    std::fs::remove_file(gateway.dir.path().join(FILE)).unwrap();
    gateway.process.signal("HUP");
    gateway.wait_for_line("settings not reloaded", "error", "settings file gateway.toml: no such file");
    still_in_force(&gateway);
    assert_eq!(gateway.reloads("applied"), 0.0);
    gateway.reload(&settings(service.address(), payments), "applied");
    assert_eq!(Connection::open(gateway.address).post("/payments", "").unwrap().problem(), "key-missing");
}

#[test]
fn settings_that_need_a_restart_are_named() {
    let (service, _) = service("service");
    let gateway = Gateway::start(&settings(service.address(), ""));
    let changed = "[ledger]\ntimeout_ms = 4000\n[delivery]\nbatch_size = 7\n[gateway]\nlisten = \"127.0.0.1:1\"\n\
                   shutdown_seconds = 7\ntls_cert_file = \"cert.pem\"\ntls_key_file = \"key.pem\"\nstrict_keys = true\n";
    write_self_signed(gateway.dir.path());
    let changed = format!(
        "{changed}upstream = \"http://{}\"\n[[gateway.routes]]\noutage = \"fallback\"\n",
        service.address()
    );
    gateway.reload(&changed, "applied");
    let line = eventually("the warning", || gateway.lines("need a restart").pop());
    assert_eq!(line["level"], "WARN", "{line}");
    let mut named: Vec<_> = line["settings"].as_str().unwrap().split(", ").collect();
    named.sort_unstable();
    let expected = [
        "gateway.listen",
        "gateway.routes[0].outage",
        "gateway.shutdown_seconds",
        "gateway.tls_cert_file",
        "gateway.tls_key_file",
        "ledger.timeout_ms",
    ];
    assert_eq!(named, expected, "delivery is no part of this process");
    let unquoted = send(gateway.address, "POST", "/orders", &[("Idempotency-Key", "k")], b"{}");
    assert_eq!(
        unquoted.problem(),
        "key-invalid",
        "what can be reloaded is in force, on the old port without TLS"
    );
    // A warning would stand between the lines of these two reloads.
    gateway.reload(&settings(service.address(), "body_max_bytes = 7\n"), "applied");
    gateway.reload(&settings(service.address(), "body_max_bytes = 8\n"), "applied");
    let between = eventually("both reloads in the log", || {
        let lines = gateway.lines("settings");
        let is_reload = |line: &Value| line["settings"].to_string().contains("gateway.body_max_bytes");
        let (first, last) = (lines.iter().position(is_reload)?, lines.iter().rposition(is_reload)?);
        (first < last).then(|| lines[first..last].to_vec())
    });
    let warns = |line: &Value| line.to_string().contains("need a restart");
    assert!(!between.iter().any(warns), "nothing differs from the start any more: {between:?}");
}

/// The status and the output of curl, if it trusts this certificate only.
fn curl(dir: &Path, certificate: &str, address: SocketAddr) -> (bool, String) {
    let curl = Command::new("curl")
        .current_dir(dir)
        .args(["-sS", "--cacert", certificate, "-o", "-", "-w", "%{http_code}"])
        .arg(format!("https://localhost:{}/x", address.port()))
        .output()
        .unwrap();
    (curl.status.success(), String::from_utf8_lossy(&[curl.stdout, curl.stderr].concat()).into_owned())
}

#[test]
fn a_new_certificate_is_presented_to_new_connections() {
    let (service, _) = service("service");
    let (dir, renewed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_self_signed(dir.path());
    std::fs::copy(dir.path().join("cert.pem"), dir.path().join("old.pem")).unwrap();
    write_self_signed(renewed.path());
    let tls = "tls_cert_file = \"cert.pem\"\ntls_key_file = \"key.pem\"\n";
    let meter =
        "[meter]\nlisten = \"127.0.0.1:0\"\ntls_cert_file = \"cert.pem\"\ntls_key_file = \"key.pem\"\n";
    let mut gateway = Gateway::start_in(dir, "run", &settings(service.address(), &format!("{tls}{meter}")));
    let meter = gateway.process.wait_for_address("meter listening on ").unwrap();
    let dir = gateway.dir.path();
    let listeners = [gateway.address, meter];
    for address in listeners {
        assert!(curl(dir, "old.pem", address).0, "{:?}", curl(dir, "old.pem", address));
    }
    // The certificate without its key is refused, and the old pair stays in force.
    std::fs::copy(renewed.path().join("cert.pem"), dir.join("cert.pem")).unwrap();
    gateway.process.signal("HUP");
    let mismatch = "gateway.tls_key_file: key.pem: does not match cert.pem";
    gateway.wait_for_line("settings not reloaded", "error", mismatch);
    assert!(curl(dir, "old.pem", gateway.address).0);
    std::fs::copy(renewed.path().join("key.pem"), dir.join("key.pem")).unwrap();
    for address in listeners {
        eventually("the new certificate", || curl(dir, "cert.pem", address).0.then_some(()));
        assert!(!curl(dir, "old.pem", address).0);
    }
    let without_tls = "[meter]\nlisten = \"127.0.0.1:0\"\n";
    gateway.reload(&settings(service.address(), &format!("{tls}{without_tls}")), "applied");
    let line = eventually("the warning", || gateway.lines("need a restart").pop());
    assert_eq!(line["settings"], "meter.tls_cert_file, meter.tls_key_file", "{line}");
}

#[test]
fn a_section_that_would_start_a_component_needs_a_restart() {
    let (service, _) = service("service");
    let gateway = Gateway::start_in(tempfile::tempdir().unwrap(), "run", &settings(service.address(), ""));
    // Settings that would fail at the next start are refused now.
    gateway
        .reload(&settings(service.address(), "[delivery]\nendpoint = \"http://example.com\"\n"), "refused");
    gateway.wait_for_line("settings not reloaded", "error", "gateway.toml:5");
    gateway.reload(&settings(service.address(), "strict_keys = true\n[meter]\n"), "applied");
    let line = eventually("the warning", || gateway.lines("need a restart").pop());
    assert_eq!(line["settings"], "[meter]", "{line}");
    let applied = gateway.wait_for_line("settings reloaded", "settings", "gateway.");
    assert_eq!(applied["settings"], "gateway.strict_keys", "{applied}");
}

#[test]
fn secrets_rotate() {
    let (service, _) = service("service");
    let route = |secrets: &str| {
        let route = "[[gateway.routes]]\npreset = \"github\"\nmatch = \"POST /hook\"\n";
        let tenant = "tenant = \"jwt:sub\"\njwt_key_file = \"jwt.key\"\n";
        settings(
            service.address(),
            &format!("{tenant}{route}github_webhook_secret = {secrets}\n[[gateway.routes]]\n"),
        )
    };
    let dir = tempfile::tempdir().unwrap();
    let jwt_keys = ["old-0123456789abcdef0123456789abcdef", "new-0123456789abcdef0123456789abcdef"];
    std::fs::write(dir.path().join("jwt.key"), jwt_keys[0]).unwrap();
    let gateway = Gateway::start_in(dir, "gateway", &route("\"old-secret\""));
    let deliver = |secret: &str, id: &str| {
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
        mac.update(b"{}");
        let signature = format!("sha256={}", hex::encode(mac.finalize().into_bytes()));
        let headers =
            [("X-GitHub-Delivery", id), ("X-GitHub-Event", "ping"), ("X-Hub-Signature-256", &signature)];
        send(gateway.address, "POST", "/hook", &headers, b"{}").status
    };
    assert_eq!((deliver("old-secret", "1"), deliver("new-secret", "2")), (201, 401));
    gateway.reload(&route("[\"new-secret\", \"old-secret\"]"), "applied");
    assert_eq!((deliver("old-secret", "3"), deliver("new-secret", "4")), (201, 201));
    gateway.reload(&route("\"new-secret\""), "applied");
    assert_eq!((deliver("old-secret", "5"), deliver("new-secret", "6")), (401, 201));
    assert!(!gateway.process.stderr().contains("new-secret"), "only the name of the setting is logged");
    let order = |key: &str| {
        let key = jsonwebtoken::EncodingKey::from_secret(key.as_bytes());
        let claims = json!({"sub": "u1", "exp": 4_000_000_000_u64});
        let token = jsonwebtoken::encode(&jsonwebtoken::Header::default(), &claims, &key).unwrap();
        let headers = [("Idempotency-Key", "\"k\""), ("Authorization", &format!("Bearer {token}"))];
        send(gateway.address, "POST", "/orders", &headers, b"{}").status
    };
    assert_eq!((order(jwt_keys[0]), order(jwt_keys[1])), (201, 401));
    std::fs::write(gateway.dir.path().join("jwt.key"), jwt_keys[1]).unwrap();
    eventually("the new key", || (order(jwt_keys[1]) == 201).then_some(()));
    assert_eq!(order(jwt_keys[0]), 401);
}

/// Starts a command in a terminal, closes the terminal once it serves, and prints its exit code.
const IN_A_TERMINAL: &str = "
import os, pty, sys
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
text = b''
while b'admin on' not in text:
    text += os.read(terminal, 4096)
os.close(terminal)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
";

#[test]
fn a_process_whose_terminal_is_closed_stops() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new("python3");
    crate::without_settings(|name| {
        command.env_remove(name);
    });
    command.current_dir(dir.path()).args(["-c", IN_A_TERMINAL, env!("CARGO_BIN_EXE_ichido"), "gateway"]);
    command.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--ledger", "memory:"]);
    command.args(["--upstream", "http://127.0.0.1:9"]);
    let mut process = Process::start(&mut command).unwrap();
    assert_eq!(process.read_stdout().unwrap(), "0\n", "{}", process.stderr());
}
