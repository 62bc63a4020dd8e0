//! A usage event: one fact from a source, before anything is added up or renamed.
//!
//! Text can be borrowed from the row it was read from, so that a source can pass on millions of events without
//! copying.

use std::borrow::Cow;
use std::ops::Deref;

use jiff::Timestamp;
use rust_decimal::Decimal;
use thiserror::Error;

use crate::money;
use crate::named_enum::named_enum;

/// The most bytes a text field may have.
pub const TEXT_MAX_BYTES: usize = 512;

/// One use of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageEvent<'a> {
    /// The id of the source's row; empty if the source has none.
    pub id: Cow<'a, str>,
    /// When the model was used.
    pub time: Timestamp,
    /// The workspace.
    pub tenant: Cow<'a, str>,
    /// The provider of the model, as the source spells it.
    pub provider: Cow<'a, str>,
    /// The model, as the source spells it.
    pub model: Cow<'a, str>,
    /// The app that used the model.
    pub app: App<'a>,
    /// The user of the app.
    pub user: User<'a>,
    /// Prompt tokens.
    pub input_tokens: u64,
    /// Completion tokens.
    pub output_tokens: u64,
    /// Both together.
    pub total_tokens: u64,
    /// The cost.
    pub price: Decimal,
    /// The currency of the price, in letters. May be empty only if the price is zero.
    pub currency: Cow<'a, str>,
    /// The number of model calls.
    pub requests: u64,
    /// Whether the usage comes from the debugger, where members try out an app. It costs money all the same.
    pub debugger: bool,
}

/// The app of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct App<'a> {
    /// The id; empty if there is none.
    pub id: Cow<'a, str>,
    /// The name.
    pub name: Cow<'a, str>,
    /// The kind of app: chat, workflow …
    pub mode: Cow<'a, str>,
}

/// The user of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User<'a> {
    /// The kind of user.
    pub kind: UserKind,
    /// The id; empty if the user is unknown.
    pub id: Cow<'a, str>,
}

/// The kind of a user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum UserKind {
    /// The user is unknown.
    #[default]
    None,
    /// An end user of an app.
    EndUser,
    /// A member of the workspace.
    Account,
}

named_enum!(UserKind, "a kind of user", { None = "none", EndUser = "end_user", Account = "account" });

/// Why an event cannot be counted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field}: {reason}")]
pub struct Error {
    /// The invalid field.
    pub field: &'static str,
    /// What is wrong with it.
    pub reason: Reason,
}

/// What is wrong with a field.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Reason {
    /// The field is missing.
    #[error("is missing")]
    Missing,
    /// A count is negative.
    #[error("must not be negative, but is {0}")]
    Negative(i64),
    /// A count does not fit.
    #[error("is too large")]
    TooLarge,
    /// The total differs from the sum of its parts.
    #[error("is {given}, but input_tokens + output_tokens is {sum}")]
    NotTheSum {
        /// The value of the field.
        given: u64,
        /// The sum of the parts.
        sum: u64,
    },
    /// The price is invalid.
    #[error("{0}")]
    Money(#[from] money::Error),
    /// A text is too long.
    #[error("is longer than {TEXT_MAX_BYTES} bytes")]
    TooLong,
    /// Any other reason.
    #[error("{0}")]
    Other(String),
}

impl Error {
    /// Creates an error for a field.
    pub fn new(field: &'static str, reason: impl Into<Reason>) -> Self {
        Self { field, reason: reason.into() }
    }

    /// Creates an error whose reason is free text.
    pub fn other(field: &'static str, reason: impl Into<String>) -> Self {
        Self { field, reason: Reason::Other(reason.into()) }
    }
}

/// Converts a count that the source stores as a signed number.
pub fn count(field: &'static str, number: i64) -> Result<u64, Error> {
    u64::try_from(number).map_err(|_| Error::new(field, Reason::Negative(number)))
}

/// Adds both kinds of tokens.
pub fn total(input_tokens: u64, output_tokens: u64) -> Result<u64, Error> {
    input_tokens.checked_add(output_tokens).ok_or_else(|| Error::new("total_tokens", Reason::TooLarge))
}

/// Parses a price that the source stores as text.
pub fn price(field: &'static str, text: &str) -> Result<Decimal, Error> {
    money::parse(text.trim()).and_then(money::price).map_err(|error| Error::new(field, error))
}

