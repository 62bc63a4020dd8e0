use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff::civil::{Date, date};
use proptest::prelude::*;
use rust_decimal::Decimal;

use super::*;
use crate::event::{UsageEvent, sample};

fn event<'a>(provider: &'a str, model: &'a str, app: &'a str, user: &'a str, price: &str) -> UsageEvent<'a> {
    let price = money::parse(price).unwrap();
    UsageEvent { provider: provider.into(), model: model.into(), price, ..sample(app, user) }
}

fn add(aggregator: &mut Aggregator, event: &UsageEvent<'_>) -> Result<(), Error> {
    aggregator.add(&event.clone().check()?)
}

fn aggregate(options: Options, events: &[UsageEvent<'_>]) -> Totals {
    let mut aggregator = Aggregator::new(options);
    for event in events {
        add(&mut aggregator, event).unwrap();
    }
    aggregator.finish()
}

#[test]
fn spellings_of_one_name_share_a_total() {
    let spellings = [
        event("langgenius/openai/openai", "GPT-4o", "a", "u", "0.1"),
        event("OpenAI", "gpt-4o ", "a", "u", "0.2"),
        event("openai", " gpt-4O", "a", "u", "0.3"),
    ];
    let totals = aggregate(Options::default(), &spellings);
    assert_eq!(totals.len(), 1);
    let total = totals.get(0).unwrap();
    assert_eq!(
        (total.provider, total.model, total.cost.unwrap().to_string().as_str()),
        ("openai", "gpt-4o", "0.6")
    );
}

#[test]
fn requests_are_counted() {
    let mut many = event("p", "m", "a", "u", "1");
    many.requests = 40;
    let totals = aggregate(Options::default(), &[event("p", "m", "a", "u", "1"), many]);
    assert_eq!(totals.get(0).unwrap().requests, 41);
}

#[test]
fn currencies_are_kept_apart() {
    let mut yen = event("p", "m", "a", "u", "150");
    yen.currency = "jpy".into();
    let totals = aggregate(Options::default(), &[event("p", "m", "a", "u", "1.5"), yen]);
    let found: Vec<_> =
        totals.iter().map(|total| (total.currency, total.cost.unwrap().to_string())).collect();
    assert_eq!(found, [("JPY", "150".to_owned()), ("USD", "1.5".to_owned())]);
}

#[test]
fn free_usage_joins_an_existing_total_or_gets_its_own() {
    let mut free = event("p", "m", "a", "u", "0");
    let mut nameless = event("p", "m", "a", "u", "0.0000000");
    nameless.currency = "".into();
    let mut yuan = event("p", "m", "a", "u", "2.5");
    yuan.currency = "RMB".into();
    let mut other_app = event("p", "m", "b", "u", "0");
    other_app.currency = "".into();
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]] {
        let events = [&free, &nameless, &yuan, &other_app];
        let mut aggregator = Aggregator::new(Options { currency: "EUR".to_owned(), ..Options::default() });
        for index in order {
            add(&mut aggregator, events[index]).unwrap();
        }
        let totals = aggregator.finish();
        let found: Vec<_> = totals
            .iter()
            .map(|total| (total.app_id, total.currency, total.requests, total.cost.unwrap().to_string()))
            .collect();
        assert_eq!(found, [("a", "RMB", 3, "2.5000000".to_owned()), ("b", "EUR", 1, "0".to_owned())]);
    }
    free.currency = "GBP".into();
    let totals = aggregate(Options::default(), &[nameless, free]);
    assert_eq!((totals.len(), totals.get(0).unwrap().currency), (1, "GBP"));
}

