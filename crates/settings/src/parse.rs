//! Values that several sections read alike.

use std::net::SocketAddr;

use crate::Invalid;

/// The value of an environment variable.
pub fn text(name: &str) -> Result<Option<String>, Invalid> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => Err(Invalid::new(name, "is not valid UTF-8")),
    }
}

/// The value of an environment variable that must be a whole number.
pub fn number(name: &str) -> Result<Option<u64>, Invalid> {
    let Some(value) = text(name)? else { return Ok(None) };
    value.trim().parse().map(Some).map_err(|_| Invalid::new(name, "must be a whole number"))
}

/// The value, if it is within its limits.
pub fn within(name: &str, value: u64, least: u64, most: u64) -> Result<u64, Invalid> {
    if (least..=most).contains(&value) {
        Ok(value)
    } else {
        Err(Invalid::new(name, format!("is {value}; it must be between {least} and {most}")))
    }
}

/// A socket address, where `localhost` stands for 127.0.0.1.
pub fn address(name: &str, text: &str) -> Result<SocketAddr, Invalid> {
    let text =
        text.strip_prefix("localhost:").map_or_else(|| text.to_owned(), |port| format!("127.0.0.1:{port}"));
    text.parse().map_err(|_| {
        // Not repeated: a URL in its place may hold a password.
        Invalid::new(name, "expected an address and a port, such as 127.0.0.1:8080")
    })
}

/// The location of a store for log lines and messages: its URL without credentials and parameters.
pub fn location(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once(':') else { return "?".to_owned() };
    // Everything before the last @ may be a password, even in a malformed URL.
    let host = rest.rsplit('@').next().unwrap_or_default();
    let host = if rest.starts_with("//") { host.trim_start_matches('/') } else { host };
    format!("{scheme} {}", host.split('?').next().unwrap_or_default()).trim_end().to_owned()
}
