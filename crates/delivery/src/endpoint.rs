//! The URL that batches are sent to: https, without credentials.

use ichido_settings::Invalid;
use url::Url;

/// A validated URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint(Url);

impl Endpoint {
    /// Validates the URL in a setting. The error does not echo the URL, which may contain a secret.
    pub fn parse(setting: &str, text: &str, allow_http_loopback: bool) -> Result<Self, Invalid> {
        let invalid = |problem: &str| Invalid::new(setting, problem);
        let url = Url::parse(text.trim()).map_err(|_| invalid("is not a URL"))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(invalid("must not contain a user name or password; use EXTERNAL_API_TOKEN"));
        }
        if url.host_str().is_none_or(str::is_empty) {
            return Err(invalid("has no host"));
        }
        match url.scheme() {
            "https" => Ok(Self(url)),
            "http" if allow_http_loopback && is_loopback(&url) => Ok(Self(url)),
            "http" if allow_http_loopback => {
                Err(invalid("must start with https:// (http:// is allowed for loopback addresses only)"))
            }
            "http" if is_loopback(&url) => Err(invalid(
                "must start with https:// (for a loopback receiver, set EXTERNAL_API_ALLOW_HTTP_LOOPBACK=on)",
            )),
            _ => Err(invalid("must start with https://")),
        }
    }

    /// The URL.
    pub fn url(&self) -> &Url {
        &self.0
    }

    /// Whether the URL is plain HTTP.
    pub fn is_plain_http(&self) -> bool {
        self.0.scheme() == "http"
    }

    /// Scheme, host and port, for logs: path and query may contain secrets.
    pub fn origin(&self) -> String {
        self.0.origin().ascii_serialization()
    }
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        Some(url::Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_without_credentials_is_accepted() {
        let parse = |text| Endpoint::parse("EXTERNAL_API_ENDPOINT", text, false);
        assert_eq!(parse("https://api.example/v1/usage?x=1").unwrap().origin(), "https://api.example");
        for bad in [
            "http://hunter2.example/",
            "https://user:hunter2@x/",
            "https://hunter2@x/",
            "hunter2",
            "ftp://hunter2/",
            "https://",
            "http://127.0.0.1/hunter2",
        ] {
            let error = parse(bad).unwrap_err().to_string();
            assert!(error.contains("EXTERNAL_API_ENDPOINT") && !error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn plain_http_is_accepted_on_loopback_only() {
        let parse = |text| Endpoint::parse("E", text, true);
        for good in ["http://127.0.0.1:9/x", "http://localhost/x", "http://[::1]:8/"] {
            assert!(parse(good).unwrap().is_plain_http());
        }
        for bad in ["http://10.0.0.1/", "http://localhost.example/", "http://example/"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