#[test]
fn each_mode_keeps_what_it_names() {
    let events = [
        event("p", "m", "a", "u", "1"),
        event("p", "m", "a", "v", "1"),
        event("p", "m", "b", "u", "1"),
        event("p", "n", "b", "u", "1"),
    ];
    let found = |mode| {
        let totals = aggregate(Options { mode, ..Options::default() }, &events);
        totals
            .iter()
            .map(|total| format!("{} {}/{} {}", total.model, total.app_id, total.user_id, total.requests))
            .collect::<Vec<_>>()
    };
    assert_eq!(found(Mode::PerModel), ["m a/u 1", "m a/v 1", "m b/u 1", "n b/u 1"]);
    assert_eq!(found(Mode::All), found(Mode::PerModel));
    assert_eq!(found(Mode::PerUser), ["m /u 2", "m /v 1", "n /u 1"]);
    assert_eq!(found(Mode::PerApp), ["m a/ 2", "m b/ 1", "n b/ 1"]);
    assert_eq!(found(Mode::Workspace), ["m / 3", "n / 1"]);
}

#[test]
fn periods_begin_on_mondays_and_firsts_in_the_declared_zone() {
    let mut late = event("p", "m", "a", "u", "1");
    // Sunday evening in UTC, Monday morning in Tokyo.
    late.time = "2024-12-29T23:30:00Z".parse().unwrap();
    let start = |zone: &str, period| {
        let options = Options { zone: zone.parse().unwrap(), period, ..Options::default() };
        aggregate(options, std::slice::from_ref(&late)).get(0).unwrap().usage_date
    };
    assert_eq!(start("UTC", Period::Daily), date(2024, 12, 29));
    assert_eq!(start("UTC", Period::Weekly), date(2024, 12, 23));
    assert_eq!(start("Asia/Tokyo", Period::Weekly), date(2024, 12, 30));
    assert_eq!(start("Asia/Tokyo", Period::Monthly), date(2024, 12, 1));
}

#[test]
fn debugger_requests_are_counted_separately() {
    let mut tried = event("p", "m", "a", "u", "1");
    tried.debugger = true;
    let totals = aggregate(Options::default(), &[tried, event("p", "m", "a", "u", "1")]);
    let total = totals.get(0).unwrap();
    assert_eq!((total.requests, total.debugger_requests), (2, 1));
}

#[test]
fn event_that_overflows_changes_nothing() {
    let mut aggregator = Aggregator::new(Options::default());
    let good = event("p", "m", "a", "u", "1");
    add(&mut aggregator, &good).unwrap();
    let many = UsageEvent { requests: u64::MAX, ..good.clone() };
    assert_eq!(add(&mut aggregator, &many).unwrap_err().field, "requests");
    let huge = UsageEvent { input_tokens: u64::MAX, output_tokens: 0, total_tokens: u64::MAX, ..good };
    assert_eq!(add(&mut aggregator, &huge).unwrap_err().field, "input_tokens");
    let totals = aggregator.finish();
    assert_eq!((totals.len(), totals.get(0).unwrap().requests), (1, 1));
}

#[test]
fn app_has_its_latest_name() {
    let mut renamed = event("p", "m", "a", "u", "1");
    renamed.time = "2025-11-29T13:00:00Z".parse().unwrap();
    renamed.app.name = "new".into();
    let old = event("p", "m", "a", "u", "1");
    for events in [[renamed.clone(), old.clone()], [old, renamed]] {
        assert_eq!(aggregate(Options::default(), &events).get(0).unwrap().app_name, "new");
    }
}

/// A random event.
#[derive(Clone, Debug)]
struct Drawn {
    hour: i64,
    names: (u8, u8, u8, u8),
    tokens: (u32, u32),
    price: (u32, u32),
    currency: u8,
    requests: u8,
}

impl Drawn {
    fn event(&self) -> UsageEvent<'static> {
        let (provider, model, app, user) = self.names;
        let mut event = event(
            ["openai", "langgenius/openai/openai", "claude", ""][usize::from(provider)],
            ["gpt", " GPT", "m"][usize::from(model)],
            ["", "a", "b"][usize::from(app)],
            ["", "u", "v"][usize::from(user)],
            "0",
        );
        event.time = Timestamp::from_second(1_735_000_000 + self.hour * 3600).unwrap();
        event.input_tokens = self.tokens.0.into();
        event.output_tokens = self.tokens.1.into();
        event.total_tokens = event.input_tokens + event.output_tokens;
        event.price = Decimal::from_i128_with_scale(self.price.0.into(), self.price.1);
        event.currency = ["USD", "JPY"][usize::from(self.currency)].into();
        event.requests = self.requests.into();
        event
    }
}

