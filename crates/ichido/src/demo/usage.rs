//! Scenario 5: a month of usage is exported three times to the meter, through a proxy that loses responses. The third
//! exporter has no memory of what was sent. The meter must count exactly what was used, to the last digit.

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

use self::lossy_proxy::LossyProxy;
use super::http_get::http_get;
use super::report::{Comparison, ScenarioReport};
use super::sandbox::{Sandbox, spawn};
use super::server_process::ServerProcess;
use crate::output;
use ichido_serve::Failure;

const DAYS: u32 = 30;
/// Model calls for each of the demo's keys.
const CALLS_PER_KEY: u32 = 10;
const MODELS: [(&str, &str); 3] =
    [("openai", "gpt-4o"), ("anthropic", "claude-3-5-sonnet-20241022"), ("google", "gemini-2.0-flash")];
const APPS: u32 = 7;
const USERS: u32 = 5;
/// The file with the month's usage, in the demo's directory.
const FILE: &str = "usage.jsonl";
/// The meter's database, in the demo's directory.
pub(super) const DATABASE: &str = "sqlite:meter.db";
/// Records in a batch.
const BATCH: &str = "40";
/// The data directory of each export. The third one is new, so that its exporter does not know what was sent.
const EXPORTS: [&str; 3] = ["usage", "usage", "usage-without-memory"];
const SCENARIO_MAX: Duration = Duration::from_secs(120);

/// Totals, as used or as counted by the meter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Totals {
    #[serde(default)]
    records: u64,
    request_count: u64,
    total_tokens: u64,
    cost_actual: String,
}

