//! Scenario 3: records flow to a receiver that loses responses, goes down and comes back.

pub(super) mod receiver;
pub(super) mod sender;

use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use self::receiver::LOSE_EVERY;
use self::sender::{EXIT_SPOOLED, Sender};
use super::effect_log::EffectLog;
use super::report::{Comparison, ScenarioReport, print_counts};
use super::sandbox::Sandbox;
use ichido_serve::Failure;

/// Records in a batch.
pub(super) const BATCH: u32 = 10;
/// The log of the records that the receiver counted, in the demo's directory.
pub(super) const ARRIVALS: &str = "arrivals.log";
const SCENARIO_MAX: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(1);

#[derive(Debug, Default, Serialize)]
pub(super) struct Report {
    pub(super) records: u32,
    requests: u32,
    responses_lost: u32,
    duplicates_recognised: u32,
    arrived_before_outage: u32,
    batches_spooled: u32,
    counted_once: u32,
    counted_twice: u32,
    never_counted: u32,
    left_in_spool: u32,
    left_in_failed: u32,
    broken: Vec<String>,
}

pub(super) async fn run(sandbox: &Sandbox<'_>) -> Result<Report, Failure> {
    let records = sandbox.args.keys.next_multiple_of(BATCH) * 3;
    sandbox.introduce(
        "3. Delivery",
        &format!(
            "{records} records go to a receiver that loses every {LOSE_EVERY}th response, goes down, and comes back."
        ),
    );
    tokio::time::timeout(SCENARIO_MAX, run_in(sandbox, records))
        .await
        .map_err(|_| Failure::internal(format!("the delivery scenario took more than {SCENARIO_MAX:?}")))?
}

async fn run_in(sandbox: &Sandbox<'_>, records: u32) -> Result<Report, Failure> {
    let log = sandbox.dir.join(ARRIVALS);
    let receiver = receiver::start(&log)?;
    let mut broken = Vec::new();
    let third = records / 3;

    let mut sender = Sender::start(sandbox, &receiver)?;
    sender.write(0..third).await?;
    while count(receiver.record_count()) < third / 2 {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    receiver.go_down().map_err(receiver::failure)?;
    let arrived_before_outage: u32 = receiver.counts().values().sum();
    sender.write(third..2 * third).await?;
    let code = sender.finish().await?;
    let batches_spooled = count_files(sandbox.dir, "spool")?;
    sandbox.say(&format!(
        "The receiver goes down after {arrived_before_outage} records. The sender leaves {batches_spooled} batches in its spool, and exits with code {code}."
    ));
    if code != EXIT_SPOOLED {
        broken.push(format!("the sender exited with code {code} while the receiver was down"));
    }

    receiver.come_back().map_err(receiver::failure)?;
    let mut sender = Sender::start(sandbox, &receiver)?;
    sender.write(2 * third..records).await?;
    let code = sender.finish().await?;
    sandbox.say(&format!(
        "The receiver is back. The next run sends the spooled batches, then the other records, and exits with code {code}."
    ));
    if code != 0 {
        broken.push(format!("the sender exited with code {code} although the receiver was back"));
    }

    let (left_in_spool, left_in_failed) =
        (count_files(sandbox.dir, "spool")?, count_files(sandbox.dir, "failed")?);
    if left_in_spool + left_in_failed > 0 {
        broken.push("not every batch was delivered in the end".to_owned());
    }
    let tally = EffectLog::read(&log)?.tally((0..records).map(record_name), "counted");
    broken.extend(tally.broken);
    Ok(Report {
        records,
        requests: count(receiver.batch_count()),
        responses_lost: count(receiver::responses_lost(&receiver)),
        duplicates_recognised: count(receiver.batches().iter().filter(|batch| batch.is_known).count()),
        arrived_before_outage,
        batches_spooled,
        counted_once: tally.once,
        counted_twice: tally.more_than_once,
        never_counted: tally.never,
        left_in_spool,
        left_in_failed,
        broken,
    })
}

pub(super) fn record_name(number: u32) -> String {
    format!("usage-{number:06}")
}

/// The number of batches in a directory of the sender, such as `spool`.
pub(super) fn count_files(dir: &Path, name: &str) -> Result<u32, Failure> {
    let dir = dir.join("delivery").join(name);
    let entries = std::fs::read_dir(&dir)
        .map_err(|error| Failure::internal(format!("cannot read {}: {error}", dir.display())))?;
    Ok(count(entries.flatten().filter(|entry| entry.path().is_file()).count()))
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl ScenarioReport for Report {
    const NAME: &'static str = "delivery";

    fn broken(&self) -> &[String] {
        &self.broken
    }

    fn comparison(&self) -> Comparison {
        Comparison {
            scenario: format!("Delivery: {} records, an outage, lost responses", self.records),
            with_ichido: format!(
                "{} records counted once, {} twice, {} never",
                self.counted_once, self.counted_twice, self.never_counted
            ),
            without_ichido: format!(
                "{} lost in the outage, {} counted twice after a lost response",
                self.batches_spooled * BATCH,
                self.duplicates_recognised * BATCH
            ),
        }
    }

    fn print(&self) {
        let counts = [
            ("records", self.records),
            ("requests to the receiver", self.requests),
            ("responses lost", self.responses_lost),
            ("retries that the receiver recognised as duplicates (409)", self.duplicates_recognised),
            ("records that arrived before the outage", self.arrived_before_outage),
            ("batches in the spool during the outage", self.batches_spooled),
            ("batches undelivered at the end (in spool or failed)", self.left_in_spool + self.left_in_failed),
            ("records counted once", self.counted_once),
            ("records counted twice", self.counted_twice),
            ("records never counted", self.never_counted),
        ];
        print_counts(counts.map(|(what, count)| (what, u64::from(count))));
    }
}
