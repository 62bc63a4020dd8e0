//! The third act: a receiver goes down and comes back while records flow. The sender is the real command; the records
//! that it is fed are read from a pipe, so that the outage meets it in the middle.

pub(super) mod receiver;

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde::Serialize;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};

use self::receiver::{LOSES, Receiver};
use super::effect_log::Effects;
use super::{Row, Stage};
use crate::output;
use ichido_serve::Failure;

/// Records in a batch, and batches for each operation that was asked for.
pub(super) const BATCH: u32 = 10;
/// What the receiver counted.
pub(super) const ARRIVALS: &str = "arrivals.log";
const ACT_LIMIT: Duration = Duration::from_secs(120);
/// Exit code: something waits in the spool.
pub(super) const WAITING: i32 = 3;

/// What the third act showed.
#[derive(Debug, Default, Serialize)]
pub(super) struct Verdict {
    pub(super) records: u32,
    requests: u32,
    answers_lost: u32,
    duplicates_told: u32,
    arrived_before_the_outage: u32,
    spooled_in_the_outage: u32,
    counted_once: u32,
    counted_twice: u32,
    never_counted: u32,
    left_in_spool: u32,
    left_in_failed: u32,
    broken: Vec<String>,
}

/// Plays the act.
pub(super) async fn play(stage: &Stage<'_>) -> Result<Verdict, Failure> {
    let records = stage.args.keys.next_multiple_of(BATCH) * 3;
    stage.say(&format!(
        "now delivery: {records} records flow to a receiver that loses every {LOSES}th answer, goes down in the middle and comes back."
    ));
    tokio::time::timeout(ACT_LIMIT, act(stage, records))
        .await
        .map_err(|_| Failure::internal("the demo's third act did not end"))?
}

async fn act(stage: &Stage<'_>, records: u32) -> Result<Verdict, Failure> {
    let log = stage.dir.join(ARRIVALS);
    let mut receiver = Receiver::start(&log).await?;
    let third = records / 3;
    let mut flow = Flow::start(stage, &receiver)?;
    flow.write(0..third).await?;
    receiver.has_seen(third / 2).await;
    receiver.goes_down().await;
    let before = receiver.records();
    flow.write(third..2 * third).await?;
    let code = flow.end().await?;
    let spooled = files(stage.dir, "spool")?;
    stage.say(&format!(
        "the receiver went down after {before} records; the sender ended with code {code}, and {spooled} batches wait in the spool."
    ));
    let mut broken = Vec::new();
    if code != WAITING {
        broken.push(format!("the sender ended with code {code} while the receiver was down"));
    }
    receiver.comes_back().await?;
    let mut rest = Flow::start(stage, &receiver)?;
    rest.write(2 * third..records).await?;
    let code = rest.end().await?;
    stage.say(&format!(
        "it came back; the next run sent what waited, then the rest, and ended with code {code}."
    ));
    if code != 0 {
        broken.push(format!("the sender ended with code {code} although the receiver was back"));
    }
    let mut verdict = judge(records, &Effects::read(&log)?, broken);
    verdict.requests = receiver.requests();
    verdict.answers_lost = receiver.lost();
    verdict.duplicates_told = receiver.duplicates();
    (verdict.arrived_before_the_outage, verdict.spooled_in_the_outage) = (before, spooled);
    (verdict.left_in_spool, verdict.left_in_failed) =
        (files(stage.dir, "spool")?, files(stage.dir, "failed")?);
    if verdict.left_in_spool + verdict.left_in_failed > 0 {
        verdict.broken.push("not everything was delivered at the end".to_owned());
    }
    Ok(verdict)
}

pub(super) fn name(number: u32) -> String {
    format!("usage-{number:06}")
}

fn judge(records: u32, arrivals: &Effects, mut broken: Vec<String>) -> Verdict {
    let mut verdict = Verdict { records, ..Verdict::default() };
    for name in (0..records).map(name) {
        match arrivals.count(&name) {
            0 => {
                verdict.never_counted += 1;
                broken.push(format!("{name} never arrived"));
            }
            1 => verdict.counted_once += 1,
            times => {
                verdict.counted_twice += 1;
                broken.push(format!("{name} was counted {times} times"));
            }
        }
    }
    Verdict { broken, ..verdict }
}

