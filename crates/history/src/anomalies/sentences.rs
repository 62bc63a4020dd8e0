//! A finding as one sentence, in English and in Japanese.

use super::baseline::{Basis, HOUR_MS};
use super::evidence::{Evidence, Raw};
use super::series::Series;

pub(super) fn english(raw: &Raw<'_>, first_hour: u64, at: u64) -> String {
    let Series { route, name, .. } = raw.series;
    let (hour, observed, usual) = (hour(at), number(raw.observed), number(raw.usual));
    let (share, usual_share) = (percent(raw.observed), percent(raw.usual));
    let source = match name.as_str() {
        "" => format!("{route:?}"),
        name => format!("source {name:?} on {route:?}"),
    };
    match raw.evidence {
        Evidence::Volume(basis) => {
            let when = match basis {
                Basis::HourOfWeek => "at this hour of the week",
                Basis::HourOfDay => "at this hour of the day",
                Basis::Overall => "in an hour",
            };
            format!("{source} had {observed} arrivals in the hour from {hour}; {usual} are usual {when}")
        }
        Evidence::Duplicates { arrivals } => format!(
            "{share} of {arrivals} arrivals from {source} in the hour from {hour} were duplicates; {usual_share} are usual, \
             and a bot that answers too late causes more"
        ),
        Evidence::Silence { since } => format!(
            "nothing arrived from {source} since {}; {usual} arrivals are usual in that time",
            start_of(first_hour, since)
        ),
        Evidence::Doubts => format!(
            "{observed} decisions on {route:?} in the hour from {hour} found a claim in doubt; {usual} are usual in an hour"
        ),
        Evidence::DuplicatesOfInstance { arrivals } => format!(
            "{share} of {arrivals} arrivals on {route:?} at instance {name:?} in the hour from {hour} were duplicates; \
             {usual_share} at the other instances"
        ),
        Evidence::DoubtsOfInstance { arrivals } => format!(
            "{share} of {arrivals} arrivals on {route:?} at instance {name:?} in the hour from {hour} were in doubt; \
             {usual_share} at the other instances"
        ),
        Evidence::ShareOfInstance => format!(
            "instance {name:?} got {observed} arrivals on {route:?} in the hour from {hour}; its usual share would be {usual}"
        ),
    }
}

pub(super) fn japanese(raw: &Raw<'_>, first_hour: u64, at: u64) -> String {
    let Series { route, name, .. } = raw.series;
    let (hour, observed, usual) = (hour(at), number(raw.observed), number(raw.usual));
    let (share, usual_share) = (percent(raw.observed), percent(raw.usual));
    let source = match name.as_str() {
        "" => format!("{route:?}"),
        name => format!("{route:?} の発生元 {name:?}"),
    };
    match raw.evidence {
        Evidence::Volume(basis) => {
            let when = match basis {
                Basis::HourOfWeek => "同じ曜日・時間帯の通常値は",
                Basis::HourOfDay => "同じ時間帯の通常値は",
                Basis::Overall => "通常は 1 時間に",
            };
            format!(
                "{source} からの受信が、{hour} からの 1 時間に {observed} 件ありました（{when} {usual} 件）"
            )
        }
        Evidence::Duplicates { arrivals } => format!(
            "{hour} からの 1 時間に {source} から受信した {arrivals} 件のうち {share} が重複でした（通常は {usual_share}）。\
             ボットの応答が遅いと重複が増えます"
        ),
        Evidence::Silence { since } => format!(
            "{source} からの受信が {} 以降ありません（通常はこの間に {usual} 件）",
            start_of(first_hour, since)
        ),
        Evidence::Doubts => format!(
            "{hour} からの 1 時間に、{route:?} で結果未確定の claim に該当した判定が {observed} 件ありました（通常は 1 時間に {usual} 件）"
        ),
        Evidence::DuplicatesOfInstance { arrivals } => format!(
            "{hour} からの 1 時間にインスタンス {name:?} が {route:?} で受信した {arrivals} 件のうち {share} が重複でした\
             （ほかのインスタンスでは {usual_share}）"
        ),
        Evidence::DoubtsOfInstance { arrivals } => format!(
            "{hour} からの 1 時間にインスタンス {name:?} が {route:?} で受信した {arrivals} 件のうち {share} が結果未確定でした\
             （ほかのインスタンスでは {usual_share}）"
        ),
        Evidence::ShareOfInstance => format!(
            "{hour} からの 1 時間にインスタンス {name:?} が {route:?} で受信したのは {observed} 件でした（通常の割合なら {usual} 件）"
        ),
    }
}

fn start_of(first_hour: u64, at: usize) -> String {
    hour((first_hour + at as u64) * HOUR_MS)
}

fn hour(at_ms: u64) -> String {
    let at = i64::try_from(at_ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    at.map_or_else(|| "?".to_owned(), |at| at.strftime("%Y-%m-%dT%H:%MZ").to_string())
}

fn number(value: f64) -> String {
    if value < 10.0 && value.fract() != 0.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

fn percent(share: f64) -> String {
    format!("{} %", number(share * 100.0))
}
