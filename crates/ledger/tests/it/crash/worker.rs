//! A worker process, and what it reports.

use std::collections::HashSet;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// What was acknowledged to workers before they were killed.
#[derive(Debug, Default)]
pub(crate) struct Acknowledged {
    claimed: HashSet<String>,
    done: HashSet<String>,
}

impl Acknowledged {
    /// Keys whose outcome was recorded.
    pub(crate) fn done(&self) -> impl Iterator<Item = &String> {
        self.done.iter()
    }

    /// Keys that were granted, and whose completion was not reported.
    pub(crate) fn unfinished(&self) -> impl Iterator<Item = &String> {
        self.claimed.difference(&self.done)
    }

    fn record(&mut self, line: &str) {
        match line.split_once(' ') {
            Some(("claimed", text)) => {
                assert!(self.claimed.insert(text.to_owned()), "{text} was granted twice")
            }
            Some(("done", text)) => assert!(self.done.insert(text.to_owned()), "{text} was done twice"),
            _ => panic!("the worker said {line:?}"),
        }
    }
}

/// A process that works until it is killed.
pub(crate) struct Worker {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    pub(crate) fn start(url: &str, prefix: &str, tasks: u32, lease_ms: u64) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_ledger-worker"))
            .args([url, prefix, &tasks.to_string(), &lease_ms.to_string()])
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the worker starts");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        Self { child, lines }
    }

    /// Waits for its first report, and then reads reports for `time`.
    pub(crate) async fn read_for(&mut self, time: Duration, acknowledged: &mut Acknowledged) {
        let first = tokio::time::timeout(Duration::from_secs(30), self.lines.next_line()).await;
        acknowledged.record(&first.expect("the worker starts").unwrap().expect("the worker reports"));
        let end = tokio::time::Instant::now() + time;
        while let Ok(line) = tokio::time::timeout_at(end, self.lines.next_line()).await {
            acknowledged.record(&line.unwrap().expect("the worker lives"));
        }
    }

    /// kill -9, then reads its remaining reports.
    pub(crate) async fn kill(mut self, acknowledged: &mut Acknowledged) {
        self.child.start_kill().expect("it can be killed");
        while let Some(line) = self.lines.next_line().await.unwrap() {
            acknowledged.record(&line);
        }
        drop(self.child.wait().await);
    }
}
