//! Measures how well and how fast near duplicates of events are found.
//!
//! ```text
//! similar-bench                        `cargo xtask bench similar` builds and runs it
//! ```
//!
//! Precision and recall are those of a generated corpus with a fixed seed: the same on every machine. The time per event is that of
//! comparing and remembering one message while 100,000 others are remembered, on one core.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "an interactive program"
)]

use std::sync::Arc;

use ichido_bench::median::median;
use ichido_core::{Clock, SystemClock};
use ichido_similar::corpus::{Findings, Language, Random, Variant, background, evaluate};
use ichido_similar::{Keep, Options, SimilarTexts};

/// The allocator that the command uses.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const SEED: u64 = 20_250_118;
const MESSAGES: usize = 2_000;
const THRESHOLDS: [f64; 6] = [0.6, 0.7, 0.8, 0.85, 0.9, 0.95];
const LANGUAGES: [(Language, &str); 2] = [(Language::English, "English"), (Language::Japanese, "Japanese")];
const REMEMBERED: usize = 100_000;
const ROUNDS: usize = 7;
const EVENTS: usize = 10_000;

fn main() {
    quality();
    for (language, name) in LANGUAGES {
        speed(language, name);
    }
}

fn quality() {
    println!("| threshold | English: precision | recall | Japanese: precision | recall |");
    println!("|---|---|---|---|---|");
    let mut by_variant = vec![[[0_u32; 2]; 9]; THRESHOLDS.len()];
    for (row, threshold) in THRESHOLDS.into_iter().enumerate() {
        let [english, japanese] = LANGUAGES.map(|(language, _)| {
            evaluate(language, threshold, MESSAGES, SEED, |variant, is_found| {
                by_variant[row][variant as usize][usize::from(is_found)] += 1;
            })
        });
        let percent =
            |of: fn(&Findings) -> f64, findings: &Findings| format!("{:.1} %", 100.0 * of(findings));
        println!(
            "| {threshold} | {} | {} | {} | {} |",
            percent(Findings::precision, &english),
            percent(Findings::recall, &english),
            percent(Findings::precision, &japanese),
            percent(Findings::recall, &japanese),
        );
    }
    println!("\n| reported at | {} |", THRESHOLDS.map(|threshold| threshold.to_string()).join(" | "));
    println!("|---|{}", "---|".repeat(THRESHOLDS.len()));
    for variant in Variant::ALL {
        let cells = by_variant.iter().map(|row| {
            let [missed, found] = row[variant as usize];
            format!("{:.1} %", 100.0 * f64::from(found) / f64::from(missed + found).max(1.0))
        });
        println!("| {variant:?} | {} |", cells.collect::<Vec<_>>().join(" | "));
    }
}

fn speed(language: Language, name: &str) {
    let clock = Arc::new(SystemClock::default());
    let options = Options { texts_max: REMEMBERED, bytes_max: usize::MAX, ..Options::default() };
    let texts = Arc::new(SimilarTexts::new(options, clock.clone(), SEED));
    let mut random = Random::new(SEED);
    let remember = |number: usize, text: &str| {
        if let Some(remembered) = texts.check("", &number.to_string(), text, Keep::Always).remembered {
            remembered.confirm();
        }
    };
    let mut number = 0;
    while texts.size().0 < REMEMBERED {
        remember(number, &background(language, &mut random));
        number += 1;
    }
    let mut rounds = Vec::new();
    let mut chars = 0;
    for _ in 0..ROUNDS {
        let messages: Vec<String> = (0..EVENTS).map(|_| background(language, &mut random)).collect();
        chars += messages.iter().map(|message| message.chars().count()).sum::<usize>();
        let started = clock.steady();
        for message in &messages {
            remember(number, message);
            number += 1;
        }
        rounds.push((clock.steady() - started).as_secs_f64() * 1e6 / EVENTS as f64);
    }
    let (count, bytes) = texts.size();
    println!(
        "\n{name}: {:.1} µs per event of {} characters, with {count} remembered in {} MB; target 50 µs",
        median(rounds),
        chars / (ROUNDS * EVENTS),
        bytes / 1_000_000,
    );
}
