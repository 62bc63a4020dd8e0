//! Finished totals, in order, each in one currency.

use std::cmp::Ordering;

use jiff::Timestamp;
use jiff::civil::Date;
use rust_decimal::Decimal;

use crate::event::{Error, Reason, UserKind};
use crate::id::Parts;
use crate::interner::{Interner, Symbol};
use crate::money;
use crate::period::Period;

/// All totals, ordered by tenant, day, provider, model, app, user and currency.
#[derive(Debug)]
pub struct Totals {
    period: Period,
    /// The currency of totals that cost nothing and whose events name no currency.
    currency: String,
    interner: Interner,
    totals: Vec<(Key, Accumulator)>,
}

/// What a total covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) usage_date: Date,
    pub(crate) tenant: Symbol,
    pub(crate) provider: Symbol,
    pub(crate) model: Symbol,
    pub(crate) app: Symbol,
    pub(crate) user: Symbol,
    pub(crate) user_kind: UserKind,
    /// Empty if nothing was paid.
    pub(crate) currency: Symbol,
}

/// What has been added up so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accumulator {
    pub(crate) input_tokens: u64,
    pub(crate) output_tokens: u64,
    pub(crate) requests: u64,
    pub(crate) debugger_requests: u64,
    pub(crate) cost: money::Sum,
    /// The latest name of the app: apps are renamed.
    pub(crate) app_name: Symbol,
    pub(crate) named_at: Timestamp,
    /// A currency that events name, whether or not anything was paid: the first in alphabetical order.
    pub(crate) named_currency: Symbol,
}

/// One total.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Total<'a> {
    /// The workspace.
    pub tenant: &'a str,
    /// The first day of the period.
    pub usage_date: Date,
    /// The normalized name of the provider.
    pub provider: &'a str,
    /// The normalized name of the model.
    pub model: &'a str,
    /// The app; empty if the total covers all apps.
    pub app_id: &'a str,
    /// The latest name of the app.
    pub app_name: &'a str,
    /// The user; empty if the total covers all users.
    pub user_id: &'a str,
    /// The kind of user.
    pub user_kind: UserKind,
    /// The currency of the cost.
    pub currency: &'a str,
    /// Prompt tokens.
    pub input_tokens: u64,
    /// Completion tokens.
    pub output_tokens: u64,
    /// The number of model calls.
    pub requests: u64,
    /// The number of these calls that came from the debugger.
    pub debugger_requests: u64,
    /// The cost, or an error if it is too large for a decimal.
    pub cost: Result<Decimal, money::Error>,
}

impl Totals {
    pub(crate) fn new(
        period: Period,
        currency: String,
        interner: Interner,
        mut totals: Vec<(Key, Accumulator)>,
    ) -> Self {
        let ranks = interner.ranks();
        let rank = |symbol: Symbol| ranks.get(symbol as usize).copied().unwrap_or_default();
        totals.sort_unstable_by_key(|(key, _)| {
            let Key { usage_date, tenant, provider, model, app, user, user_kind, currency } = *key;
            let who = (rank(app), rank(user), user_kind);
            (rank(tenant), usage_date, rank(provider), rank(model), who, rank(currency))
        });
        let mut merged: Vec<(Key, Accumulator)> = Vec::with_capacity(totals.len());
        for (key, total) in totals {
            // A total without a currency sorts before the others that it could join, and joins the first of them.
            let free =
                merged.last().filter(|(last, _)| last.currency == 0 && Key { currency: 0, ..key } == *last);
            match free.map(|(_, free)| total.join(free, &interner)) {
                Some(Ok(joined)) => {
                    merged.pop();
                    merged.push((key, joined));
                }
                Some(Err(_)) | None => merged.push((key, total)),
            }
        }
        Self { period, currency, interner, totals: merged }
    }

    /// The number of totals.
    pub fn len(&self) -> usize {
        self.totals.len()
    }

    /// Whether there are no totals.
    pub fn is_empty(&self) -> bool {
        self.totals.is_empty()
    }

    /// The period that each total covers.
    pub fn period(&self) -> Period {
        self.period
    }

    /// The total at an index.
    pub fn get(&self, index: usize) -> Option<Total<'_>> {
        self.totals.get(index).map(|(key, accumulator)| self.total(key, accumulator))
    }

    /// All totals, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Total<'_>> {
        self.totals.iter().map(|(key, accumulator)| self.total(key, accumulator))
    }

    fn total(&self, key: &Key, accumulator: &Accumulator) -> Total<'_> {
        let text = |symbol| self.interner.get(symbol);
        let currency = match (key.currency, accumulator.named_currency) {
            (0, 0) => &self.currency,
            (0, named) | (named, _) => text(named),
        };
        Total {
            tenant: text(key.tenant),
            usage_date: key.usage_date,
            provider: text(key.provider),
            model: text(key.model),
            app_id: text(key.app),
            app_name: text(accumulator.app_name),
            user_id: text(key.user),
            user_kind: key.user_kind,
            currency,
            input_tokens: accumulator.input_tokens,
            output_tokens: accumulator.output_tokens,
            requests: accumulator.requests,
            debugger_requests: accumulator.debugger_requests,
            cost: accumulator.cost.total(),
        }
    }
}

impl<'a> Total<'a> {
    /// The parts of its id.
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

impl Accumulator {
    /// Adds up two accumulators, or fails if a count overflows. The app keeps the later of both names.
    pub(crate) fn join(&self, other: &Self, interner: &Interner) -> Result<Self, Error> {
        let add = |field, one: u64, two: u64| {
            one.checked_add(two).ok_or_else(|| Error::new(field, Reason::TooLarge))
        };
        let mut cost = self.cost;
        cost.join(other.cost).map_err(|error| Error::new("price", error))?;
        let input_tokens = add("input_tokens", self.input_tokens, other.input_tokens)?;
        let output_tokens = add("output_tokens", self.output_tokens, other.output_tokens)?;
        add("total_tokens", input_tokens, output_tokens)?;
        let name = |accumulator: &Self| (accumulator.named_at, accumulator.app_name);
        let later = match self.named_at.cmp(&other.named_at) {
            Ordering::Less => name(other),
            Ordering::Greater => name(self),
            Ordering::Equal if self.app_name == other.app_name => name(self),
            Ordering::Equal => {
                let greater = interner.get(self.app_name) > interner.get(other.app_name);
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
            named_currency: first_named(self.named_currency, other.named_currency, interner),
        })
    }
}

fn first_named(one: Symbol, other: Symbol, interner: &Interner) -> Symbol {
    match (one, other) {
        (0, named) | (named, 0) => named,
        (one, other) if one == other => one,
        (one, other) if interner.get(one) < interner.get(other) => one,
        (_, other) => other,
    }
}
