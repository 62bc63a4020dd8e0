//! Values that several sections read alike.

use std::net::SocketAddr;
use std::time::Duration;

use crate::Invalid;

/// A socket address, where `localhost` stands for 127.0.0.1.
pub fn address(name: &str, text: &str) -> Result<SocketAddr, Invalid> {
    let text =
        text.strip_prefix("localhost:").map_or_else(|| text.to_owned(), |port| format!("127.0.0.1:{port}"));
    text.parse().map_err(|_| {
        // Not repeated: a URL in its place may hold a password.
        Invalid::new(name, "expected an address and a port, such as 127.0.0.1:8080")
    })
}

/// A duration: a whole number and a unit, such as `90s`, `10m`, `6h` or `1d`. Not zero.
pub fn duration(name: &str, text: &str) -> Result<Duration, Invalid> {
    let invalid =
        || Invalid::new(name, format!("is {text:?}; expected a duration such as 90s, 10m, 6h or 1d"));
    let unit = text.chars().next_back().ok_or_else(invalid)?;
    let seconds: u64 = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return Err(invalid()),
    };
    let count: u64 = text[..text.len() - 1].parse().map_err(|_| invalid())?;
    match count.checked_mul(seconds) {
        Some(0) => Err(Invalid::new(name, "is zero")),
        Some(seconds) => Ok(Duration::from_secs(seconds)),
        None => Err(invalid()),
    }
}

/// The location of a store for log lines and messages: its URL without credentials and parameters.
pub fn location(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once(':') else { return "?".to_owned() };
    // Everything before the last @ may be a password, even in a malformed URL.
    let host = rest.rsplit('@').next().unwrap_or_default();
    let host = if rest.starts_with("//") { host.trim_start_matches('/') } else { host };
    format!("{scheme} {}", host.split('?').next().unwrap_or_default()).trim_end().to_owned()
}

/// A URL for output: without user, password and parameters.
pub(crate) fn without_credentials(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once(':') else { return "***".to_owned() };
    let slashes = if rest.starts_with("//") { "//" } else { "" };
    // Everything before the last @ may be a password, even in a malformed URL.
    let rest = rest.rsplit('@').next().unwrap_or_default();
    let rest = rest.strip_prefix(slashes).unwrap_or(rest);
    format!("{scheme}:{slashes}{}", rest.split('?').next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit_and_are_not_zero() {
        for (text, seconds) in [("90s", 90), ("10m", 600), ("6h", 21_600), ("1d", 86_400)] {
            assert_eq!(duration("window", text).unwrap(), Duration::from_secs(seconds));
        }
        assert_eq!(duration("window", "0m").unwrap_err().to_string(), "window: is zero");
        for text in
            ["", "10", "m", "10 m", "-1m", "1.5h", "10分", "99999999999999999999s", "9999999999999999999d"]
        {
            let error = duration("window", text).unwrap_err().to_string();
            assert!(error.contains("such as 90s, 10m"), "{text}: {error}");
        }
    }

    #[test]
    fn urls_are_shown_without_credentials_and_parameters() {
        for (url, shown) in [
            ("http://127.0.0.1:5000/api", "http://127.0.0.1:5000/api"),
            ("postgres://u:hunter2@db:5432/app?password=hunter2", "postgres://db:5432/app"),
            ("redis://:hun?ter2@x@db", "redis://db"),
            ("file:data/ledger", "file:data/ledger"),
            ("hunter2", "***"),
        ] {
            assert_eq!(without_credentials(url), shown);
        }
    }
}
