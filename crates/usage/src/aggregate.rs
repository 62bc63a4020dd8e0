//! Adds up events as they arrive. Memory grows with the number of totals, not with the number of events.
//!
//! Totals do not depend on the order of events. Currencies are never mixed: each has its own total. An event that
//! cost nothing belongs to no particular currency (Dify writes USD if a model has no price), and joins the total
//! that its day, model, app and user already have.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use foldhash::fast::RandomState;

use crate::event::{CheckedEvent, Error, UserKind};
use crate::interner::{Interner, Symbol};
use crate::mode::Mode;
use crate::money;
use crate::name_rules::NameRules;
use crate::period::Period;
use crate::totals::{Accumulator, Key, Totals};
use crate::zone::{Calendar, Zone};

/// How events are aggregated.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which events share a total.
    pub mode: Mode,
    /// The period that a total covers.
    pub period: Period,
    /// The time zone of days.
    pub zone: Zone,
    /// How names are normalized.
    pub names: NameRules,
    /// The currency of totals that cost nothing and whose events name no currency.
    pub currency: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            period: Period::default(),
            zone: Zone::default(),
            names: NameRules::default(),
            currency: "USD".to_owned(),
        }
    }
}

/// Adds up events.
#[derive(Debug)]
pub struct Aggregator {
    options: Options,
    calendar: Calendar,
    interner: Interner,
    providers: NameCache,
    models: NameCache,
    totals: HashMap<Key, Accumulator, RandomState>,
}

impl Aggregator {
    /// Creates an aggregator without events.
    pub fn new(options: Options) -> Self {
        Self {
            calendar: Calendar::new(options.zone.clone(), options.period),
            options,
            interner: Interner::default(),
            providers: NameCache::default(),
            models: NameCache::default(),
            totals: HashMap::default(),
        }
    }

    /// Adds an event. After an error, which means that a total would overflow, no total has changed.
    pub fn add(&mut self, event: &CheckedEvent<'_>) -> Result<(), Error> {
        let (names, interner) = (&self.options.names, &mut self.interner);
        let (keeps_app, keeps_user) = (self.options.mode.keeps_app(), self.options.mode.keeps_user());
        let currency = intern_currency(interner, &event.currency);
        let key = Key {
            usage_date: self.calendar.usage_date(event.time),
            tenant: interner.intern(&event.tenant),
            provider: self.providers.intern(&event.provider, interner, |raw| names.provider(raw)),
            model: self.models.intern(&event.model, interner, |raw| names.model(raw)),
            app: if keeps_app { interner.intern(&event.app.id) } else { 0 },
            user: if keeps_user { interner.intern(&event.user.id) } else { 0 },
            user_kind: if keeps_user { event.user.kind } else { UserKind::None },
            currency: if event.price.is_zero() { 0 } else { currency },
        };
        let mut cost = money::Sum::default();
        cost.add(event.price).map_err(|error| Error::new("price", error))?;
        let new = Accumulator {
            input_tokens: event.input_tokens,
            output_tokens: event.output_tokens,
            requests: event.requests,
            debugger_requests: if event.debugger { event.requests } else { 0 },
            cost,
            app_name: if keeps_app { interner.intern(&event.app.name) } else { 0 },
            named_at: event.time,
            named_currency: currency,
        };
        match self.totals.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(new);
            }
            Entry::Occupied(mut entry) => {
                let joined = entry.get().join(&new, interner)?;
                entry.insert(joined);
            }
        }
        Ok(())
    }

    /// The number of totals, before those without a currency have joined others.
    pub fn len(&self) -> usize {
        self.totals.len()
    }

    /// Whether no event was added.
    pub fn is_empty(&self) -> bool {
        self.totals.is_empty()
    }

    /// Returns the totals, in an order that depends only on what they cover.
    pub fn finish(self) -> Totals {
        let totals = self.totals.into_iter().collect();
        Totals::new(self.options.period, self.options.currency, self.interner, totals)
    }
}

fn intern_currency(interner: &mut Interner, currency: &str) -> Symbol {
    match currency.bytes().all(|byte| byte.is_ascii_uppercase()) {
        true => interner.intern(currency),
        false => interner.intern(&currency.to_ascii_uppercase()),
    }
}

/// Caches normalized names, so that each spelling is normalized once.
#[derive(Debug, Default)]
struct NameCache {
    spellings: Interner,
    /// The normalized name of each spelling; [`NOT_NORMALIZED`] until it is needed.
    normalized: Vec<Symbol>,
}

const NOT_NORMALIZED: Symbol = Symbol::MAX;

/// A cache with more spellings than this is cleared.
const SPELLINGS_MAX: usize = 1 << 16;

impl NameCache {
    fn intern(&mut self, raw: &str, interner: &mut Interner, normalize: impl Fn(&str) -> String) -> Symbol {
        if self.spellings.len() > SPELLINGS_MAX {
            *self = Self::default();
        }
        let spelling = self.spellings.intern(raw) as usize;
        if spelling >= self.normalized.len() {
            // The empty spelling is always number 0, although others may come before it.
            self.normalized.resize(spelling + 1, NOT_NORMALIZED);
        }
        match self.normalized[spelling] {
            NOT_NORMALIZED => {
                let symbol = interner.intern(&normalize(raw));
                self.normalized[spelling] = symbol;
                symbol
            }
            symbol => symbol,
        }
    }
}

#[cfg(test)]
mod tests;
