//! Settings: where they come from, and what is wrong with them.

use std::net::SocketAddr;

/// A setting that cannot be used: the text names it and says why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Invalid(pub String);

/// The value of an environment variable.
pub fn text(name: &str) -> Result<Option<String>, Invalid> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => Err(Invalid(format!("{name} is not valid UTF-8"))),
    }
}

/// The value of an environment variable that must be a whole number.
pub fn number(name: &str) -> Result<Option<u64>, Invalid> {
    let Some(value) = text(name)? else { return Ok(None) };
    value.trim().parse().map(Some).map_err(|_| Invalid(format!("{name} is not a whole number")))
}

/// The value, if it is within its limits.
pub fn within(name: &str, value: u64, least: u64, most: u64) -> Result<u64, Invalid> {
    if (least..=most).contains(&value) {
        Ok(value)
    } else {
        Err(Invalid(format!("{name} is {value}; it must be between {least} and {most}")))
    }
}

/// A socket address, where `localhost` stands for 127.0.0.1.
pub fn address(name: &str, text: &str) -> Result<SocketAddr, Invalid> {
    let text =
        text.strip_prefix("localhost:").map_or_else(|| text.to_owned(), |port| format!("127.0.0.1:{port}"));
    text.parse().map_err(|_| {
        // A URL in its place may hold a password.
        let given = if text.contains('@') { "no address".to_owned() } else { format!("{text:?}") };
        Invalid(format!("{name} is {given}; expected an address and a port, e.g. 127.0.0.1:8080"))
    })
}

/// Where a store is, for people: the URL without credentials and parameters.
pub fn location(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once(':') else { return "?".to_owned() };
    // Whatever stands before the last @ may be a password, whether or not it is well written.
    let place = rest.rsplit('@').next().unwrap_or_default();
    let place = if rest.starts_with("//") { place.trim_start_matches('/') } else { place };
    format!("{scheme} {}", place.split('?').next().unwrap_or_default()).trim_end().to_owned()
}
