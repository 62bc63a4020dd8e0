//! The id that a record is deduplicated by: `dify-{usage_date}-{provider}-{model}-{hash}`.
//!
//! It depends on what a record covers, and on none of its figures: the same usage sent again has the same id.
//!
//! | scheme | hashed | digits |
//! |---|---|---|
//! | `sorted` | date, provider, model, app and user, sorted by UTF-16 code unit and joined with `\|` | 12 |
//! | `fixed-order` | the same values in this order | 12 |
//! | `v2` | `ichido-usage-2`, then tenant, date, provider, model, app, kind of user, user, currency and aggregation method, each preceded by its length (32 bits, big-endian) | 32 |
//!
//! The first two are what existing receivers know. A `|` inside a value would make them ambiguous, so such a value
//! is refused. They cannot tell apart swapped app and user, two currencies, or a day and the week that begins with
//! it. Such duplicates are found when records are made ([`crate::transform`]); under `v2` they do not arise.

use ichido_core::by_utf16;
use jiff::civil::Date;
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::event::UserKind;
use crate::named_enum::named_enum;
use crate::period::Period;
use crate::record::day;

/// The most bytes an id may have.
pub const ID_MAX_BYTES: usize = 255;

const PREFIX: &str = "dify-";
const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// How the hash of an id is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Hashes the values in sorted order.
    #[default]
    Sorted,
    /// Hashes the values in a fixed order, as some receivers know them.
    FixedOrder,
    /// Hashes everything that tells records apart, without ambiguity, and keeps more digits.
    V2,
}

named_enum!(Scheme, "an id scheme", { Sorted = "sorted", FixedOrder = "fixed-order", V2 = "v2" });

impl Scheme {
    /// The number of hexadecimal digits of the hash.
    pub fn digits(self) -> usize {
        match self {
            Self::Sorted | Self::FixedOrder => 12,
            Self::V2 => 32,
        }
    }

    /// The pattern of ids, as a regular expression.
    pub fn pattern(self) -> &'static str {
        match self {
            Self::Sorted | Self::FixedOrder => r"^dify-\d{4}-\d{2}-\d{2}-.+-[a-f0-9]{12}$",
            Self::V2 => r"^dify-\d{4}-\d{2}-\d{2}-.+-[a-f0-9]{32}$",
        }
    }

    /// Whether a text matches the pattern.
    pub fn matches(self, text: &str) -> bool {
        let Some(rest) = text.strip_prefix(PREFIX) else { return false };
        let Some(rest) = strip_date(rest).and_then(|rest| rest.strip_prefix('-')) else { return false };
        let Some((names, hash)) = rest.rsplit_once('-') else { return false };
        !names.is_empty()
            && !names.contains(['\n', '\r', '\u{2028}', '\u{2029}'])
            && hash.len() == self.digits()
            && hash.bytes().all(|byte| DIGITS.contains(&byte))
    }
}

fn strip_date(text: &str) -> Option<&str> {
    let (date, rest) = text.split_at_checked(10)?;
    day::has_shape(date).then_some(rest)
}

/// What a record covers.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    /// The first day of the period.
    pub usage_date: Date,
    /// The normalized name of the provider.
    pub provider: &'a str,
    /// The normalized name of the model.
    pub model: &'a str,
    /// The app; empty if the record covers all apps.
    pub app_id: &'a str,
    /// The user; empty if the record covers all users.
    pub user_id: &'a str,
    /// The workspace. Only `v2` hashes this and the following fields.
    pub tenant: &'a str,
    /// The kind of user.
    pub user_kind: UserKind,
    /// The currency of the cost.
    pub currency: &'a str,
    /// The period.
    pub period: Period,
}

