//! Runs seeds of the ledger's simulation. `cargo xtask simulate --help` explains the options, which are the same here.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool prints to the terminal")]

use std::process::ExitCode;
use std::time::Instant;

use ichido_ledger::simulation::{Campaign, PlantedBug, Report, RunOptions, campaign};
use serde_json::json;

/// Runs between two progress lines.
const PROGRESS_RUNS: u64 = 1_000;

struct Arguments {
    from: u64,
    seeds: u64,
    crashes: u64,
    options: RunOptions,
    is_json: bool,
}

fn main() -> ExitCode {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(text) => {
            eprintln!("ledger-simulate: {text}");
            return ExitCode::from(2);
        }
    };
    // A panic of the store is reported as a failure of its seed.
    std::panic::set_hook(Box::new(|_| {}));
    #[allow(clippy::disallowed_methods, reason = "the speed of the simulation is measured in real time")]
    let start = Instant::now();
    let Arguments { from, seeds, crashes, options, is_json } = arguments;
    let campaign = campaign(from..from.saturating_add(seeds), crashes, &options, |report| {
        if report.runs > 0 && report.runs.is_multiple_of(PROGRESS_RUNS) {
            eprintln!("{} seeds, {} crashes", report.runs, report.crashes());
        }
    });
    let seconds = start.elapsed().as_secs_f64();
    match is_json {
        true => println!("{}", as_json(&campaign, seconds)),
        false => print_summary(&campaign, seconds),
    }
    ExitCode::from(u8::from(campaign.failure.is_some()))
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let (mut from, mut seeds, mut crashes, mut is_json) = (0, None, u64::MAX, false);
    let mut options = RunOptions::default();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} requires a value"));
        let mut number = || value()?.parse().map_err(|_| format!("{argument} requires a number"));
        match argument.as_str() {
            "--seeds" => seeds = Some(number()?),
            "--from" => from = number()?,
            "--seed" => (from, seeds) = (number()?, Some(1)),
            "--crashes" => crashes = number()?,
            "--bug" => options.planted = Some(parse_bug(&value()?)?),
            "--short-tags" => options.has_short_tags = true,
            "--json" => is_json = true,
            other => return Err(format!("unknown option {other}")),
        }
    }
    let seeds = seeds.unwrap_or(if crashes == u64::MAX { 1_000 } else { u64::MAX });
    Ok(Arguments { from, seeds, crashes, options, is_json })
}

fn parse_bug(name: &str) -> Result<PlantedBug, String> {
    PlantedBug::ALL.into_iter().find(|bug| bug.name() == name).ok_or_else(|| {
        let known = PlantedBug::ALL.map(PlantedBug::name).join(", ");
        format!("unknown bug {name}; use one of: {known}")
    })
}

fn print_summary(campaign: &Campaign, seconds: f64) {
    let Report { runs, steps, batches, power_losses, kills, faults, .. } = campaign.report;
    let Report { starts, failed_openings, reopenings, applied, lost, split, .. } = campaign.report;
    let Report { moves, dropped, flips, flips_reported, segments_max, .. } = campaign.report;
    let crashes = campaign.report.crashes();
    println!(
        "{runs} seeds without a failure: {crashes} crashes in {seconds:.1} s ({:.0}/s)",
        crashes as f64 / seconds
    );
    println!("  {steps} steps, {batches} acknowledged batches");
    println!("  {power_losses} power losses, {kills} killed processes, {faults} failed operations");
    println!(
        "  {starts} starts, {reopenings} openings after a failed write, {failed_openings} failed openings"
    );
    println!("  interrupted batches: {applied} applied, {lost} lost, {split} split between frames");
    println!(
        "  {dropped} dropped segments, {moves} groups of copied records, at most {segments_max} segments"
    );
    println!("  {flips} flipped bits, {flips_reported} of them reported");
    if let Some(failure) = &campaign.failure {
        println!("\n{failure}");
    }
}

fn as_json(campaign: &Campaign, seconds: f64) -> serde_json::Value {
    let report = &campaign.report;
    json!({
        "seeds": report.runs,
        "seconds": seconds,
        "crashes": report.crashes(),
        "crashes_per_second": report.crashes() as f64 / seconds,
        "steps": report.steps,
        "batches": report.batches,
        "power_losses": report.power_losses,
        "kills": report.kills,
        "faults": report.faults,
        "starts": report.starts,
        "failed_openings": report.failed_openings,
        "reopenings": report.reopenings,
        "batches_applied": report.applied,
        "batches_lost": report.lost,
        "batches_split": report.split,
        "moves": report.moves,
        "segments_dropped": report.dropped,
        "segments_max": report.segments_max,
        "flips": report.flips,
        "flips_reported": report.flips_reported,
        "failure": campaign.failure.as_ref().map(|failure| json!({
            "seed": failure.seed,
            "step": failure.step,
            "bug": failure.planted.map(PlantedBug::name),
            "description": failure.description,
        })),
    })
}