/// An event that has passed [`UsageEvent::check`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedEvent<'a>(UsageEvent<'a>);

impl<'a> Deref for CheckedEvent<'a> {
    type Target = UsageEvent<'a>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl CheckedEvent<'_> {
    /// Copies borrowed text, so that the event outlives the row it was read from.
    pub fn into_owned(self) -> CheckedEvent<'static> {
        CheckedEvent(self.0.into_owned())
    }
}

impl<'a> UsageEvent<'a> {
    /// Checks that the event can be counted. Sources check each event once; everything downstream relies on it.
    #[inline]
    pub fn check(self) -> Result<CheckedEvent<'a>, Error> {
        self.validate()?;
        Ok(CheckedEvent(self))
    }

    fn validate(&self) -> Result<(), Error> {
        let sum = total(self.input_tokens, self.output_tokens)?;
        if sum != self.total_tokens {
            return Err(Error::new("total_tokens", Reason::NotTheSum { given: self.total_tokens, sum }));
        }
        money::price(self.price).map_err(|error| Error::new("price", error))?;
        if self.currency.is_empty() && !self.price.is_zero() {
            return Err(Error::new("currency", Reason::Missing));
        }
        if !self.currency.bytes().all(|byte| byte.is_ascii_alphabetic()) {
            return Err(Error::other("currency", "must be letters, as in USD"));
        }
        if self.user.kind == UserKind::None && !self.user.id.is_empty() {
            return Err(Error::other("user.kind", "must be end_user or account if there is a user.id"));
        }
        let texts = [
            ("tenant", &self.tenant),
            ("provider", &self.provider),
            ("model", &self.model),
            ("app.id", &self.app.id),
            ("app.name", &self.app.name),
            ("user.id", &self.user.id),
            ("currency", &self.currency),
        ];
        match texts.into_iter().find(|(_, text)| text.len() > TEXT_MAX_BYTES) {
            Some((field, _)) => Err(Error::new(field, Reason::TooLong)),
            None => Ok(()),
        }
    }

    /// Copies borrowed text, so that the event outlives the row it was read from.
    pub fn into_owned(self) -> UsageEvent<'static> {
        let own = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        UsageEvent {
            id: own(self.id),
            tenant: own(self.tenant),
            provider: own(self.provider),
            model: own(self.model),
            app: App { id: own(self.app.id), name: own(self.app.name), mode: own(self.app.mode) },
            user: User { kind: self.user.kind, id: own(self.user.id) },
            currency: own(self.currency),
            time: self.time,
            input_tokens: self.input_tokens,
            output_tokens: self.output_tokens,
            total_tokens: self.total_tokens,
            price: self.price,
            requests: self.requests,
            debugger: self.debugger,
        }
    }
}

/// An event for tests to modify.
#[cfg(test)]
pub(crate) fn sample<'a>(app: &'a str, user: &'a str) -> UsageEvent<'a> {
    let kind = if user.is_empty() { UserKind::None } else { UserKind::EndUser };
    UsageEvent {
        id: "m".into(),
        time: Timestamp::constant(1_764_417_600, 0),
        tenant: "t".into(),
        provider: "langgenius/claude/claude".into(),
        model: "Claude-3-5-Sonnet-20241022".into(),
        app: App { id: app.into(), name: "Help desk".into(), mode: "chat".into() },
        user: User { kind, id: user.into() },
        input_tokens: 12,
        output_tokens: 30,
        total_tokens: 42,
        price: Decimal::from_i128_with_scale(197_304, 7),
        currency: "USD".into(),
        requests: 1,
        debugger: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_field_is_named() {
        let check = |change: fn(&mut UsageEvent<'_>)| {
            let mut event = sample("a", "u");
            change(&mut event);
            event.check()
        };
        assert!(check(|_| ()).is_ok());
        for (checked, field) in [
            (check(|event| event.total_tokens = 1), "total_tokens"),
            (check(|event| event.price = -event.price), "price"),
            (check(|event| event.currency = Cow::Borrowed("")), "currency"),
            (check(|event| event.user.kind = UserKind::None), "user.kind"),
            (check(|event| event.model = "m".repeat(600).into()), "model"),
        ] {
            assert_eq!(checked.unwrap_err().field, field);
        }
    }
}
