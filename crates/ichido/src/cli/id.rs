//! `ichido id`: computes ids of usage records, keys of batches, and how likely ids are to collide.

use ichido_core::batch_key;
use ichido_usage::id::{Parts, Scheme, event_id};
use ichido_usage::record::day;
use ichido_usage::{UserKind, collisions};
use serde::Serialize;
use serde_json::json;

use crate::args::{EventArgs, IdArgs, IdVerb};
use crate::output;
use ichido_serve::Failure;

pub(super) fn run(args: &IdArgs) -> Result<(), Failure> {
    match &args.verb {
        IdVerb::Event(event) => print_event(event, args.json),
        IdVerb::Batch { keys } => print_batch(keys, args.json),
        IdVerb::Odds { per_group, groups } => {
            let report = Report::new(*per_group, *groups);
            if args.json {
                return output::json(&report);
            }
            report.print();
            Ok(())
        }
    }
}

fn print_event(args: &EventArgs, json: bool) -> Result<(), Failure> {
    let usage = |name: &str, error: &dyn std::fmt::Display| Failure::usage(format!("--{name}: {error}"));
    let scheme: Scheme = args.scheme.parse().map_err(|error| usage("scheme", &error))?;
    let user_kind = match &args.user_type {
        Some(kind) => kind.parse().map_err(|error| usage("user-type", &error))?,
        None if args.user.is_empty() => UserKind::None,
        None => UserKind::EndUser,
    };
    let parts = Parts {
        usage_date: day::parse(&args.date)
            .ok_or_else(|| usage("date", &format!("{:?} is not a day; write YYYY-MM-DD", args.date)))?,
        provider: &args.provider,
        model: &args.model,
        app_id: &args.app,
        user_id: &args.user,
        tenant: &args.tenant,
        user_kind,
        currency: &args.currency,
        period: args.period.parse().map_err(|error| usage("period", &error))?,
    };
    let id = event_id(scheme, &parts).map_err(|error| Failure::usage(error.to_string()))?;
    if json {
        return output::json(&json!({"source_event_id": id, "scheme": scheme, "pattern": scheme.pattern()}));
    }
    outln!("{id}");
    Ok(())
}

fn print_batch(keys: &[String], json: bool) -> Result<(), Failure> {
    let key = batch_key(keys.iter().map(String::as_str));
    if json {
        return output::json(&json!({"batchIdempotencyKey": key, "records": keys.len()}));
    }
    outln!("{key}");
    Ok(())
}

#[derive(Debug, Serialize)]
struct Report {
    per_group: u64,
    groups: u64,
    schemes: Vec<Odds>,
}

/// The odds for one hash length.
#[derive(Debug, Serialize)]
struct Odds {
    schemes: Vec<Scheme>,
    bits: usize,
    /// The probability that two ids of a group are equal.
    collision_in_a_group: f64,
    /// The probability that this happens in at least one group.
    collision_in_any_group: f64,
    expected_pairs_in_a_group: f64,
    ids_for_one_in_a_million: u64,
    ids_for_one_percent: u64,
    ids_for_one_half: u64,
}

impl Report {
    fn new(per_group: u64, groups: u64) -> Self {
        let odds = |schemes: &[Scheme], digits| Odds {
            schemes: schemes.to_vec(),
            bits: digits * 4,
            collision_in_a_group: collisions::probability(per_group, digits),
            collision_in_any_group: collisions::probability_in_any(groups, per_group, digits),
            expected_pairs_in_a_group: collisions::expected_pairs(per_group, digits),
            ids_for_one_in_a_million: collisions::ids_for(1e-6, digits),
            ids_for_one_percent: collisions::ids_for(0.01, digits),
            ids_for_one_half: collisions::ids_for(0.5, digits),
        };
        Self {
            per_group,
            groups,
            schemes: vec![
                odds(&[Scheme::Sorted, Scheme::FixedOrder], Scheme::Sorted.digits()),
                odds(&[Scheme::V2], Scheme::V2.digits()),
            ],
        }
    }

    fn print(&self) {
        let mut table = output::table(&[
            "scheme",
            "hash",
            "in one group",
            "in any group",
            "one in a million at",
            "1 % at",
        ]);
        for odds in &self.schemes {
            let names: Vec<&str> = odds.schemes.iter().map(|scheme| scheme.as_str()).collect();
            table.add_row([
                names.join(", "),
                format!("{} bits", odds.bits),
                percent(odds.collision_in_a_group),
                percent(odds.collision_in_any_group),
                ids(odds.ids_for_one_in_a_million),
                ids(odds.ids_for_one_percent),
            ]);
        }
        outln!(
            "Probability that two different records get the same id, with {} ids per day, provider and model, in {} such group{}\n{table}",
            grouped(self.per_group),
            grouped(self.groups),
            if self.groups == 1 { "" } else { "s" },
        );
    }
}

fn percent(chance: f64) -> String {
    match chance * 100.0 {
        0.0 => "0 %".to_owned(),
        percent if percent < 0.0001 => format!("{percent:.2e} %"),
        percent if percent < 0.1 => format!("{percent:.4} %"),
        percent => format!("{percent:.2} %"),
    }
}

/// A number of ids, with no more digits than are exact.
fn ids(number: u64) -> String {
    match number {
        0..1_000_000_000_000 => format!("{} ids", grouped(number)),
        large => format!("{:.3e} ids", large as f64),
    }
}

/// A number with thousands separators.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!(
            [grouped(0), grouped(999), grouped(1000), grouped(12_345_678)],
            ["0", "999", "1,000", "12,345,678"]
        );
        assert_eq!([percent(0.0), percent(0.1626), percent(0.000_002)], ["0 %", "16.26 %", "0.0002 %"]);
        assert_eq!(percent(1.8e-17), "1.80e-15 %");
        assert_eq!([ids(23_728), ids(26_087_642_172_578_011)], ["23,728 ids", "2.609e16 ids"]);
    }
}
