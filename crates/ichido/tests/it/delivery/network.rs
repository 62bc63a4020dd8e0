//! Receivers that cannot be reached: unknown names, silent resolvers and peers, obsolete TLS versions.

#![allow(clippy::print_stderr, reason = "a skipped test must say so")]

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use ichido_testkit::process::Process;
use ichido_testkit::receiver::Reply;
use ichido_testkit::{free_port, tcp_server};

use super::{Fixture, Run};

/// The limit for each of the two requests.
const TIMEOUT: (&str, &str) = ("EXTERNAL_API_TIMEOUT_MS", "700");
const ONE_RETRY: (&str, &str) = ("MAX_RETRIES", "1");
/// Far more than two timeouts, far less than the resolver's own timeout of 30 seconds.
const ELAPSED_MAX: Duration = Duration::from_secs(15);

/// Sends to an endpoint that cannot be reached. Asserts that both requests fail in time and the batch is spooled.
fn send_fails_twice(fixture: &Fixture, command: &mut Command, endpoint: &str) -> Run {
    let started = Instant::now();
    let output = command.env("EXTERNAL_API_ENDPOINT", endpoint).envs([TIMEOUT, ONE_RETRY]).output().unwrap();
    let run = Run::of(output);
    run.exits_with(3);
    assert!(started.elapsed() < ELAPSED_MAX, "{:?}", started.elapsed());
    let errors = run.log("not delivered");
    assert_eq!(errors.len(), 2, "{}", run.stderr);
    let kinds: Vec<&str> = errors.iter().map(|line| line["errorKind"].as_str().unwrap()).collect();
    assert!(kinds.iter().all(|kind| ["network", "timeout"].contains(kind)), "{kinds:?}");
    assert_eq!(fixture.files("spool").len(), 1);
    run
}

fn send(fixture: &Fixture) -> Command {
    let file = fixture.input(0..1);
    fixture.command(&["send", file.to_str().unwrap()])
}

/// `ichido send` with this name server, or `None` without root privileges.
fn with_resolver(fixture: &Fixture, server: &str) -> Option<Command> {
    let conf = fixture.path().join("resolv.conf");
    std::fs::write(&conf, format!("nameserver {server}\noptions timeout:30 attempts:1\n")).unwrap();
    let bind = "mount --bind \"$0\" /etc/resolv.conf && exec \"$@\"";
    let unshared = |program: &Path| {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", bind]).arg(&conf).arg(program);
        command
    };
    if !unshared(Path::new("true")).output().is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: mounting a resolv.conf requires root");
        return None;
    }
    let send = send(fixture);
    let mut command = unshared(Path::new(send.get_program()));
    command.args(send.get_args()).current_dir(fixture.path());
    for (name, value) in send.get_envs().filter_map(|(name, value)| Some((name, value?))) {
        command.env(name, value);
    }
    Some(command)
}

#[test]
fn unresolvable_name_is_retried_before_spooling() {
    let fixture = Fixture::new();
    let Ok(server) = UdpSocket::bind("127.77.5.1:53") else {
        eprintln!("SKIPPED: running a name server requires root");
        return;
    };
    let Some(mut command) = with_resolver(&fixture, "127.77.5.1") else { return };
    let name_server = std::thread::spawn(move || {
        let mut packet = [0; 512];
        server.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut queries = 0;
        while let Ok((length, from)) = server.recv_from(&mut packet) {
            // Turns the query into the response NXDOMAIN.
            (packet[2], packet[3]) = (0x81, 0x83);
            server.send_to(&packet[..length], from).unwrap();
            queries += 1;
        }
        queries
    });
    send_fails_twice(&fixture, &mut command, "https://receiver.test/");
    assert!(name_server.join().unwrap() > 0, "the name server got no query");
}

#[test]
fn hanging_resolver_does_not_outlast_the_timeout() {
    let fixture = Fixture::new();
    let Ok(_silent) = UdpSocket::bind("127.77.5.2:53") else {
        eprintln!("SKIPPED: running a name server requires root");
        return;
    };
    let Some(mut command) = with_resolver(&fixture, "127.77.5.2") else { return };
    send_fails_twice(&fixture, &mut command, "https://receiver.test/");
}

#[test]
fn refused_reset_and_silent_connections_are_retried() {
    let fixture = Fixture::new();
    send_fails_twice(&fixture, &mut send(&fixture), &format!("https://127.0.0.1:{}/", free_port()));

    // Closing a socket with unread data sends a reset to the peer.
    let reset = tcp_server::start(|stream| drop(stream.peek(&mut [0])));
    let fixture = Fixture::new();
    send_fails_twice(&fixture, &mut send(&fixture), &format!("https://{reset}/"));

    // Accepts the connection, then stays silent.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let fixture = Fixture::new();
    let run = send_fails_twice(
        &fixture,
        &mut send(&fixture),
        &format!("https://{}/", silent.local_addr().unwrap()),
    );
    assert!(run.stderr.contains("time"), "{}", run.stderr);
}

#[test]
fn trickling_response_does_not_outlast_the_timeout() {
    let fixture = Fixture::new();
    fixture.receiver.reply_in_order([Reply::AcceptWithTrickledBody]);
    let started = Instant::now();
    let run = fixture.send(1, &[TIMEOUT]);
    run.exits_with(0);
    assert!(started.elapsed() < ELAPSED_MAX, "{:?}", started.elapsed());
    assert_eq!(run.log("not delivered")[0]["errorKind"], "timeout");
    assert_eq!(run.metrics()["send_duplicate"], 1, "the first request had arrived");
    fixture.receiver.assert_each_record_once(1);
}

#[test]
fn obsolete_tls_version_holds_the_lane() {
    let fixture = Fixture::new();
    let identity = &fixture.identity;
    for (name, text) in [("old.pem", &identity.certificate), ("old.key", &identity.key)] {
        std::fs::write(fixture.path().join(name), text).unwrap();
    }
    let script = "
import socket, ssl
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
context.set_ciphers('ALL:@SECLEVEL=0')
context.load_cert_chain('old.pem', 'old.key')
listener = socket.create_server(('127.0.0.1', 0))
print(listener.getsockname()[1], flush=True)
while True:
    try:
        stream = context.wrap_socket(listener.accept()[0], server_side=True)
        print('spoke', stream.version(), stream.recv(100), flush=True)
    except OSError as error:
        print('refused', error, flush=True)
";
    let mut server = Process::start(
        Command::new("python3").current_dir(fixture.path()).args(["-W", "ignore", "-c", script]),
    )
    .unwrap();
    let mut lines = BufReader::new(server.child.stdout.take().unwrap()).lines();
    let port: u16 = lines.next().unwrap_or_else(|| panic!("{}", server.stderr())).unwrap().parse().unwrap();
    let endpoint = format!("https://localhost:{port}/");
    let run = fixture.send(200, &[("EXTERNAL_API_ENDPOINT", &endpoint)]);
    run.exits_with(3);
    assert!(lines.next().unwrap().unwrap().starts_with("refused"));
    assert!(run.stderr.contains("the lane is held until an operator acts: tls"), "{}", run.stderr);
    assert!(run.log("notice").iter().any(|line| line["subject"] == "ichido: 1 lane held"), "{}", run.stderr);
    assert_eq!(fixture.files("spool").len(), 2);
}
