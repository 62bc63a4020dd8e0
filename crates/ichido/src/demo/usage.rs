//! The fifth act: a month of usage goes to the meter over a way that loses answers, three times: once, again, and once
//! more by an exporter that has forgotten what it sent. What the meter counted must be what was used, to the last digit.

mod lossy_proxy;

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::str::FromStr;
use std::time::Duration;

use ichido_core::{Clock, SystemClock};
use jiff::ToSpan;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use self::lossy_proxy::{LOSES, Way};
use super::sandbox::{Started, get};
use super::{Row, Stage};
use crate::output;
use ichido_serve::Failure;

const DAYS: u32 = 30;
/// Calls of models for each operation that was asked for.
const CALLS: u32 = 10;
const MODELS: [(&str, &str); 3] =
    [("openai", "gpt-4o"), ("anthropic", "claude-3-5-sonnet-20241022"), ("google", "gemini-2.0-flash")];
const APPS: u32 = 7;
const USERS: u32 = 5;
/// The month, in the demo's directory, and where it is counted.
const FILE: &str = "usage.jsonl";
pub(super) const DATABASE: &str = "sqlite:meter.db";
/// Records in a batch.
const BATCH: &str = "40";
/// Exports of the same month.
const TIMES: u32 = 3;
const ACT_LIMIT: Duration = Duration::from_secs(120);

/// Sums, as they were used or as they were counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sums {
    #[serde(default)]
    records: u64,
    request_count: u64,
    total_tokens: u64,
    cost_actual: String,
}

impl Sums {
    /// With the cost as it would be written by hand.
    fn normal(mut self) -> Result<Self, Failure> {
        let cost = Decimal::from_str(&self.cost_actual);
        let cost = cost.map_err(|error| Failure::internal(format!("the meter's cost: {error}")))?;
        self.cost_actual = cost.normalize().to_string();
        Ok(self)
    }
}

/// What the fifth act showed.
#[derive(Debug, Serialize)]
pub(super) struct Verdict {
    used: Sums,
    pub(super) counted: Sums,
    requests: u32,
    answers_lost: u32,
    /// Records that came to the meter, repeats included.
    came: u32,
    broken: Vec<String>,
}

/// Plays the act.
pub(super) async fn play(stage: &Stage<'_>) -> Result<Verdict, Failure> {
    stage.say(&format!(
        "now usage: a month of it is exported {TIMES} times to the meter, over a way that loses the first answer of every {LOSES}rd batch."
    ));
    tokio::time::timeout(ACT_LIMIT, act(stage))
        .await
        .map_err(|_| Failure::internal("the demo's fifth act did not end"))?
}

async fn act(stage: &Stage<'_>) -> Result<Verdict, Failure> {
    let file = stage.dir.join(FILE);
    let used = make(&file, stage.args.keys * CALLS)?;
    let meter = start_meter(stage).await?;
    let way = Way::to(meter.address).await?;
    let mut broken = Vec::new();
    // The third has a directory of its own, and so knows nothing of what was sent.
    for data in ["usage", "usage", "usage-forgotten"] {
        let code = export(stage, way.address(), data).await?;
        if code != 0 {
            broken.push(format!("an export ended with code {code}"));
        }
    }
    let counted = ask(meter.address).await?;
    meter.kill().await?;
    let same = (counted.request_count, counted.total_tokens, &counted.cost_actual)
        == (used.request_count, used.total_tokens, &used.cost_actual);
    if !same {
        broken.push(format!("the meter counted {counted:?}, but {used:?} was used"));
    }
    Ok(Verdict {
        used,
        counted,
        requests: way.requests(),
        answers_lost: way.lost(),
        came: way.records(),
        broken,
    })
}

/// The month that ends today.
fn days() -> Vec<Date> {
    let now = i64::try_from(SystemClock::default().now().0).unwrap_or_default();
    let now = jiff::Timestamp::from_millisecond(now).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    let today = now.to_zoned(TimeZone::UTC).date();
    (0..DAYS).rev().map(|ago| today.saturating_sub(i64::from(ago).days())).collect()
}

