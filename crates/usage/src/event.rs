//! A usage event: one fact of a source, before anything is summed or renamed.
//!
//! Texts may be borrowed from the row they were read from, so that a source can hand on millions of them without a copy.

use std::borrow::Cow;
use std::ops::Deref;

use jiff::Timestamp;
use rust_decimal::Decimal;
use thiserror::Error;

use crate::money;
use crate::named_enum::words;

/// The longest text in any field, in bytes.
pub const LONGEST_TEXT: usize = 512;

/// One use of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageEvent<'a> {
    /// Which row of the source it was; empty if the source has no such thing.
    pub id: Cow<'a, str>,
    /// When.
    pub time: Timestamp,
    /// Whose workspace.
    pub tenant: Cow<'a, str>,
    /// The provider of the model, as the source writes it.
    pub provider: Cow<'a, str>,
    /// The model, as the source writes it.
    pub model: Cow<'a, str>,
    /// The app in which it was used.
    pub app: App<'a>,
    /// Who used it.
    pub user: User<'a>,
    /// Tokens of the prompt.
    pub input_tokens: u64,
    /// Tokens of the answer.
    pub output_tokens: u64,
    /// Both together.
    pub total_tokens: u64,
    /// What it cost.
    pub price: Decimal,
    /// In which money: three or more letters. May be empty only where the price is zero.
    pub currency: Cow<'a, str>,
    /// How many calls this was.
    pub requests: u64,
    /// Whether someone only tried the app out. It costs money all the same.
    pub debugger: bool,
}

/// The app of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct App<'a> {
    /// Its id; empty if there is none.
    pub id: Cow<'a, str>,
    /// Its name.
    pub name: Cow<'a, str>,
    /// What kind it is: chat, workflow …
    pub mode: Cow<'a, str>,
}

/// The user of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User<'a> {
    /// Which kind of id it is.
    pub kind: UserKind,
    /// The id; empty if nobody is known.
    pub id: Cow<'a, str>,
}

/// What kind of user it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum UserKind {
    /// Nobody is known.
    #[default]
    None,
    /// A user of an app.
    EndUser,
    /// A member of the workspace.
    Account,
}

words!(UserKind, "a kind of user", { None = "none", EndUser = "end_user", Account = "account" });

/// Why an event cannot be counted: the field, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field}: {reason}")]
pub struct Error {
    /// The field's name.
    pub field: &'static str,
    /// What is wrong.
    pub reason: Reason,
}

/// What is wrong with a field.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Reason {
    /// Not there.
    #[error("is missing")]
    Missing,
    /// Less than nothing.
    #[error("must not be negative, but is {0}")]
    Negative(i64),
    /// Too many to count.
    #[error("is too large")]
    TooLarge,
    /// The parts give another sum.
    #[error("is {given}, but input_tokens + output_tokens is {sum}")]
    NotTheSum {
        /// What the field says.
        given: u64,
        /// What the parts give.
        sum: u64,
    },
    /// No amount of money.
    #[error("{0}")]
    Money(#[from] money::Error),
    /// Too long.
    #[error("is longer than {LONGEST_TEXT} bytes")]
    TooLong,
    /// Something else.
    #[error("{0}")]
    Other(String),
}

impl Error {
    /// Something is wrong with a field.
    pub fn new(field: &'static str, reason: impl Into<Reason>) -> Self {
        Self { field, reason: reason.into() }
    }

    /// The same in one's own words.
    pub fn other(field: &'static str, reason: impl Into<String>) -> Self {
        Self { field, reason: Reason::Other(reason.into()) }
    }
}

/// A count that a source gives with a sign.
pub fn count(field: &'static str, number: i64) -> Result<u64, Error> {
    u64::try_from(number).map_err(|_| Error::new(field, Reason::Negative(number)))
}

/// The sum of both kinds of tokens.
pub fn total(input_tokens: u64, output_tokens: u64) -> Result<u64, Error> {
    input_tokens.checked_add(output_tokens).ok_or_else(|| Error::new("total_tokens", Reason::TooLarge))
}

/// A price that a source gives as text.
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
    /// Checks that the event can be counted. Sources check each event once; everything downstream takes the proof.
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
            return Err(Error::other("user.kind", "must be end_user or account where there is a user.id"));
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
        match texts.into_iter().find(|(_, text)| text.len() > LONGEST_TEXT) {
            Some((field, _)) => Err(Error::new(field, Reason::TooLong)),
            None => Ok(()),
        }
    }

    /// The same event with texts of its own.
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

/// An event for tests to change.
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
