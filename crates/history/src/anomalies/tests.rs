//! The promises of the findings, on generated weeks and on histories that were written by hand.

mod files;
mod generated_weeks;

use std::collections::BTreeMap;
use std::fmt::Write;

use self::generated_weeks::{Chance, Planted, generate};
use super::*;

const DAY: usize = 24;
const WEEK: usize = 7 * DAY;
const FIRST_HOUR: u64 = 490_896;

fn settings(sensitivity: Sensitivity) -> AnomalySettings {
    RawAnomalies { sensitivity, ..RawAnomalies::default() }.check().unwrap()
}

fn find_all(observed: &Observed) -> Vec<Finding> {
    find(observed, 0..=u64::MAX - 1, &settings(Sensitivity::Medium))
}

/// Whether a finding tells of an anomaly: what happens at an instance also happens to its sources.
fn tells_of(finding: &Finding, planted: &Planted) -> bool {
    let is_same_source = match (&finding.source, planted.kind) {
        (Some(source), Kind::Volume | Kind::Duplicates | Kind::Silence) => *source == planted.name,
        (Some(_), Kind::InDoubt | Kind::Instance) | (None, _) => true,
    };
    is_same_source && finding.route == planted.route && planted.hours.contains(&(finding.at / 3_600_000))
}

fn finds(finding: &Finding, planted: &Planted) -> bool {
    let name = finding.source.as_ref().or(finding.instance.as_ref());
    finding.kind == planted.kind
        && tells_of(finding, planted)
        && name.is_none_or(|name| *name == planted.name)
}

/// The figures in the documentation. If they change, this test prints the new ones.
#[test]
fn planted_anomalies_are_found_and_quiet_weeks_are_quiet() {
    let mut kinds = BTreeMap::<Kind, [usize; 4]>::new();
    for seed in 1_000..1_010 {
        let weeks = generate(seed, 14, 4);
        let findings = find_all(&weeks.observed);
        for planted in &weeks.planted {
            let [all, found, ..] = kinds.entry(planted.kind).or_default();
            *all += 1;
            *found += usize::from(findings.iter().any(|finding| finds(finding, planted)));
        }
        for finding in &findings {
            let [.., reported, right] = kinds.entry(finding.kind).or_default();
            *reported += 1;
            *right += usize::from(weeks.planted.iter().any(|planted| tells_of(finding, planted)));
        }
    }
    let mut text = String::new();
    for (kind, [planted, found, reported, right]) in kinds {
        let (recall, precision) = (found as f64 / planted as f64, right as f64 / reported as f64);
        writeln!(text, "| `{kind}` | {planted} | {recall:.2} | {reported} | {precision:.2} |").unwrap();
        let recall_min = if kind == Kind::Volume { 0.75 } else { 0.9 };
        assert!(recall >= recall_min && precision >= 0.95, "{text}");
    }
    let quiet: Vec<_> = (2_000..2_005).map(|seed| generate(seed, 54, 54).observed).collect();
    let count = |sensitivity| -> usize {
        quiet.iter().map(|weeks| find(weeks, 0..=u64::MAX - 1, &settings(sensitivity)).len()).sum()
    };
    let [low, medium, high] = [Sensitivity::Low, Sensitivity::Medium, Sensitivity::High].map(count);
    writeln!(text, "265 quiet weeks: {low} findings with `low`, {medium} with `medium`, {high} with `high`")
        .unwrap();
    assert!(
        high < 265 && medium < 26,
        "less than one a week, and by default less than one in ten weeks: {text}"
    );
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/events.md")).unwrap();
    let is_missing = |line: &&str| !page.contains(*line);
    assert_eq!(text.lines().find(is_missing), None, "docs/events.md must contain these lines:\n{text}");
}

/// A source on a route that has no other, with this many arrivals in each hour.
fn source(hours: usize, arrivals: impl Fn(usize) -> Option<u32>) -> Observed {
    let counts = |at| arrivals(at).map(|arrivals| Counts { arrivals, ..Counts::default() });
    let series = |name: &str| Series {
        route: "events".to_owned(),
        name: name.to_owned(),
        hours: (0..hours).map(counts).collect(),
    };
    Observed {
        first_hour: FIRST_HOUR,
        sources: vec![series("C1")],
        routes: vec![series("")],
        instances: Vec::new(),
    }
}

