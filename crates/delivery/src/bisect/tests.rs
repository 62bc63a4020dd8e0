use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

#[derive(Debug, Default, PartialEq)]
struct Outcome {
    requests: usize,
    delivered: Vec<usize>,
    rejected: BTreeSet<usize>,
    held: bool,
    left: Vec<usize>,
}

/// Simulates a receiver that rejects a request with any bad record, with the message for the first one.
fn run(records: usize, bad: impl Fn(usize) -> Option<String>) -> Outcome {
    let mut outcome = Outcome { requests: 1, ..Outcome::default() };
    let mut bisect = Bisect::new(records);
    // The existing parts: they are replaced as requested, and only existing parts are sent.
    let at = middle(&(0..records));
    let mut parts: Vec<Range<usize>> = vec![0..at, at..records];
    let mut sent = Vec::new();
    while let Some(part) = bisect.next_part() {
        assert!(parts.contains(&part), "{part:?} does not exist in {parts:?}");
        outcome.requests += 1;
        sent.push(part.clone());
        let actions = match part.clone().find_map(&bad) {
            None => {
                outcome.delivered.extend(part.clone());
                parts.retain(|other| *other != part);
                bisect.passed()
            }
            Some(words) => bisect.rejected(part.clone(), &words),
        };
        for action in actions {
            match action {
                Action::Split(part, at) => {
                    assert!(sent.contains(&part), "{part:?} was not refused before it was divided");
                    assert_eq!(at, middle(&part));
                    parts.retain(|other| *other != part);
                    parts.extend([part.start..at, at..part.end]);
                }
                Action::Reject(record) => {
                    assert!(outcome.rejected.insert(record), "{record} was refused twice");
                    parts.retain(|other| *other != (record..record + 1));
                }
                Action::Hold => {
                    outcome.held = true;
                    outcome.left = parts.iter().flat_map(Clone::clone).collect();
                    return outcome;
                }
            }
        }
    }
    assert!(parts.is_empty(), "{parts:?} were forgotten");
    outcome
}

#[test]
fn one_bad_record_is_found_within_twice_the_logarithm() {
    for bad in 0..128 {
        let outcome = run(128, |record| (record == bad).then(|| "no date".to_owned()));
        assert!(outcome.requests <= 2 * 7 + 1, "{}", outcome.requests);
        assert_eq!(outcome.rejected, BTreeSet::from([bad]));
        assert_eq!(outcome.delivered.len(), 127);
    }
}

#[test]
fn identical_rejections_of_all_records_hold_the_lane() {
    let outcome = run(100, |record| Some(format!("record {record}: unknown tenant")));
    assert!(outcome.held && outcome.rejected.is_empty());
    assert!(outcome.requests <= 2 * 7 + 1, "{}", outcome.requests);
    assert_eq!(outcome.left.iter().collect::<BTreeSet<_>>().len(), 100);
}

#[test]
fn records_rejected_for_different_reasons_all_fail() {
    let words = ["no date", "no model", "no cost"];
    let outcome = run(9, |record| Some(words[record % 3].to_owned()));
    assert!(!outcome.held, "{outcome:?}");
    assert_eq!(outcome.rejected.len(), 9);
}

#[test]
fn a_few_records_are_too_few_to_hold_the_lane() {
    let outcome = run(3, |_| Some("no".to_owned()));
    assert_eq!((outcome.held, outcome.rejected.len()), (false, 3));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn each_record_is_delivered_rejected_or_kept_once(records in 2usize..80, bad in prop::collection::btree_set(0usize..80, 0..20), alike: bool) {
        let bad: BTreeSet<usize> = bad.into_iter().filter(|record| *record < records).collect();
        let words = |record: usize| if alike { "no".to_owned() } else { "x".repeat(record + 1) };
        let outcome = run(records, |record| bad.contains(&record).then(|| words(record)));
        if outcome.held {
            prop_assert!(alike && outcome.rejected.is_empty() && outcome.delivered.is_empty());
            let left: BTreeSet<usize> = outcome.left.iter().copied().collect();
            prop_assert_eq!(left.len(), records);
        } else {
            prop_assert_eq!(&outcome.rejected, &bad);
            let delivered: BTreeSet<usize> = outcome.delivered.iter().copied().collect();
            prop_assert_eq!(delivered.len(), outcome.delivered.len());
            prop_assert_eq!(delivered.len() + bad.len(), records);
        }
    }
}
