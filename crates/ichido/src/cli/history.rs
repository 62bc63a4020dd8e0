//! `ichido events history`, `timeline` and `anomalies`: what was decided, from the history files of one or more instances, or from
//! a running process.

use std::path::PathBuf;

use ichido_admin::operator::Remote;
use ichido_core::{Clock, SystemClock, Timestamp};
use ichido_history::anomalies::{Finding, Found};
use ichido_history::{By, Count, Entry, Error, History};
use ichido_meter::csv::defused;
use ichido_serve::Failure;
use serde::Serialize;
use serde_json::json;

use crate::args::HistoryBy;
use crate::output;
use crate::settings::Settings;

const DAY_MS: u64 = 86_400_000;

/// How decisions are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Table,
    Json,
    Csv,
}

pub(super) fn counts(
    settings: &Settings,
    by: HistoryBy,
    days: u32,
    dirs: &[PathBuf],
    format: Format,
) -> Result<(), Failure> {
    let now = SystemClock::default().now();
    let from = now.0.saturating_sub(u64::from(days) * DAY_MS);
    let group = match by {
        HistoryBy::Hour => By::Hour,
        HistoryBy::Route => By::Route,
        HistoryBy::Source => By::Source,
        HistoryBy::Instance => By::Instance,
        HistoryBy::Result => By::Result,
    };
    let mut counts = open(settings, dirs)?.counts(group, from, now.0).map_err(failure)?;
    for count in &mut counts {
        if let (By::Hour, Ok(start)) = (group, count.group.parse()) {
            count.group = output::time(Timestamp(start));
        }
    }
    match format {
        Format::Json => return output::json(&json!({ "counts": counts })),
        Format::Csv => print_csv(&counts),
        Format::Table => print_table(by, days, &counts),
    }
    Ok(())
}

fn print_csv(counts: &[Count]) {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for count in counts {
        // A channel or an account may be called anything, also a formula. Writing to memory does not fail.
        let group = defused(&count.group).into_owned();
        let _ = writer.serialize(Count { group, ..count.clone() });
    }
    let bytes = writer.into_inner().unwrap_or_default();
    String::from_utf8_lossy(&bytes).lines().for_each(|line| outln!("{line}"));
}

fn print_table(by: HistoryBy, days: u32, counts: &[Count]) {
    let column = match by {
        HistoryBy::Hour => "hour",
        HistoryBy::Route => "route",
        HistoryBy::Source => "source",
        HistoryBy::Instance => "instance",
        HistoryBy::Result => "result",
    };
    let mut table = output::table(&[column, "decision", "count", "in fallback", "mean", "slowest"]);
    for count in counts {
        table.add_row([
            count.group.clone(),
            count.result.clone(),
            count.count.to_string(),
            count.degraded.to_string(),
            milliseconds(count.latency_mean_us),
            milliseconds(count.latency_max_us),
        ]);
    }
    table.print_or("nothing was recorded");
    let all = counts.iter().map(|count| count.count).sum();
    outln!(
        "{} in {}",
        output::count(all, "decision", "decisions"),
        output::count(days.into(), "day", "days")
    );
}

/// Where decisions are read.
#[derive(Clone, Copy, Debug)]
pub(super) enum ReadFrom<'a> {
    /// Files of these directories, or of those in the settings.
    Files(&'a [PathBuf]),
    /// The admin port of a running process.
    Admin(&'a Remote),
}

pub(super) async fn timeline(
    settings: &Settings,
    key: &str,
    from: ReadFrom<'_>,
    json: bool,
) -> Result<(), Failure> {
    let entries = match from {
        ReadFrom::Files(dirs) => open(settings, dirs)?.search(key).map_err(failure)?,
        ReadFrom::Admin(remote) => remote.timeline(key).await.map_err(|refusal| refusal.into_failure(key))?,
    };
    if entries.is_empty() {
        return Err(Failure::internal(format!(
            "nothing was recorded about {key:?}; the history keeps recent decisions only (history.decisions_max, history.decisions_days)"
        )));
    }
    if json {
        return output::json(&json!({ "timeline": entries }));
    }
    let heads = ["when", "decision", "route", "from", "instance", "took", "request id", "detail"];
    let mut table = output::table(&heads);
    for entry in &entries {
        let Entry { at, result, route, source, instance, latency_us, degraded, detail, request_id, .. } =
            entry;
        let result = if *degraded { format!("{result} (fallback)") } else { result.clone() };
        table.add_row([
            output::time(Timestamp(*at)),
            result,
            route.clone(),
            source.clone().unwrap_or_default(),
            instance.clone(),
            milliseconds(*latency_us),
            request_id.clone().unwrap_or_default(),
            detail.clone().unwrap_or_default(),
        ]);
    }
    table.print();
    let repeats = entries.iter().filter(|entry| entry.is_repeat()).count() as u64;
    outln!("{}", output::count(repeats, "repeat", "repeats"));
    Ok(())
}

pub(super) async fn anomalies(
    settings: &Settings,
    days: u32,
    from: ReadFrom<'_>,
    json: bool,
) -> Result<(), Failure> {
    let (now, anomalies) = (SystemClock::default().now(), settings.anomalies()?);
    let Found { findings, known_hours, until } = match from {
        ReadFrom::Files(dirs) => open(settings, dirs)?.anomalies(days, now, &anomalies).map_err(failure)?,
        ReadFrom::Admin(remote) => {
            remote.anomalies(days).await.map_err(|refusal| refusal.into_failure(""))?
        }
    };
    let link = |finding: &Finding| match (&settings.console.url, from) {
        (Some(console), _) => Some(console.page(&finding.page)),
        (None, ReadFrom::Admin(remote)) => Some(remote.page(&finding.page)),
        (None, ReadFrom::Files(_)) => None,
    };
    let findings: Vec<_> = findings.iter().map(|finding| Linked { finding, link: link(finding) }).collect();
    if json {
        return output::json(&json!({ "anomalies": findings, "known_hours": known_hours, "until": until }));
    }
    for Linked { finding: Finding { kind, text, command, .. }, link } in &findings {
        outln!("{kind}: {text}");
        outln!("    {command}");
        if let Some(link) = link {
            outln!("    {link}");
        }
    }
    let count = findings.len() as u64;
    outln!(
        "{} in {}",
        output::count(count, "anomaly", "anomalies"),
        output::count(days.into(), "day", "days")
    );
    if known_hours < Found::HOURS_MIN {
        outln!(
            "only {known_hours} hours were recorded in full; a source is judged after a week ({} hours)",
            Found::HOURS_MIN
        );
    }
    Ok(())
}

/// A finding, and the URL of the page that shows its hour.
#[derive(Serialize)]
struct Linked<'a> {
    #[serde(flatten)]
    finding: &'a Finding,
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<String>,
}

fn open(settings: &Settings, dirs: &[PathBuf]) -> Result<History, Failure> {
    if !dirs.is_empty() {
        return History::open(dirs).map_err(failure);
    }
    let dirs = settings.history_dirs()?;
    match dirs.is_empty() {
        false => History::open(&dirs).map_err(failure),
        true => {
            Err(Failure::usage("history.dir is \"off\"; name the history of another instance with --dir"))
        }
    }
}

fn failure(error: Error) -> Failure {
    Failure::usage_from(error)
}

fn milliseconds(us: u64) -> String {
    format!("{:.1} ms", us as f64 / 1e3)
}
