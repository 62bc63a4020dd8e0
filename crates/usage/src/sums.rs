//! Sums that are complete: in order, each currency by itself.

use jiff::civil::Date;
use rust_decimal::Decimal;

use crate::aggregate::{Key, Plan, Total};
use crate::event::UserKind;
use crate::money;
use crate::period::Period;
use crate::strings::Strings;

/// All sums, in the order of tenant, day, provider, model, app, user and currency.
#[derive(Debug)]
pub struct Sums {
    plan: Plan,
    strings: Strings,
    sums: Vec<(Key, Total)>,
}

/// One sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum<'a> {
    /// Whose workspace.
    pub tenant: &'a str,
    /// The first day.
    pub usage_date: Date,
    /// The provider, normalised.
    pub provider: &'a str,
    /// The model, normalised.
    pub model: &'a str,
    /// The app; empty for all of them.
    pub app_id: &'a str,
    /// The name that the app had last.
    pub app_name: &'a str,
    /// The user; empty for all of them.
    pub user_id: &'a str,
    /// What kind of user.
    pub user_kind: UserKind,
    /// In which money.
    pub currency: &'a str,
    /// Tokens of prompts.
    pub input_tokens: u64,
    /// Tokens of answers.
    pub output_tokens: u64,
    /// How many calls.
    pub requests: u64,
    /// How many of them only tried an app out.
    pub debugger_requests: u64,
    /// What it cost, unless that is more than can be written.
    pub cost: Result<Decimal, money::Error>,
}

impl Sums {
    pub(crate) fn new(plan: Plan, strings: Strings, mut sums: Vec<(Key, Total)>) -> Self {
        let ranks = strings.ranks();
        let rank = |number: u32| ranks.get(number as usize).copied().unwrap_or_default();
        sums.sort_unstable_by_key(|(key, _)| {
            let Key { usage_date, tenant, provider, model, app, user, user_kind, currency } = *key;
            let who = (rank(app), rank(user), user_kind);
            (rank(tenant), usage_date, rank(provider), rank(model), who, rank(currency))
        });
        let mut merged: Vec<(Key, Total)> = Vec::with_capacity(sums.len());
        for (key, total) in sums {
            // What cost nothing comes first among its kin, and joins the first that cost something.
            let free =
                merged.last().filter(|(last, _)| last.currency == 0 && Key { currency: 0, ..key } == *last);
            match free.map(|(_, free)| total.joined(free, &strings)) {
                Some(Ok(joined)) => {
                    merged.pop();
                    merged.push((key, joined));
                }
                Some(Err(_)) | None => merged.push((key, total)),
            }
        }
        Self { plan, strings, sums: merged }
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.sums.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.sums.is_empty()
    }

    /// How long each is summed.
    pub fn period(&self) -> Period {
        self.plan.period
    }

    /// One of them.
    pub fn get(&self, place: usize) -> Option<Sum<'_>> {
        self.sums.get(place).map(|(key, total)| self.sum(key, total))
    }

    /// Each of them, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Sum<'_>> {
        self.sums.iter().map(|(key, total)| self.sum(key, total))
    }

    fn sum(&self, key: &Key, total: &Total) -> Sum<'_> {
        let text = |number| self.strings.get(number);
        let currency = match (key.currency, total.named_currency) {
            (0, 0) => &self.plan.currency,
            (0, named) | (named, _) => text(named),
        };
        Sum {
            tenant: text(key.tenant),
            usage_date: key.usage_date,
            provider: text(key.provider),
            model: text(key.model),
            app_id: text(key.app),
            app_name: text(total.app_name),
            user_id: text(key.user),
            user_kind: key.user_kind,
            currency,
            input_tokens: total.input_tokens,
            output_tokens: total.output_tokens,
            requests: total.requests,
            debugger_requests: total.debugger_requests,
            cost: total.cost.total(),
        }
    }
}
