//! The id under which a record is counted once: `dify-{usage_date}-{provider}-{model}-{hash}`.
//!
//! It depends on what a record is a sum of, and on nothing that the record says about it: the same usage sent again has the same id.
//!
//! | scheme | hashed | digits |
//! |---|---|---|
//! | `sorted` | date, provider, model, app and user, sorted by UTF-16 code unit and joined with `\|` | 12 |
//! | `fixed-order` | the same in this order | 12 |
//! | `v2` | `ichido-usage-2`, then each of tenant, date, provider, model, app, kind of user, user, currency and aggregation method with its length (32 bits, big-endian) before it | 32 |
//!
//! The first two are what receivers know. A `|` inside a value would make them ambiguous, so such a value is refused. What they cannot
//! tell apart (app and user swapped, two currencies, a day and the week that begins with it) is found when records are
//! made ([`crate::transform`]), and under `v2` it is no problem at all.

use ichido_core::by_utf16;
use jiff::civil::Date;
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::event::UserKind;
use crate::named_enum::words;
use crate::period::Period;
use crate::record::day;

/// The longest id, in bytes.
pub const LONGEST_ID: usize = 255;

const PREFIX: &str = "dify-";
const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// What is hashed, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// The values sorted: as the decision record prescribes.
    #[default]
    Sorted,
    /// The values in one order: as the first exporter shipped it.
    FixedOrder,
    /// Nothing ambiguous, and enough digits.
    V2,
}

words!(Scheme, "an id scheme", { Sorted = "sorted", FixedOrder = "fixed-order", V2 = "v2" });

impl Scheme {
    /// How many hexadecimal digits of the hash an id has.
    pub fn digits(self) -> usize {
        match self {
            Self::Sorted | Self::FixedOrder => 12,
            Self::V2 => 32,
        }
    }

    /// The pattern of an id, as a regular expression.
    pub fn pattern(self) -> &'static str {
        match self {
            Self::Sorted | Self::FixedOrder => r"^dify-\d{4}-\d{2}-\d{2}-.+-[a-f0-9]{12}$",
            Self::V2 => r"^dify-\d{4}-\d{2}-\d{2}-.+-[a-f0-9]{32}$",
        }
    }

    /// Whether a text has the shape of an id.
    pub fn matches(self, text: &str) -> bool {
        let Some(rest) = text.strip_prefix(PREFIX) else { return false };
        let Some(rest) = shaped_date(rest).and_then(|rest| rest.strip_prefix('-')) else { return false };
        let Some((names, hash)) = rest.rsplit_once('-') else { return false };
        !names.is_empty()
            && !names.contains(['\n', '\r', '\u{2028}', '\u{2029}'])
            && hash.len() == self.digits()
            && hash.bytes().all(|byte| DIGITS.contains(&byte))
    }
}

fn shaped_date(text: &str) -> Option<&str> {
    let (date, rest) = text.split_at_checked(10)?;
    day::has_shape(date).then_some(rest)
}

/// What a record is a sum of.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    /// The first day.
    pub usage_date: Date,
    /// The provider, normalised.
    pub provider: &'a str,
    /// The model, normalised.
    pub model: &'a str,
    /// The app; empty for all of them.
    pub app_id: &'a str,
    /// The user; empty for all of them.
    pub user_id: &'a str,
    /// Whose workspace. Only `v2` holds it, and what follows.
    pub tenant: &'a str,
    /// What kind of user.
    pub user_kind: UserKind,
    /// In which money.
    pub currency: &'a str,
    /// How long.
    pub period: Period,
}

/// Why something gets no id.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// Two different records could get one id.
    #[error("{field}: must not hold '|', or ids of the scheme {scheme} are ambiguous (v2 can take it)")]
    Ambiguous {
        /// The field.
        field: &'static str,
        /// The scheme.
        scheme: Scheme,
    },
    /// An id needs it.
    #[error("{0}: must not be empty")]
    Empty(&'static str),
    /// Something that cannot be seen.
    #[error("{0}: must not hold control characters or line separators")]
    Unprintable(&'static str),
    /// Too long.
    #[error("source_event_id: would have {0} bytes, and {LONGEST_ID} are the most")]
    TooLong(usize),
    /// The pattern has four digits for the year.
    #[error("usage_date: the year must have four digits")]
    Year,
}

/// The id of one record.
pub fn event_id(scheme: Scheme, parts: &Parts<'_>) -> Result<String, Error> {
    Ok(Writer::new(scheme).write(parts)?.to_owned())
}

/// Writes ids, one after the other, into the same memory.
#[derive(Clone, Debug)]
pub struct Writer {
    scheme: Scheme,
    hashed: Vec<u8>,
    id: String,
}

impl Writer {
    /// Ids of one scheme.
    pub fn new(scheme: Scheme) -> Self {
        Self { scheme, hashed: Vec::with_capacity(512), id: String::with_capacity(LONGEST_ID) }
    }

    /// The id of a record. It is always of the scheme's pattern.
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
            Scheme::V2 => self.prefix_each(date, parts),
        }
        let hash = Sha256::digest(&self.hashed);
        self.id.clear();
        for text in [PREFIX, date, "-", parts.provider, "-", parts.model, "-"] {
            self.id.push_str(text);
        }
        let mut digits = [0; 32];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(hash).take(self.scheme.digits() / 2) {
            pair.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
        self.id.push_str(std::str::from_utf8(&digits[..self.scheme.digits()]).unwrap_or_default());
        Ok(&self.id)
    }

    fn join(&mut self, values: [&str; 5]) {
        for (place, value) in values.into_iter().enumerate() {
            if place > 0 {
                self.hashed.push(b'|');
            }
            self.hashed.extend_from_slice(value.as_bytes());
        }
    }

    fn prefix_each(&mut self, date: &str, parts: &Parts<'_>) {
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
            // No value of a record is longer than 32 bits can say; if one were, its end would still be told by the next length.
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
    let barred = scheme != Scheme::V2;
    for (field, value) in [
        ("provider", parts.provider),
        ("model", parts.model),
        ("app_id", parts.app_id),
        ("user_id", parts.user_id),
    ] {
        // Nearly every value is plain, and without a way out of the loop the compiler looks at many bytes at once.
        let plain = |byte: u8| (b' '..0x7f).contains(&byte) & (byte != b'|');
        if value.bytes().fold(true, |all, byte| all & plain(byte)) {
            continue;
        }
        if value.contains(|char: char| char.is_control() || matches!(char, '\u{2028}' | '\u{2029}')) {
            return Err(Error::Unprintable(field));
        }
        if barred && value.contains('|') {
            return Err(Error::Ambiguous { field, scheme });
        }
    }
    if bytes > LONGEST_ID { Err(Error::TooLong(bytes)) } else { Ok(()) }
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
