//! Generates rows of usage: a month in order of time, 20 apps, 200 users with one app each, two models per user.

use std::borrow::Cow;

use ichido_usage::{App, UsageEvent, User, UserKind};
use jiff::Timestamp;
use rust_decimal::Decimal;

/// How many totals the rows have: few, as in practice, or nearly as many as rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spread {
    Few,
    Many,
}

const USERS: u32 = 200;
const APPS: u32 = 20;
const MODELS: [(&str, &str); 5] = [
    ("langgenius/openai/openai", "gpt-4o-mini"),
    ("langgenius/anthropic/anthropic", "claude-3-5-sonnet-20241022"),
    ("langgenius/openai/openai", "gpt-4.1"),
    ("langgenius/gemini/google", "gemini-2.0-flash"),
    ("langgenius/bedrock/bedrock", "anthropic.claude-3-5-sonnet-20241022-v2:0"),
];
/// 2025-11-01T00:00:00Z
const START: i64 = 1_761_955_200;
const MONTH: u64 = 30 * 86_400;

/// The ids of apps and users, which every row borrows.
pub(crate) struct Rows {
    apps: Vec<String>,
    users: Vec<String>,
    count: u64,
    spread: Spread,
}

impl Rows {
    pub(crate) fn new(count: u64, spread: Spread) -> Self {
        let name = |kind: u32, number: u32| format!("{kind:08x}-0860-46e2-a789-{number:012x}");
        Self {
            apps: (0..APPS).map(|number| name(0xdc27_9ec4, number)).collect(),
            users: (0..USERS).map(|number| name(0x17e9_1503, number)).collect(),
            count,
            spread,
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = UsageEvent<'_>> {
        (0..self.count).map(|number| self.row(number))
    }

    fn row(&self, number: u64) -> UsageEvent<'_> {
        let drawn = u32::try_from(number & 0xffff_ffff).unwrap().wrapping_mul(2_654_435_761) >> 8;
        let user = drawn % USERS;
        let app = match self.spread {
            Spread::Few => user % APPS,
            Spread::Many => (drawn >> 4) % APPS,
        };
        let model = match self.spread {
            Spread::Few => (user + (drawn >> 9) % 2) % 5,
            Spread::Many => (drawn >> 9) % 5,
        };
        let (provider, model) = MODELS[model as usize];
        let (input, output) = (u64::from(drawn % 3000), u64::from(drawn % 700));
        UsageEvent {
            id: Cow::Borrowed(""),
            time: Timestamp::from_second(START + i64::try_from(number * MONTH / self.count).unwrap())
                .unwrap(),
            tenant: Cow::Borrowed("3f1c7a52-0860-46e2-a789-d4b4238443de"),
            provider: Cow::Borrowed(provider),
            model: Cow::Borrowed(model),
            app: App {
                id: Cow::Borrowed(&self.apps[app as usize]),
                name: Cow::Borrowed("Help desk"),
                mode: Cow::Borrowed("chat"),
            },
            user: User { kind: UserKind::EndUser, id: Cow::Borrowed(&self.users[user as usize]) },
            input_tokens: input,
            output_tokens: output,
            total_tokens: input + output,
            price: Decimal::new(i64::from(drawn % 900_000) + 1, 7),
            currency: Cow::Borrowed("USD"),
            requests: 1,
            debugger: false,
        }
    }
}
