//! Where batches go: an https URL without credentials in it.

use url::Url;

/// A checked address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint(Url);

impl Endpoint {
    /// Checks the address that a setting holds. The error does not echo it: it may hold a secret.
    pub fn parse(setting: &str, text: &str, allow_http_loopback: bool) -> Result<Self, String> {
        let url = Url::parse(text.trim()).map_err(|_| format!("{setting} is not a URL"))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(format!("{setting} must not hold a user name or password; use EXTERNAL_API_TOKEN"));
        }
        if url.host_str().is_none_or(str::is_empty) {
            return Err(format!("{setting} names no host"));
        }
        match url.scheme() {
            "https" => Ok(Self(url)),
            "http" if allow_http_loopback && is_loopback(&url) => Ok(Self(url)),
            "http" if allow_http_loopback => Err(format!(
                "{setting} must begin with https://; http:// is allowed for loopback addresses only"
            )),
            _ => Err(format!("{setting} must begin with https://")),
        }
    }

    /// The address.
    pub fn url(&self) -> &Url {
        &self.0
    }

    /// Whether it is plain HTTP.
    pub fn is_plain_http(&self) -> bool {
        self.0.scheme() == "http"
    }

    /// The address for people: without path and query, which may hold secrets.
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
    fn only_https_and_no_credentials() {
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
            let error = parse(bad).unwrap_err();
            assert!(error.contains("EXTERNAL_API_ENDPOINT") && !error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn plain_http_is_for_trying_out_on_loopback() {
        let parse = |text| Endpoint::parse("E", text, true);
        for good in ["http://127.0.0.1:9/x", "http://localhost/x", "http://[::1]:8/"] {
            assert!(parse(good).unwrap().is_plain_http());
        }
        for bad in ["http://10.0.0.1/", "http://localhost.example/", "http://example/"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
