//! Events summed as they come. Memory grows with the sums, and not with the events.
//!
//! Sums do not depend on the order of the events. Currencies are never mixed: each has a sum of its own. An event that cost nothing is of no
//! currency in particular (Dify writes USD where a model has no price), and joins the sum that its day, model, app and user have anyway.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::event::{CheckedEvent, Error, UserKind};
use crate::interner::Strings;
use crate::mode::Mode;
use crate::money;
use crate::name_rules::Names;
use crate::period::Period;
use crate::totals::{Key, Sums, Total};
use crate::zone::{Calendar, Zone};
use foldhash::fast::RandomState;

/// How events are summed.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What is summed together.
    pub mode: Mode,
    /// For how long.
    pub period: Period,
    /// Where a day begins and ends.
    pub zone: Zone,
    /// How names are made alike.
    pub names: Names,
    /// The currency of sums in which nothing cost anything, and no event named one.
    pub currency: String,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            period: Period::default(),
            zone: Zone::default(),
            names: Names::default(),
            currency: "USD".to_owned(),
        }
    }
}

/// Sums that grow.
#[derive(Debug)]
pub struct Aggregate {
    plan: Plan,
    calendar: Calendar,
    strings: Strings,
    providers: Spelling,
    models: Spelling,
    sums: HashMap<Key, Total, RandomState>,
}

impl Aggregate {
    /// Nothing yet.
    pub fn new(plan: Plan) -> Self {
        Self {
            calendar: Calendar::new(plan.zone.clone(), plan.period),
            plan,
            strings: Strings::default(),
            providers: Spelling::default(),
            models: Spelling::default(),
            sums: HashMap::default(),
        }
    }

    /// Adds an event, or says why it cannot be counted; then it has changed nothing.
    pub fn add(&mut self, event: &CheckedEvent<'_>) -> Result<(), Error> {
        let (names, strings) = (&self.plan.names, &mut self.strings);
        let (keeps_app, keeps_user) = (self.plan.mode.keeps_app(), self.plan.mode.keeps_user());
        let currency = currency_number(strings, &event.currency);
        let key = Key {
            usage_date: self.calendar.usage_date(event.time),
            tenant: strings.number(&event.tenant),
            provider: self.providers.number(&event.provider, strings, |raw| names.provider(raw)),
            model: self.models.number(&event.model, strings, |raw| names.model(raw)),
            app: if keeps_app { strings.number(&event.app.id) } else { 0 },
            user: if keeps_user { strings.number(&event.user.id) } else { 0 },
            user_kind: if keeps_user { event.user.kind } else { UserKind::None },
            currency: if event.price.is_zero() { 0 } else { currency },
        };
        let mut cost = money::Sum::default();
        cost.add(event.price).map_err(|error| Error::new("price", error))?;
        let new = Total {
            input_tokens: event.input_tokens,
            output_tokens: event.output_tokens,
            requests: event.requests,
            debugger_requests: if event.debugger { event.requests } else { 0 },
            cost,
            app_name: if keeps_app { strings.number(&event.app.name) } else { 0 },
            named_at: event.time,
            named_currency: currency,
        };
        match self.sums.entry(key) {
            Entry::Vacant(place) => {
                place.insert(new);
            }
            Entry::Occupied(mut place) => {
                let sum = place.get().joined(&new, strings)?;
                place.insert(sum);
            }
        }
        Ok(())
    }

    /// How many sums there are, before those of no currency have found theirs.
    pub fn len(&self) -> usize {
        self.sums.len()
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.sums.is_empty()
    }

    /// The sums, in an order that depends on nothing but what they are.
    pub fn finish(self) -> Sums {
        Sums::new(self.plan.period, self.plan.currency, self.strings, self.sums.into_iter().collect())
    }
}

fn currency_number(strings: &mut Strings, currency: &str) -> u32 {
    match currency.bytes().all(|byte| byte.is_ascii_uppercase()) {
        true => strings.number(currency),
        false => strings.number(&currency.to_ascii_uppercase()),
    }
}

/// Spellings of names that were met, so that each is normalised once.
#[derive(Debug, Default)]
struct Spelling {
    raw: Strings,
    normal: Vec<u32>,
}

/// More spellings than this are forgotten, and normalised again.
const MOST_SPELLINGS: usize = 1 << 16;

impl Spelling {
    fn number(&mut self, raw: &str, strings: &mut Strings, normal: impl Fn(&str) -> String) -> u32 {
        if self.raw.len() > MOST_SPELLINGS {
            *self = Self::default();
        }
        let place = self.raw.number(raw) as usize;
        if place >= self.normal.len() {
            // The empty text has the first place, and may come after others.
            self.normal.resize(place + 1, u32::MAX);
        }
        match self.normal[place] {
            u32::MAX => {
                let number = strings.number(&normal(raw));
                self.normal[place] = number;
                number
            }
            number => number,
        }
    }
}

#[cfg(test)]
mod tests;
