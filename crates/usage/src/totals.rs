//! Sums that are complete: in order, each currency by itself.

use jiff::Timestamp;
use jiff::civil::Date;
use rust_decimal::Decimal;

use crate::event::{Error, Reason, UserKind};
use crate::id::Parts;
use crate::interner::Strings;
use crate::money;
use crate::period::Period;

/// All sums, in the order of tenant, day, provider, model, app, user and currency.
#[derive(Debug)]
pub struct Sums {
    period: Period,
    /// The currency of sums in which nothing cost anything, and no event named one.
    currency: String,
    strings: Strings,
    sums: Vec<(Key, Total)>,
}

/// What a sum is of. Texts are numbers of [`Strings`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) usage_date: Date,
    pub(crate) tenant: u32,
    pub(crate) provider: u32,
    pub(crate) model: u32,
    pub(crate) app: u32,
    pub(crate) user: u32,
    pub(crate) user_kind: UserKind,
    /// Empty for what cost nothing.
    pub(crate) currency: u32,
}

/// What was summed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Total {
    pub(crate) input_tokens: u64,
    pub(crate) output_tokens: u64,
    pub(crate) requests: u64,
    pub(crate) debugger_requests: u64,
    pub(crate) cost: money::Sum,
    /// The app's last name: apps are renamed.
    pub(crate) app_name: u32,
    pub(crate) named_at: Timestamp,
    /// A currency that was named although nothing was paid; the first in the alphabet.
    pub(crate) named_currency: u32,
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
    pub(crate) fn new(
        period: Period,
        currency: String,
        strings: Strings,
        mut sums: Vec<(Key, Total)>,
    ) -> Self {
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
        Self { period, currency, strings, sums: merged }
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
        self.period
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
            (0, 0) => &self.currency,
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

impl Total {
    /// Both together, or why not; the name is the later one.
    pub(crate) fn joined(&self, other: &Self, strings: &Strings) -> Result<Self, Error> {
        let add = |field, one: u64, two: u64| {
            one.checked_add(two).ok_or_else(|| Error::new(field, Reason::TooLarge))
        };
        let mut cost = self.cost;
        cost.join(other.cost).map_err(|error| Error::new("price", error))?;
        let input_tokens = add("input_tokens", self.input_tokens, other.input_tokens)?;
        let output_tokens = add("output_tokens", self.output_tokens, other.output_tokens)?;
        add("total_tokens", input_tokens, output_tokens)?;
        let name = |sum: &Self| (sum.named_at, sum.app_name);
        let later = match self.named_at.cmp(&other.named_at) {
            std::cmp::Ordering::Less => name(other),
            std::cmp::Ordering::Greater => name(self),
            std::cmp::Ordering::Equal if self.app_name == other.app_name => name(self),
            std::cmp::Ordering::Equal => {
                let greater = strings.get(self.app_name) > strings.get(other.app_name);
                if greater { name(self) } else { name(other) }
            }
        };
        Ok(Self {
            input_tokens,
            output_tokens,
            requests: add("requests", self.requests, other.requests)?,
            debugger_requests: add("requests", self.debugger_requests, other.debugger_requests)?,
            cost,
            named_at: later.0,
            app_name: later.1,
            named_currency: first_named(self.named_currency, other.named_currency, strings),
        })
    }
}

fn first_named(one: u32, other: u32, strings: &Strings) -> u32 {
    match (one, other) {
        (0, named) | (named, 0) => named,
        (one, other) if one == other => one,
        (one, other) if strings.get(one) < strings.get(other) => one,
        (_, other) => other,
    }
}

impl<'a> Sum<'a> {
    /// What its id is made of.
    pub fn id_parts(&self, period: Period) -> Parts<'a> {
        Parts {
            usage_date: self.usage_date,
            provider: self.provider,
            model: self.model,
            app_id: self.app_id,
            user_id: self.user_id,
            tenant: self.tenant,
            user_kind: self.user_kind,
            currency: self.currency,
            period,
        }
    }
}