/// Writes the usage of a month, and sums it in the plainest way.
fn make(file: &Path, calls: u32) -> Result<Sums, Failure> {
    let (days, mut lines, mut sums, mut cost) = (days(), String::new(), Sums::default(), Decimal::ZERO);
    for number in 0..calls {
        let (provider, model) = MODELS[(number + number / DAYS) as usize % MODELS.len()];
        let (day, app, user) = (days[number as usize % days.len()], number / 3 % APPS, number / 7 % USERS);
        let (input, output) = (u64::from(number % 997 + 1), u64::from(number % 313));
        let price = Decimal::new(i64::from(number % 9_973 + 1), 7);
        let _ = writeln!(
            lines,
            "{{\"id\":\"m{number}\",\"time\":\"{day}T00:00:00Z\",\"tenant\":\"demo\",\"provider\":\"{provider}\",\
             \"model\":\"{model}\",\"app_id\":\"app-{app}\",\"user_id\":\"user-{user}\",\"input_tokens\":{input},\"output_tokens\":{output},\
             \"price\":\"{price}\",\"currency\":\"USD\"}}"
        );
        sums.request_count += 1;
        sums.total_tokens += input + output;
        cost += price;
    }
    sums.cost_actual = cost.normalize().to_string();
    std::fs::write(file, lines).map_err(|error| Failure::internal(format!("{}: {error}", file.display())))?;
    Ok(sums)
}

async fn start_meter(stage: &Stage<'_>) -> Result<Started, Failure> {
    let mut command = stage.myself()?;
    command.env("LOG_LEVEL", "error").args(["meter", "--listen", "127.0.0.1:0", "--admin", "off"]);
    command.args(["--db", DATABASE]).stderr(Stdio::piped()).stdout(Stdio::null());
    Started::listening(&mut command, "the meter").await
}

/// Exports the month by someone who remembers what is in this directory; its exit code.
pub(super) async fn export(stage: &Stage<'_>, meter: SocketAddr, data: &str) -> Result<i32, Failure> {
    let mut command = stage.myself()?;
    command
        .args(["export", "jsonl", "--mode", "per_model", FILE])
        .env("DATA_DIR", stage.dir.join(data))
        .env("EXTERNAL_API_ENDPOINT", format!("http://{meter}/v1/usage"))
        .env("EXTERNAL_API_ALLOW_HTTP_LOOPBACK", "true")
        .env("EXTERNAL_API_TOKEN", "demo")
        .env("EXTERNAL_API_ENVELOPE", "api_meter")
        .env("EXTERNAL_API_TENANT_ID", "default")
        .env("EXTERNAL_API_CONFLICT", "record")
        .env("BATCH_SIZE", BATCH)
        .env("RETRY_BACKOFF_MS", "20")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let status = command.status().await;
    let status = status.map_err(|error| Failure::internal(format!("exporting: {error}")))?;
    Ok(status.code().unwrap_or(-1))
}

/// What the meter counted.
pub(super) async fn ask(meter: SocketAddr) -> Result<Sums, Failure> {
    #[derive(Deserialize)]
    struct Report {
        rows: Vec<Sums>,
    }
    let fail = |why: String| Failure::internal(format!("asking the meter: {why}"));
    let (_, body) = get(meter, "/v1/usage?group_by=").await?;
    let report: Report = serde_json::from_str(&body).map_err(|error| fail(error.to_string()))?;
    match report.rows.len() {
        0 => Ok(Sums { cost_actual: "0".to_owned(), ..Sums::default() }),
        1 => report.rows.into_iter().next().unwrap_or_default().normal(),
        more => Err(fail(format!("{more} rows where one was asked for"))),
    }
}

impl super::Verdict for Verdict {
    const NAME: &'static str = "usage";

    fn broken(&self) -> &[String] {
        &self.broken
    }

    fn row(&self) -> Row {
        Row {
            sent: format!("{} calls of models, exported {TIMES} times", self.used.request_count),
            happened: format!(
                "{} calls and {} USD on the bill, of {} USD used",
                self.counted.request_count, self.counted.cost_actual, self.used.cost_actual
            ),
            without: format!(
                "{} records on the bill instead of {}: each one that came",
                self.came, self.counted.records
            ),
        }
    }

    fn print(&self) {
        let mut table = output::table(&["at the meter", "used", "counted"]);
        for (what, used, counted) in [
            ("calls", self.used.request_count.to_string(), self.counted.request_count.to_string()),
            ("tokens", self.used.total_tokens.to_string(), self.counted.total_tokens.to_string()),
            ("cost in USD", self.used.cost_actual.clone(), self.counted.cost_actual.clone()),
        ] {
            table.add_row([what.to_owned(), used, counted]);
        }
        outln!("{table}");
        outln!(
            "{} requests brought {} records, {} answers were lost, and {} records were counted.",
            self.requests,
            self.came,
            self.answers_lost,
            self.counted.records
        );
    }
}
