//! A holder that is paused: a real process that is stopped past its lease while others continue, and then resumed.

use std::process::Stdio;
use std::time::Duration;

use ichido_core::{Claim, ClaimRequest, Grant, InDoubtPolicy, Key, Outcome, Settled};
use ichido_ledger::Ledger;
use ichido_testkit::ledger_server::{LedgerServer, unique};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::{sleep, timeout};

const LEASE_MS: u64 = 1_500;
/// A loaded machine is slow, a broken ledger never finishes.
const BOUND: Duration = Duration::from_secs(60);

/// A process that holds a key and renews its lease.
struct Holder {
    child: Child,
    go: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Holder {
    async fn start(server: &LedgerServer, key: &Key) -> Holder {
        let mut child = Command::new(env!("CARGO_BIN_EXE_ledger-worker"))
            .args(["hold", &server.url(), key.text(), &LEASE_MS.to_string(), "zombie"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the worker starts");
        let (go, out) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let mut holder = Holder { child, go, output: BufReader::new(out).lines() };
        assert_eq!(holder.read_line().await, "granted");
        holder
    }

    async fn read_line(&mut self) -> String {
        let line = timeout(BOUND, self.output.next_line()).await.expect("the worker is silent");
        line.expect("its output is read").expect("the worker ended")
    }

    fn signal(&self, signal: Signal) {
        let pid = self.child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        kill_process(pid.expect("the worker lives"), signal).expect("the signal is sent");
    }

    /// Resumes it, and lets it complete its claim. Returns what it reports.
    async fn resume_and_complete(mut self) -> String {
        self.signal(Signal::CONT);
        self.go.write_all(b"go\n").await.expect("the worker listens");
        let report = self.read_line().await;
        assert!(
            timeout(BOUND, self.child.wait()).await.expect("it ends").expect("its end is seen").success()
        );
        report
    }
}

fn key() -> Key {
    Key::unscoped(format!("paused-{}", unique())).unwrap()
}

async fn ask(ledger: &Ledger, key: &Key, in_doubt: InDoubtPolicy) -> Claim {
    let request = ClaimRequest { in_doubt, ..ledger.request(key.clone()) };
    ledger.claim(&request).await.expect("the claim is answered").claim
}

/// Claims until the key is no longer held.
async fn past_lease(ledger: &Ledger, key: &Key, in_doubt: InDoubtPolicy) -> Claim {
    let asking = async {
        loop {
            match ask(ledger, key, in_doubt).await {
                Claim::Held { .. } => sleep(Duration::from_millis(20)).await,
                answer @ (Claim::Granted(_)
                | Claim::InDoubt(_)
                | Claim::Done(_)
                | Claim::Mismatch
                | Claim::CallerChanged) => return answer,
            }
        }
    };
    timeout(BOUND, asking).await.expect("a lapsed lease is noticed")
}

/// A holder that is stopped after its first lease was renewed.
async fn stopped(server: &LedgerServer, ledger: &Ledger, key: &Key) -> Holder {
    let holder = Holder::start(server, key).await;
    let renewed = async {
        while ledger.get(key).await.unwrap().expect("it is held").renewals < 3 {
            let answer = ask(ledger, key, InDoubtPolicy::Reject).await;
            assert!(matches!(answer, Claim::Held { .. } | Claim::InDoubt(_)), "{answer:?}");
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(BOUND, renewed).await.expect("the holder renews");
    holder.signal(Signal::STOP);
    holder
}

async fn taken_over(ledger: &Ledger, key: &Key) -> Grant {
    let answer = past_lease(ledger, key, InDoubtPolicy::Retry { silent_ms: LEASE_MS }).await;
    let Claim::Granted(grant) = answer else { panic!("expected a takeover, got {answer:?}") };
    assert_eq!(grant.attempt, 2);
    grant
}

async fn a_paused_holder_gets_the_winners_outcome(server: &LedgerServer) {
    let (ledger, key) = (server.instance().await, key());
    let holder = stopped(server, &ledger, &key).await;
    let grant = taken_over(&ledger, &key).await;
    assert_eq!(ledger.complete(&key, grant.token, Outcome::kept("winner")).await.unwrap(), Settled::Applied);
    assert_eq!(holder.resume_and_complete().await, "stale: done winner");
    assert_eq!(ask(&ledger, &key, InDoubtPolicy::Reject).await, Claim::Done(Outcome::kept("winner")));
}

async fn a_paused_holder_is_refused_while_the_winner_runs(server: &LedgerServer) {
    let (ledger, key) = (server.instance().await, key());
    let holder = stopped(server, &ledger, &key).await;
    let grant = taken_over(&ledger, &key).await;
    assert_eq!(holder.resume_and_complete().await, "stale: running");
    assert_eq!(ledger.complete(&key, grant.token, Outcome::kept("winner")).await.unwrap(), Settled::Applied);
    assert_eq!(ask(&ledger, &key, InDoubtPolicy::Reject).await, Claim::Done(Outcome::kept("winner")));
}

async fn a_paused_holder_may_complete_if_nobody_took_over(server: &LedgerServer) {
    let (ledger, key) = (server.instance().await, key());
    let holder = stopped(server, &ledger, &key).await;
    let answer = past_lease(&ledger, &key, InDoubtPolicy::Reject).await;
    assert!(matches!(answer, Claim::InDoubt(_)), "{answer:?}");
    assert_eq!(holder.resume_and_complete().await, "applied");
    assert_eq!(ask(&ledger, &key, InDoubtPolicy::Reject).await, Claim::Done(Outcome::kept("zombie")));
}

macro_rules! on_both_servers {
    ($($test:ident,)+) => {
        mod postgres {
            $(#[tokio::test]
            async fn $test() {
                super::$test(&super::LedgerServer::postgres().await).await;
            })+
        }
        mod redis {
            $(#[tokio::test]
            async fn $test() {
                super::$test(&super::LedgerServer::redis().await).await;
            })+
        }
    };
}

on_both_servers! {
    a_paused_holder_gets_the_winners_outcome,
    a_paused_holder_is_refused_while_the_winner_runs,
    a_paused_holder_may_complete_if_nobody_took_over,
}