/// Why a record gets no id.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// Two different records could get the same id.
    #[error(
        "{field}: must not contain '|', because ids of the scheme {scheme} would be ambiguous (v2 allows it)"
    )]
    Ambiguous {
        /// The field.
        field: &'static str,
        /// The scheme.
        scheme: Scheme,
    },
    /// A value that the id needs is empty.
    #[error("{0}: must not be empty")]
    Empty(&'static str),
    /// A value contains invisible characters.
    #[error("{0}: must not contain control characters or line separators")]
    Unprintable(&'static str),
    /// The id is too long.
    #[error("source_event_id: would have {0} bytes, but the limit is {ID_MAX_BYTES}")]
    TooLong(usize),
    /// The pattern has room for a four-digit year only.
    #[error("usage_date: the year must have four digits")]
    Year,
}

/// Returns the id of one record.
pub fn event_id(scheme: Scheme, parts: &Parts<'_>) -> Result<String, Error> {
    Ok(Writer::new(scheme).write(parts)?.to_owned())
}

/// Writes ids one after another, reusing its buffers.
#[derive(Clone, Debug)]
pub struct Writer {
    scheme: Scheme,
    hashed: Vec<u8>,
    id: String,
}

impl Writer {
    /// Creates a writer for ids of one scheme.
    pub fn new(scheme: Scheme) -> Self {
        Self { scheme, hashed: Vec::with_capacity(512), id: String::with_capacity(ID_MAX_BYTES) }
    }

    /// Returns the id of a record. It always matches the scheme's pattern.
    pub fn write(&mut self, parts: &Parts<'_>) -> Result<&str, Error> {
        let bytes = PREFIX.len() + 12 + parts.provider.len() + parts.model.len() + 1 + self.scheme.digits();
        check(self.scheme, parts, bytes)?;
        let date = date_text(parts.usage_date).ok_or(Error::Year)?;
        let date = std::str::from_utf8(&date).map_err(|_| Error::Year)?;
        self.hashed.clear();
        match self.scheme {
            Scheme::Sorted => {
                let mut values = [date, parts.provider, parts.model, parts.app_id, parts.user_id];
                values.sort_unstable_by(|one, other| by_utf16(one, other));
                self.join(values);
            }
            Scheme::FixedOrder => {
                self.join([date, parts.provider, parts.model, parts.app_id, parts.user_id]);
            }
            Scheme::V2 => self.join_with_lengths(date, parts),
        }
        let hash = Sha256::digest(&self.hashed);
        self.id.clear();
        for text in [PREFIX, date, "-", parts.provider, "-", parts.model, "-"] {
            self.id.push_str(text);
        }
        let mut digits = [0; 32];
        // The hex crate checks bounds for every digit, which makes ids several percent slower.
        for (pair, byte) in digits.chunks_exact_mut(2).zip(hash).take(self.scheme.digits() / 2) {
            pair.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
        self.id.push_str(std::str::from_utf8(&digits[..self.scheme.digits()]).unwrap_or_default());
        Ok(&self.id)
    }

    fn join(&mut self, values: [&str; 5]) {
        for (index, value) in values.into_iter().enumerate() {
            if index > 0 {
                self.hashed.push(b'|');
            }
            self.hashed.extend_from_slice(value.as_bytes());
        }
    }

    fn join_with_lengths(&mut self, date: &str, parts: &Parts<'_>) {
        self.hashed.extend_from_slice(b"ichido-usage-2");
        for value in [
            parts.tenant,
            date,
            parts.provider,
            parts.model,
            parts.app_id,
            parts.user_kind.as_str(),
            parts.user_id,
            parts.currency,
            parts.period.method(),
        ] {
            // No value is longer than 32 bits can express. If one were, the length of the next value would still
            // mark its end.
            let length = u32::try_from(value.len()).unwrap_or(u32::MAX);
            self.hashed.extend_from_slice(&length.to_be_bytes());
            self.hashed.extend_from_slice(value.as_bytes());
        }
    }
}

fn check(scheme: Scheme, parts: &Parts<'_>, bytes: usize) -> Result<(), Error> {
    for (field, value) in [("provider", parts.provider), ("model", parts.model)] {
        if value.is_empty() {
            return Err(Error::Empty(field));
        }
    }
    let bar_is_separator = scheme != Scheme::V2;
    for (field, value) in [
        ("provider", parts.provider),
        ("model", parts.model),
        ("app_id", parts.app_id),
        ("user_id", parts.user_id),
    ] {
        // Nearly every value is plain ASCII. Without an early exit, the compiler can check many bytes at once.
        let plain = |byte: u8| (b' '..0x7f).contains(&byte) & (byte != b'|');
        if value.bytes().fold(true, |all, byte| all & plain(byte)) {
            continue;
        }
        if value.contains(|char: char| char.is_control() || matches!(char, '\u{2028}' | '\u{2029}')) {
            return Err(Error::Unprintable(field));
        }
        if bar_is_separator && value.contains('|') {
            return Err(Error::Ambiguous { field, scheme });
        }
    }
    if bytes > ID_MAX_BYTES { Err(Error::TooLong(bytes)) } else { Ok(()) }
}

fn date_text(date: Date) -> Option<[u8; 10]> {
    let year = u16::try_from(date.year()).ok()?;
    let (month, day) = (u16::from(date.month().unsigned_abs()), u16::from(date.day().unsigned_abs()));
    let digit = |number: u16| DIGITS[usize::from(number % 10)];
    Some([
        digit(year / 1000),
        digit(year / 100),
        digit(year / 10),
        digit(year),
        b'-',
        digit(month / 10),
        digit(month),
        b'-',
        digit(day / 10),
        digit(day),
    ])
}

#[cfg(test)]
mod tests;