fn drawn() -> impl Strategy<Value = Vec<Drawn>> {
    let names = (0_u8..4, 0_u8..3, 0_u8..3, 0_u8..3);
    let figures = ((0_u32..9, 0_u32..9), (0_u32..2_000_000, 0_u32..8), 0_u8..2, 0_u8..4);
    let one = (0_i64..300, names, figures).prop_map(|(hour, names, (tokens, price, currency, requests))| {
        Drawn { hour, names, tokens, price, currency, requests }
    });
    prop::collection::vec(one, 0..80)
}

type Oracle = BTreeMap<
    (Date, String, String, &'static str, &'static str),
    (u64, u64, u64, BTreeMap<&'static str, i128>),
>;

/// Computes the same without interning, decimals or a calendar.
fn oracle(events: &[Drawn]) -> Oracle {
    let mut totals = Oracle::new();
    for drawn in events {
        let (provider, model, app, user) = drawn.names;
        let days = (1_735_000_000 + drawn.hour * 3600 + 9 * 3600) / 86_400;
        let day = date(1970, 1, 1).checked_add(jiff::Span::new().days(days)).unwrap();
        let key = (
            day,
            ["openai", "openai", "anthropic", "unknown"][usize::from(provider)].to_owned(),
            ["gpt", "gpt", "m"][usize::from(model)].to_owned(),
            ["", "a", "b"][usize::from(app)],
            ["", "u", "v"][usize::from(user)],
        );
        let total = totals.entry(key).or_default();
        total.0 += u64::from(drawn.tokens.0);
        total.1 += u64::from(drawn.tokens.1);
        total.2 += u64::from(drawn.requests);
        if drawn.price.0 > 0 {
            let units = i128::from(drawn.price.0) * 10_i128.pow(7 - drawn.price.1);
            *total.3.entry(["USD", "JPY"][usize::from(drawn.currency)]).or_default() += units;
        }
    }
    totals
}

proptest! {
    #[test]
    fn totals_equal_a_naive_oracle_to_the_last_digit(events in drawn()) {
        let options = || Options { zone: "Asia/Tokyo".parse().unwrap(), ..Options::default() };
        let made: Vec<UsageEvent<'_>> = events.iter().map(Drawn::event).collect();
        let totals = aggregate(options(), &made);
        let mut found = Oracle::new();
        for total in totals.iter() {
            let user = ["", "u", "v"].into_iter().find(|user| *user == total.user_id).unwrap();
            let app = ["", "a", "b"].into_iter().find(|app| *app == total.app_id).unwrap();
            let key = (total.usage_date, total.provider.to_owned(), total.model.to_owned(), app, user);
            let entry = found.entry(key).or_default();
            entry.0 += total.input_tokens;
            entry.1 += total.output_tokens;
            entry.2 += total.requests;
            let cost = total.cost.unwrap();
            if !cost.is_zero() {
                let currency = ["USD", "JPY"].into_iter().find(|currency| *currency == total.currency).unwrap();
                let units = cost.mantissa() * 10_i128.pow(7 - cost.scale());
                prop_assert!(entry.3.insert(currency, units).is_none());
            }
        }
        prop_assert_eq!(found, oracle(&events));
    }

    #[test]
    fn order_of_events_does_not_matter(events in drawn(), mode in 0_usize..5, period in 0_usize..3, cut in 0_usize..80) {
        let options = || Options { mode: Mode::ALL[mode], period: Period::ALL[period], ..Options::default() };
        let mut made: Vec<UsageEvent<'_>> = events.iter().map(Drawn::event).collect();
        let first = aggregate(options(), &made);
        let cut = cut.min(made.len());
        made.rotate_left(cut);
        made[..cut].reverse();
        let second = aggregate(options(), &made);
        prop_assert_eq!(first.iter().collect::<Vec<_>>(), second.iter().collect::<Vec<_>>());
    }
}
