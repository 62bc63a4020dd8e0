//! One measurement per process: prints seconds, peak memory in MB, and the results.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufReader, BufWriter, Write};

use ichido_usage::aggregate::Options;
use ichido_usage::id::{Parts, Scheme, Writer};
use ichido_usage::source::jsonl;
use ichido_usage::{Aggregator, Period, UsageEvent};
use rust_decimal::Decimal;
use tokio::time::Instant;

use crate::rows::{Rows, Spread};

pub(crate) fn run(role: &[String]) {
    let role: Vec<&str> = role.iter().map(String::as_str).collect();
    match role[..] {
        ["ids", scheme, count] => ids(scheme.parse().unwrap(), count.parse().unwrap()),
        ["naive-ids", count] => naive_ids(count.parse().unwrap()),
        ["aggregate", count, spread] => {
            let rows = Rows::new(count.parse().unwrap(), parse_spread(spread));
            let started = Instant::now();
            let mut sums = Aggregator::new(Options::default());
            for row in rows.iter() {
                sums.add(&row.check().unwrap()).unwrap();
            }
            report_sums(started, sums);
        }
        ["write-lines", count, file] => write_lines(count.parse().unwrap(), file),
        ["lines", file] => {
            let started = Instant::now();
            let mut reader = jsonl::Reader::new(BufReader::with_capacity(1 << 16, File::open(file).unwrap()));
            let mut sums = Aggregator::new(Options::default());
            while let Some(row) = reader.next_event().unwrap() {
                sums.add(&row.unwrap()).unwrap();
            }
            report_sums(started, sums);
        }
        _ => panic!("unknown role {role:?}"),
    }
}

fn parse_spread(name: &str) -> Spread {
    match name {
        "few" => Spread::Few,
        "many" => Spread::Many,
        other => panic!("unknown spread {other}"),
    }
}

fn report(started: Instant, computed: &str) {
    let seconds = started.elapsed().as_secs_f64();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: f64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    println!("{seconds} {} {computed}", peak / 1024.0);
}

fn report_sums(started: Instant, sums: Aggregator) {
    let sums = sums.finish();
    let tokens: u64 = sums.iter().map(|sum| sum.input_tokens + sum.output_tokens).sum();
    let cost: Decimal = sums.iter().map(|sum| sum.cost.unwrap()).sum();
    report(started, &format!("{} {tokens} {cost}", sums.len()));
}

fn id_parts<'a>(row: &'a UsageEvent<'a>) -> Parts<'a> {
    Parts {
        usage_date: jiff::civil::date(2025, 11, 29),
        provider: &row.provider,
        model: &row.model,
        app_id: &row.app.id,
        user_id: &row.user.id,
        tenant: &row.tenant,
        user_kind: row.user.kind,
        currency: &row.currency,
        period: Period::Daily,
    }
}

/// Rows that exist beforehand, so that only the ids are measured.
fn thousand(rows: &Rows) -> Vec<UsageEvent<'_>> {
    rows.iter().take(1000).collect()
}

fn ids(scheme: Scheme, count: usize) {
    let rows = Rows::new(1_000_000, Spread::Few);
    let rows = thousand(&rows);
    let mut writer = Writer::new(scheme);
    let (mut last, started) = (0_usize, Instant::now());
    for row in rows.iter().cycle().take(count) {
        last = last.wrapping_add(usize::from(
            writer.write(&id_parts(row)).unwrap().as_bytes().last().copied().unwrap(),
        ));
    }
    report(started, &last.to_string());
}

/// A straightforward implementation: a list, a join, and formatting for each pair of digits.
fn naive_ids(count: usize) {
    use sha2::{Digest, Sha256};
    let rows = Rows::new(1_000_000, Spread::Few);
    let rows = thousand(&rows);
    let (mut last, started) = (0_usize, Instant::now());
    for row in rows.iter().cycle().take(count) {
        let parts = id_parts(row);
        let date = parts.usage_date.to_string();
        let mut values = [
            date.clone(),
            parts.provider.to_owned(),
            parts.model.to_owned(),
            parts.app_id.to_owned(),
            parts.user_id.to_owned(),
        ];
        values.sort_by_key(|value| value.encode_utf16().collect::<Vec<_>>());
        let hash = Sha256::digest(values.join("|"));
        let hash = hash.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        });
        let id = format!("dify-{date}-{}-{}-{}", parts.provider, parts.model, &hash[..12]);
        last = last.wrapping_add(usize::from(id.as_bytes().last().copied().unwrap()));
    }
    report(started, &last.to_string());
}

fn write_lines(count: u64, file: &str) {
    let rows = Rows::new(count, Spread::Few);
    let mut out = BufWriter::new(File::create(file).unwrap());
    for row in rows.iter() {
        let line = serde_json::json!({
            "time": row.time.to_string(), "tenant": row.tenant, "provider": row.provider, "model": row.model,
            "app_id": row.app.id, "app_name": row.app.name, "user_id": row.user.id, "user_type": row.user.kind,
            "input_tokens": row.input_tokens, "output_tokens": row.output_tokens,
            "price": row.price.to_string(), "currency": row.currency,
        });
        writeln!(out, "{line}").unwrap();
    }
    out.flush().unwrap();
    println!("0 0 {count}");
}
