//! Texts of settings.

use std::fmt;
use std::str::FromStr;

use ichido_settings::Invalid;

/// Reads a text; the error names the setting.
pub(super) fn parse<T: FromStr<Err: fmt::Display>>(name: &str, text: &str) -> Result<T, Invalid> {
    text.parse().map_err(|error: T::Err| Invalid::new(name, error.to_string()))
}

/// Reads a text that may be left out.
pub(super) fn word<T: FromStr<Err: fmt::Display>>(
    name: &str,
    text: Option<&str>,
    default: T,
) -> Result<T, Invalid> {
    text.map_or(Ok(default), |text| parse(name, text))
}