fn line(number: u32, tokens: i64) -> String {
    format!("{{\"source_event_id\":\"{}\",\"total_tokens\":{tokens}}}\n", name(number))
}

/// The settings of a sender to this receiver.
pub(super) fn settings<'a>(
    command: &'a mut Command,
    stage: &Stage<'_>,
    receiver: &Receiver,
) -> &'a mut Command {
    command
        .env("DATA_DIR", stage.dir.join("delivery"))
        .env("EXTERNAL_API_ENDPOINT", receiver.url())
        .env("EXTERNAL_API_TOKEN", "demo")
        .env("EXTERNAL_API_ALLOW_HTTP_LOOPBACK", "true")
        .env("BATCH_SIZE", BATCH.to_string())
        .env("RETRY_BACKOFF_MS", "20")
}

/// A run of `ichido send` that reads from us.
pub(super) struct Flow {
    child: Child,
}

impl Flow {
    pub(super) fn start(stage: &Stage<'_>, receiver: &Receiver) -> Result<Self, Failure> {
        let mut command: Command = stage.myself()?;
        settings(&mut command, stage, receiver)
            .args(["send", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child =
            command.spawn().map_err(|error| Failure::internal(format!("starting the sender: {error}")))?;
        Ok(Self { child })
    }

    /// Feeds it these records.
    pub(super) async fn write(&mut self, numbers: std::ops::Range<u32>) -> Result<(), Failure> {
        let lines: String = numbers.map(|number| line(number, i64::from(number))).collect();
        self.feed(&lines).await
    }

    /// Feeds it a record that cannot be.
    pub(super) async fn write_nonsense(&mut self, number: u32) -> Result<(), Failure> {
        self.feed(&line(number, -1)).await
    }

    async fn feed(&mut self, lines: &str) -> Result<(), Failure> {
        let stdin = self.child.stdin.as_mut().ok_or_else(|| Failure::internal("the sender has no input"))?;
        let written = async {
            stdin.write_all(lines.as_bytes()).await?;
            stdin.flush().await
        };
        written.await.map_err(|error| Failure::internal(format!("feeding the sender: {error}")))
    }

    /// Ends its input, and waits for its exit code.
    pub(super) async fn end(mut self) -> Result<i32, Failure> {
        drop(self.child.stdin.take());
        let status = self.child.wait().await;
        let status = status.map_err(|error| Failure::internal(format!("waiting for the sender: {error}")))?;
        Ok(status.code().unwrap_or(-1))
    }
}

/// How many batches lie in a place.
pub(super) fn files(dir: &Path, place: &str) -> Result<u32, Failure> {
    let dir = dir.join("delivery").join(place);
    let entries =
        std::fs::read_dir(&dir).map_err(|error| Failure::internal(format!("{}: {error}", dir.display())))?;
    let files = entries.flatten().filter(|entry| entry.path().is_file()).count();
    Ok(u32::try_from(files).unwrap_or(u32::MAX))
}

impl super::Verdict for Verdict {
    const NAME: &'static str = "delivery";

    fn broken(&self) -> &[String] {
        &self.broken
    }

    fn row(&self) -> Row {
        Row {
            sent: format!("{} records to a receiver that goes down and loses answers", self.records),
            happened: format!(
                "{} counted once, {} twice, {} never",
                self.counted_once, self.counted_twice, self.never_counted
            ),
            without: format!(
                "{} lost in the outage, {} counted twice after a lost answer",
                self.spooled_in_the_outage * BATCH,
                self.duplicates_told * BATCH
            ),
        }
    }

    fn print(&self) {
        let mut table = output::table(&["at the receiver", "how many"]);
        for (what, count) in [
            ("records sent", self.records),
            ("requests that came", self.requests),
            ("answers that were lost", self.answers_lost),
            ("repeats told that the batch is known (409)", self.duplicates_told),
            ("records that arrived before the outage", self.arrived_before_the_outage),
            ("batches in the spool during the outage", self.spooled_in_the_outage),
            ("batches in the spool or in failed at the end", self.left_in_spool + self.left_in_failed),
            ("records counted once", self.counted_once),
            ("records counted twice", self.counted_twice),
            ("records that never arrived", self.never_counted),
        ] {
            table.add_row([what.to_owned(), count.to_string()]);
        }
        outln!("{table}");
    }
}