/// What was found, and in which hour.
fn kinds(observed: &Observed) -> Vec<(Kind, usize)> {
    let at = |finding: &Finding| usize::try_from(finding.at / 3_600_000 - FIRST_HOUR).unwrap();
    find_all(observed).iter().map(|finding| (finding.kind, at(finding))).collect()
}

#[test]
fn first_week_has_no_findings() {
    let wild = |at: usize| Some([100, 0, 5_000, 0, 1][at % 5]);
    assert_eq!(kinds(&source(WEEK, wild)), []);
    // A source that is new is not judged either, however long the others have been known.
    let new = |at: usize| Some(if at < 5 * WEEK { 0 } else { [100, 0, 5_000, 0, 1][at % 5] });
    assert_eq!(kinds(&source(6 * WEEK, new)), []);
}

#[test]
fn small_numbers_raise_no_alarm() {
    let few = |at: usize| Some(if at == 5 * WEEK + 3 { 25 } else { u32::from(at.is_multiple_of(2)) });
    assert_eq!(kinds(&source(6 * WEEK, few)), []);
}

#[test]
fn source_that_ended_is_reported_once() {
    let ended = |at: usize| Some(if at < 4 * WEEK { 40 } else { 0 });
    assert_eq!(kinds(&source(14 * WEEK, ended)), [(Kind::Silence, 4 * WEEK)]);
    // Also when old hours are no longer kept, and each hour is judged by itself.
    for at in 4 * WEEK + 1..9 * WEEK {
        let kept = |hour: usize| Some(if hour + at < 4 * WEEK + WINDOW_HOURS { 40 } else { 0 });
        let observed = source(WINDOW_HOURS + 1, kept);
        let last = FIRST_HOUR + WINDOW_HOURS as u64;
        assert_eq!(find(&observed, last..=last, &settings(Sensitivity::Medium)), [], "{at}");
    }
}

#[test]
fn missing_hours_are_not_silence() {
    let gap = 4 * WEEK..4 * WEEK + 60;
    let with_gap = |at: usize| (!gap.contains(&at)).then_some(40);
    assert_eq!(kinds(&source(6 * WEEK, with_gap)), []);
    // With most hours missing, what is left is compared with all hours.
    let rare = |at: usize| at.is_multiple_of(7).then_some(if at == 35 * 7 * 2 { 400 } else { 40 });
    assert_eq!(kinds(&source(4 * WEEK, rare)), [(Kind::Volume, 35 * 7 * 2)]);
}

#[test]
fn finding_that_goes_on_is_reported_again_only_after_the_cool_down() {
    let bursts = |at: usize| {
        let is_burst = (4 * WEEK..4 * WEEK + 30).contains(&at) || at == 4 * WEEK + 80;
        Some(if is_burst { 400 } else { 40 })
    };
    let observed = source(5 * WEEK, bursts);
    assert_eq!(kinds(&observed), [(Kind::Volume, 4 * WEEK), (Kind::Volume, 4 * WEEK + 80)]);
    // Whoever judges only the last hour comes to the same result.
    let judge = |at: usize| {
        let hour = FIRST_HOUR + at as u64;
        find(&observed, hour..=hour, &settings(Sensitivity::Medium)).len()
    };
    assert_eq!([0, 1, 29, 30, 80].map(|after| judge(4 * WEEK + after)), [1, 0, 0, 0, 1]);
}

#[test]
fn ten_thousand_sources_are_judged() {
    let chance = &mut Chance(7);
    let mut observed = source(WINDOW_HOURS, |_| Some(40));
    observed.sources = (0..10_000)
        .map(|number| Series {
            route: format!("POST /{}", number % 100),
            name: format!("C{number}"),
            hours: (0..WINDOW_HOURS)
                .map(|at| {
                    let mean = if (number, at) == (4_711, WINDOW_HOURS - 1) { 500.0 } else { 10.0 };
                    Some(Counts { arrivals: chance.poisson(mean), ..Counts::default() })
                })
                .collect(),
        })
        .collect();
    let last = FIRST_HOUR + WINDOW_HOURS as u64 - 1;
    let found = find(&observed, last..=last, &settings(Sensitivity::Medium));
    assert_eq!(found.iter().map(|one| one.source.as_deref().unwrap()).collect::<Vec<_>>(), ["C4711"]);
}

