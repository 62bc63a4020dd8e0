//! Values that several sections read alike.

use std::net::SocketAddr;

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
