//! The operator's token: compared in constant time, shown nowhere.

use std::fmt;

use http::{HeaderMap, HeaderValue, header};
use subtle::ConstantTimeEq;

use crate::exit::Failure;

/// The variable that holds the token.
pub(crate) const TOKEN_VARIABLE: &str = "ICHIDO_ADMIN_TOKEN";

/// What an operator must show.
#[derive(Clone)]
pub(crate) struct AdminToken(Box<str>);

impl AdminToken {
    /// The token of the environment, if one is set.
    pub(crate) fn from_env() -> Result<Option<Self>, Failure> {
        match std::env::var(TOKEN_VARIABLE) {
            Ok(token) => Self::from_text(&token).map(Some),
            Err(std::env::VarError::NotPresent) => Ok(None),
            Err(std::env::VarError::NotUnicode(_)) => Err(bad("is not valid UTF-8")),
        }
    }

    pub(super) fn from_text(token: &str) -> Result<Self, Failure> {
        if token.is_empty() {
            return Err(bad("is empty; unset it, or give it a value"));
        }
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(bad("must be visible ASCII without spaces"));
        }
        Ok(Self(token.into()))
    }

    /// Whether a request shows this token.
    pub(super) fn is_shown(&self, headers: &HeaderMap) -> bool {
        let Some(shown) = headers.get(header::AUTHORIZATION) else { return false };
        let Some((scheme, token)) = shown.as_bytes().split_at_checked("Bearer ".len()) else { return false };
        scheme.eq_ignore_ascii_case(b"Bearer ") && token.ct_eq(self.0.as_bytes()).into()
    }

    /// How a request shows this token.
    pub(crate) fn authorization(&self) -> Option<HeaderValue> {
        let mut value = HeaderValue::try_from(format!("Bearer {}", self.0)).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdminToken(…)")
    }
}

fn bad(what: &str) -> Failure {
    Failure::usage(format!("{TOKEN_VARIABLE} {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_opens() {
        let token = AdminToken::from_text("s3cret").unwrap();
        let shows = |value: &str| {
            token.is_shown(&HeaderMap::from_iter([(header::AUTHORIZATION, value.parse().unwrap())]))
        };
        assert!(shows("Bearer s3cret") && shows("bearer s3cret"));
        for wrong in ["", "Bearer", "Bearer ", "Bearer s3cre", "Bearer s3crett", "Basic s3cret", "s3cret"] {
            assert!(!shows(wrong), "{wrong:?}");
        }
        assert!(!token.is_shown(&HeaderMap::new()));
        assert!(
            token.is_shown(&HeaderMap::from_iter([(header::AUTHORIZATION, token.authorization().unwrap())]))
        );
    }

    #[test]
    fn a_token_is_not_printed() {
        let token = AdminToken::from_text("s3cret").unwrap();
        assert!(!format!("{token:?} {:?}", token.authorization()).contains("s3cret"));
        for bad in ["", "two words", "naïve", "line\n"] {
            let line = AdminToken::from_text(bad).unwrap_err().to_string();
            assert!(line.starts_with(TOKEN_VARIABLE) && (bad.is_empty() || !line.contains(bad)), "{line}");
        }
    }
}