#[test]
fn each_finding_is_a_sentence_with_its_numbers() {
    let at = 4 * WEEK + 9;
    let hour = |counts: Counts, unusual: Counts| {
        (0..at + 1).map(|hour| Some(if hour == at { unusual } else { counts })).collect::<Vec<_>>()
    };
    let usual = Counts { arrivals: 200, duplicates: 4, doubts: 0 };
    let sentence = |unusual: Counts, edit: fn(&mut Observed, Vec<Option<Counts>>)| {
        let mut observed = Observed { first_hour: FIRST_HOUR, ..Observed::default() };
        edit(&mut observed, hour(usual, unusual));
        let findings = find_all(&observed);
        assert_eq!(findings.len(), 1, "{findings:?}");
        let Finding { text, text_ja, page, .. } = &findings[0];
        // The Japanese sentence has the same numbers and names.
        for part in text.split(' ').filter(|part| part.contains(|char: char| char.is_ascii_digit())) {
            assert!(text_ja.contains(part.trim_end_matches(';')), "{part}: {text_ja}");
        }
        let at = (FIRST_HOUR + at as u64) * 3_600_000;
        assert!(page.contains("route=POST+%2Fslack&") && page.ends_with(&format!("&at={at}#hour")), "{page}");
        text.clone()
    };
    let as_source: fn(&mut Observed, Vec<Option<Counts>>) = |observed, hours| {
        observed.sources = vec![Series { route: "POST /slack".into(), name: "C\u{202e}1".into(), hours }];
    };
    let as_route: fn(&mut Observed, Vec<Option<Counts>>) = |observed, hours| {
        observed.routes = vec![Series { route: "POST /slack".into(), name: String::new(), hours }];
    };
    let as_instance: fn(&mut Observed, Vec<Option<Counts>>) = |observed, hours| {
        let others = vec![hours[0]; hours.len()];
        let series = |name: &str, hours| Series { route: "POST /slack".into(), name: name.into(), hours };
        observed.instances =
            vec![series("web-1", others.clone()), series("web-2", hours), series("web-3", others)];
    };
    assert_eq!(
        sentence(Counts { arrivals: 1_800, duplicates: 36, doubts: 0 }, as_source),
        r#"source "C\u{202e}1" on "POST /slack" had 1800 arrivals in the hour from 2026-01-29T09:00Z; 200 are usual at this hour of the week"#
    );
    assert_eq!(
        sentence(Counts { arrivals: 300, duplicates: 120, doubts: 0 }, as_source),
        r#"40 % of 300 arrivals from source "C\u{202e}1" on "POST /slack" in the hour from 2026-01-29T09:00Z were duplicates; 2 % are usual, and a bot that answers too late causes more"#
    );
    assert_eq!(
        sentence(Counts::default(), as_source),
        r#"nothing arrived from source "C\u{202e}1" on "POST /slack" since 2026-01-29T09:00Z; 200 arrivals are usual in that time"#
    );
    assert_eq!(
        sentence(Counts { doubts: 14, ..usual }, as_route),
        r#"14 decisions on "POST /slack" in the hour from 2026-01-29T09:00Z found a claim in doubt; 0 are usual in an hour"#
    );
    assert_eq!(
        sentence(Counts { arrivals: 300, duplicates: 120, doubts: 0 }, as_instance),
        r#"40 % of 300 arrivals on "POST /slack" at instance "web-2" in the hour from 2026-01-29T09:00Z were duplicates; 2 % at the other instances"#
    );
    assert_eq!(
        sentence(Counts { doubts: 30, ..usual }, as_instance),
        r#"15 % of 200 arrivals on "POST /slack" at instance "web-2" in the hour from 2026-01-29T09:00Z were in doubt; 0 % at the other instances"#
    );
    assert_eq!(
        sentence(Counts { arrivals: 3, duplicates: 0, doubts: 0 }, as_instance),
        r#"instance "web-2" got 3 arrivals on "POST /slack" in the hour from 2026-01-29T09:00Z; its usual share would be 134"#
    );
}

#[test]
fn settings_are_checked() {
    for cool_down_hours in [0, 169] {
        let invalid = RawAnomalies { cool_down_hours, ..RawAnomalies::default() }.check().unwrap_err();
        assert!(invalid.to_string().contains("anomalies.cool_down_hours"), "{invalid}");
    }
}
