//! The operator token and the read-only token. They are compared in constant time and never printed.

use std::fmt;
use std::net::SocketAddr;

use http::{HeaderMap, HeaderValue, header};
use subtle::ConstantTimeEq;

use ichido_settings::{Invalid, Secret};

/// The environment variable of the operator token.
pub(crate) const TOKEN_VARIABLE: &str = "ICHIDO_ADMIN_TOKEN";
/// The environment variable of the read-only token.
const READ_TOKEN_VARIABLE: &str = "ICHIDO_ADMIN_READ_TOKEN";
/// The shortest token that may protect a port outside loopback.
const LENGTH_MIN: usize = 16;

/// The tokens that the admin port accepts.
#[derive(Clone)]
pub struct AdminToken {
    full: Box<str>,
    read: Option<Box<str>>,
}

/// What a visitor may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Everything.
    Full,
    /// Read the console and the metrics.
    Read,
}

impl AdminToken {
    /// The tokens of the settings, if they are set.
    pub fn new(full: Option<&Secret>, read: Option<&Secret>) -> Result<Option<Self>, Invalid> {
        let text =
            |name, token: Option<&Secret>| token.map(|token| checked(name, token.expose())).transpose();
        Self::from_texts(text(TOKEN_VARIABLE, full)?, text(READ_TOKEN_VARIABLE, read)?)
    }

    fn from_texts(full: Option<Box<str>>, read: Option<Box<str>>) -> Result<Option<Self>, Invalid> {
        match (full, read) {
            (Some(full), Some(read)) if full == read => {
                Err(invalid(READ_TOKEN_VARIABLE, &format!("must differ from {TOKEN_VARIABLE}")))
            }
            (Some(full), read) => Ok(Some(Self { full, read })),
            (None, None) => Ok(None),
            // Without an operator token, requests without any token would have full access.
            (None, Some(_)) => {
                Err(invalid(READ_TOKEN_VARIABLE, &format!("requires {TOKEN_VARIABLE} to be set as well")))
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn from_text(token: &str) -> Result<Self, Invalid> {
        Ok(Self { full: checked(TOKEN_VARIABLE, token)?, read: None })
    }

    /// The access that the token in the request's headers gives.
    pub(super) fn access_of(&self, headers: &HeaderMap) -> Option<Access> {
        let shown = headers.get(header::AUTHORIZATION)?.as_bytes();
        let (scheme, token) = shown.split_at_checked("Bearer ".len())?;
        scheme.eq_ignore_ascii_case(b"Bearer ").then(|| self.access(token))?
    }

    /// The access that a token gives.
    pub fn access(&self, token: &[u8]) -> Option<Access> {
        let is = |known: &str| bool::from(token.ct_eq(known.as_bytes()));
        let (full, read) = (is(&self.full), self.read.as_deref().is_some_and(is));
        full.then_some(Access::Full).or(read.then_some(Access::Read))
    }

    /// Refuses tokens that are short enough to be guessed over the network.
    pub(crate) fn check_length(&self, address: SocketAddr) -> Result<(), Invalid> {
        let short = |token: &str| token.len() < LENGTH_MIN;
        let name = match (short(&self.full), self.read.as_deref().is_some_and(short)) {
            (true, _) => TOKEN_VARIABLE,
            (false, true) => READ_TOKEN_VARIABLE,
            (false, false) => return Ok(()),
        };
        let why = format!(
            "is too short: admin listener {address} is not on loopback and requires a token of at least {LENGTH_MIN} \
             characters (for example: openssl rand -hex 16)"
        );
        Err(invalid(name, &why))
    }

    /// The `Authorization` header with the operator token.
    pub fn authorization(&self) -> Option<HeaderValue> {
        let mut value = HeaderValue::try_from(format!("Bearer {}", self.full)).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdminToken(…)")
    }
}

fn checked(name: &str, token: &str) -> Result<Box<str>, Invalid> {
    if token.is_empty() {
        return Err(invalid(name, "is empty; set a value or unset it"));
    }
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(invalid(name, "must consist of visible ASCII characters without spaces"));
    }
    Ok(token.into())
}

fn invalid(name: &str, what: &str) -> Invalid {
    Invalid::new(name, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_complete_token_gives_access() {
        let token = AdminToken::from_text("s3cret").unwrap();
        let shows = |value: &str| {
            token.access_of(&HeaderMap::from_iter([(header::AUTHORIZATION, value.parse().unwrap())]))
        };
        assert_eq!(
            (shows("Bearer s3cret"), shows("bearer s3cret")),
            (Some(Access::Full), Some(Access::Full))
        );
        for wrong in ["", "Bearer", "Bearer ", "Bearer s3cre", "Bearer s3crett", "Basic s3cret", "s3cret"] {
            assert_eq!(shows(wrong), None, "{wrong:?}");
        }
        assert_eq!(token.access_of(&HeaderMap::new()), None);
        let shown = HeaderMap::from_iter([(header::AUTHORIZATION, token.authorization().unwrap())]);
        assert_eq!(token.access_of(&shown), Some(Access::Full));
    }

    #[test]
    fn read_token_gives_read_access() {
        let of = |full: Option<&str>, read: Option<&str>| {
            AdminToken::from_texts(full.map(Into::into), read.map(Into::into))
        };
        let token = of(Some("s3cret"), Some("l00k")).unwrap().unwrap();
        assert_eq!(
            (token.access(b"s3cret"), token.access(b"l00k")),
            (Some(Access::Full), Some(Access::Read))
        );
        assert_eq!(token.access(b"l00"), None);
        for (full, read, why) in
            [(None, Some("l00k"), "requires ICHIDO_ADMIN_TOKEN"), (Some("x"), Some("x"), "differ")]
        {
            let line = of(full, read).unwrap_err().to_string();
            assert!(line.starts_with("ICHIDO_ADMIN_READ_TOKEN") && line.contains(why), "{line}");
        }
    }

    #[test]
    fn short_token_is_refused_outside_loopback() {
        let address = "0.0.0.0:9090".parse().unwrap();
        let of = |full: &str, read: Option<&str>| {
            AdminToken::from_texts(Some(full.into()), read.map(Into::into))
                .unwrap()
                .unwrap()
                .check_length(address)
        };
        let long = "0123456789abcdef";
        assert!(of(long, None).is_ok() && of(long, Some("fedcba9876543210")).is_ok());
        for (full, read, name) in
            [(&long[1..], None, TOKEN_VARIABLE), (long, Some("l00k"), READ_TOKEN_VARIABLE)]
        {
            let line = of(full, read).unwrap_err().to_string();
            assert!(
                line.starts_with(&format!("{name}: is too short")) && line.contains("0.0.0.0:9090"),
                "{line}"
            );
            assert!(line.contains("at least 16") && !line.contains(read.unwrap_or(full)), "{line}");
        }
    }

    #[test]
    fn token_is_never_printed() {
        let token = AdminToken::from_text("s3cret").unwrap();
        assert!(!format!("{token:?} {:?}", token.authorization()).contains("s3cret"));
        for bad in ["", "two words", "naïve", "line\n"] {
            let line = AdminToken::from_text(bad).unwrap_err().to_string();
            assert!(line.starts_with(TOKEN_VARIABLE) && (bad.is_empty() || !line.contains(bad)), "{line}");
        }
    }
}