impl Totals {
    /// Without trailing zeros in the cost.
    fn normalized(mut self) -> Result<Self, Failure> {
        let cost = Decimal::from_str(&self.cost_actual);
        let cost =
            cost.map_err(|error| Failure::internal(format!("invalid cost from the meter: {error}")))?;
        self.cost_actual = cost.normalize().to_string();
        Ok(self)
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Report {
    used: Totals,
    pub(super) counted: Totals,
    requests: u32,
    responses_lost: u32,
    /// Records that reached the meter, duplicates included.
    records_received: u32,
    broken: Vec<String>,
}

pub(super) async fn run(sandbox: &Sandbox<'_>) -> Result<Report, Failure> {
    sandbox.introduce(
        "5. Usage",
        &format!(
            "A month of usage is exported {} times to the meter. The first response to every third batch is lost.",
            EXPORTS.len()
        ),
    );
    tokio::time::timeout(SCENARIO_MAX, run_in(sandbox))
        .await
        .map_err(|_| Failure::internal(format!("the usage scenario took more than {SCENARIO_MAX:?}")))?
}

async fn run_in(sandbox: &Sandbox<'_>) -> Result<Report, Failure> {
    let used = write_usage(&sandbox.dir.join(FILE), sandbox.args.keys * CALLS_PER_KEY)?;
    let meter = start_meter(sandbox).await?;
    let proxy = LossyProxy::start(meter.address)?;
    let mut broken = Vec::new();
    for data_dir in EXPORTS {
        let code = export(sandbox, proxy.address(), data_dir).await?;
        if code != 0 {
            broken.push(format!("an export exited with code {code}"));
        }
    }
    let counted = query_meter(meter.address).await?;
    meter.kill();
    let is_same = (counted.request_count, counted.total_tokens, &counted.cost_actual)
        == (used.request_count, used.total_tokens, &used.cost_actual);
    if !is_same {
        broken.push(format!("the meter counted {counted:?}, but {used:?} was used"));
    }
    let traffic = proxy.traffic();
    Ok(Report {
        used,
        counted,
        requests: traffic.requests,
        responses_lost: traffic.responses_lost,
        records_received: traffic.records,
        broken,
    })
}

/// The last 30 days, today included.
fn days() -> Vec<Date> {
    let now = i64::try_from(SystemClock::default().now().0).unwrap_or_default();
    let now = jiff::Timestamp::from_millisecond(now).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    let today = now.to_zoned(TimeZone::UTC).date();
    (0..DAYS).rev().map(|ago| today.saturating_sub(i64::from(ago).days())).collect()
}

/// Writes a month of usage to a file, and adds it up without ichido's code.
fn write_usage(file: &Path, calls: u32) -> Result<Totals, Failure> {
    let (days, mut lines, mut used, mut cost) = (days(), String::new(), Totals::default(), Decimal::ZERO);
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
        used.request_count += 1;
        used.total_tokens += input + output;
        cost += price;
    }
    used.cost_actual = cost.normalize().to_string();
    std::fs::write(file, lines)
        .map_err(|error| Failure::internal(format!("cannot write {}: {error}", file.display())))?;
    Ok(used)
}

async fn start_meter(sandbox: &Sandbox<'_>) -> Result<ServerProcess, Failure> {
    let mut command = sandbox.ichido()?;
    command.env("LOG_LEVEL", "error").args(["meter", "--listen", "127.0.0.1:0", "--admin", "off"]);
    command.args(["--db", DATABASE]);
    ServerProcess::start(command, "the meter").await
}

/// Exports the month to the meter and returns the exit code. The data directory holds what the exporter remembers.
pub(super) async fn export(sandbox: &Sandbox<'_>, meter: SocketAddr, data_dir: &str) -> Result<i32, Failure> {
    let mut command = sandbox.ichido()?;
    command
        .args(["export", "jsonl", "--mode", "per_model", FILE])
        .env("DATA_DIR", sandbox.dir.join(data_dir))
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
    let status = spawn(command, "the export")?.wait().await;
    let status = status.map_err(|error| Failure::internal(format!("cannot wait for the export: {error}")))?;
    Ok(status.code().unwrap_or(-1))
}

/// What the meter has counted in total.
pub(super) async fn query_meter(meter: SocketAddr) -> Result<Totals, Failure> {
    #[derive(Deserialize)]
    struct Usage {
        rows: Vec<Totals>,
    }
    let fail = |reason: String| Failure::internal(format!("cannot query the meter: {reason}"));
    let (_, body) = http_get(meter, "/v1/usage?group_by=").await?;
    let usage: Usage = serde_json::from_str(&body).map_err(|error| fail(error.to_string()))?;
    match usage.rows.len() {
        0 => Ok(Totals { cost_actual: "0".to_owned(), ..Totals::default() }),
        1 => usage.rows.into_iter().next().unwrap_or_default().normalized(),
        more => Err(fail(format!("expected one row, got {more}"))),
    }
}

impl ScenarioReport for Report {
    const NAME: &'static str = "usage";

    fn broken(&self) -> &[String] {
        &self.broken
    }

    fn comparison(&self) -> Comparison {
        Comparison {
            scenario: format!(
                "Usage: {} model calls, exported {} times",
                self.used.request_count,
                EXPORTS.len()
            ),
            with_ichido: format!(
                "{} calls and {} USD billed; {} USD were used",
                self.counted.request_count, self.counted.cost_actual, self.used.cost_actual
            ),
            without_ichido: format!(
                "{} records billed instead of {}: every one that reaches the meter",
                self.records_received, self.counted.records
            ),
        }
    }

    fn print(&self) {
        let mut table = output::table(&["", "used", "counted by the meter"]);
        for (what, used, counted) in [
            ("calls", self.used.request_count.to_string(), self.counted.request_count.to_string()),
            ("tokens", self.used.total_tokens.to_string(), self.counted.total_tokens.to_string()),
            ("cost in USD", self.used.cost_actual.clone(), self.counted.cost_actual.clone()),
        ] {
            table.add_row([what.to_owned(), used, counted]);
        }
        table.print();
        outln!(
            "The meter received {} records in {} requests and counted {}. {} responses were lost.",
            self.records_received,
            self.requests,
            self.counted.records,
            self.responses_lost
        );
    }
}
