//! Who may use the meter, and as which tenant.

use std::fmt;

use http::{HeaderMap, header};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

/// The tenant of callers without a token, on loopback.
pub const DEFAULT_TENANT: &str = "default";
/// The most bytes of a tenant's name.
const TENANT_MAX_BYTES: usize = 255;
/// A shorter token is a mistake.
const TOKEN_MIN_BYTES: usize = 4;

/// Who may use the meter.
#[derive(Clone)]
pub enum Access {
    /// Everyone on this machine, as one tenant.
    Open,
    /// Callers with a token.
    Tokens(Tokens),
}

/// Tokens and their tenants.
#[derive(Clone)]
pub struct Tokens(Vec<(Box<str>, Box<str>)>);

/// Why a list of tokens is invalid. Never contains a token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

impl Tokens {
    /// Parses `tenant=token` entries, separated by commas or newlines. A tenant may have several tokens, so that
    /// they can be rotated.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let pairs =
            text.split([',', '\n']).map(str::trim).filter(|pair| !pair.is_empty() && !pair.starts_with('#'));
        let mut tokens: Vec<(Box<str>, Box<str>)> = Vec::new();
        for (index, pair) in pairs.enumerate() {
            let invalid = |reason: &str| Error(format!("entry {} {reason}", index + 1));
            let (tenant, token) =
                pair.split_once('=').ok_or_else(|| invalid("is not of the form tenant=token"))?;
            let (tenant, token) = (tenant.trim(), token.trim());
            if tenant.is_empty() || tenant.len() > TENANT_MAX_BYTES || tenant.contains(char::is_control) {
                return Err(invalid("has no valid tenant name before the ="));
            }
            if token.len() < TOKEN_MIN_BYTES {
                return Err(invalid("has a token with fewer than 4 characters"));
            }
            if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(invalid("has a token that is not visible ASCII"));
            }
            if tokens.iter().any(|(_, known)| **known == *token) {
                return Err(invalid("has the same token as another entry"));
            }
            tokens.push((tenant.into(), token.into()));
        }
        if tokens.is_empty() { Err(Error("contains no token".to_owned())) } else { Ok(Self(tokens)) }
    }

    /// Returns the tenant of a token. Compares every token, whichever matches, so that timing reveals nothing.
    fn tenant(&self, presented: &[u8]) -> Option<&str> {
        let (mut index, mut found) = (0_u64, Choice::from(0));
        for (at, (_, token)) in (0_u64..).zip(&self.0) {
            let matches = token.as_bytes().ct_eq(presented);
            index.conditional_assign(&at, matches);
            found |= matches;
        }
        let index = usize::try_from(index).ok()?;
        if bool::from(found) { self.0.get(index).map(|(tenant, _)| &**tenant) } else { None }
    }

    /// The number of tenants.
    pub fn tenants(&self) -> usize {
        self.names().len()
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.0.iter().map(|(tenant, _)| tenant.to_string()).collect();
        names.sort();
        names.dedup();
        names
    }
}

impl Access {
    /// The names of the tenants.
    pub fn tenants(&self) -> Vec<String> {
        match self {
            Self::Open => vec![DEFAULT_TENANT.to_owned()],
            Self::Tokens(tokens) => tokens.names(),
        }
    }

    /// Returns the tenant of a request, or `None` if access is denied.
    pub fn tenant(&self, headers: &HeaderMap) -> Option<&str> {
        match self {
            Self::Open => Some(DEFAULT_TENANT),
            Self::Tokens(tokens) => {
                let (scheme, token) =
                    headers.get(header::AUTHORIZATION)?.as_bytes().split_at_checked("Bearer ".len())?;
                if scheme.eq_ignore_ascii_case(b"Bearer ") { tokens.tenant(token) } else { None }
            }
        }
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open => f.write_str("Open"),
            Self::Tokens(tokens) => tokens.fmt(f),
        }
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens({})", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_grants_access_to_its_tenant_only() {
        let access = Access::Tokens(Tokens::parse("a=s3cret, b=other-1,a=n3wer\n# comment\n").unwrap());
        let tenant = |value: &str| {
            let headers = HeaderMap::from_iter([(header::AUTHORIZATION, value.parse().unwrap())]);
            access.tenant(&headers).map(str::to_owned)
        };
        assert_eq!(tenant("Bearer s3cret").as_deref(), Some("a"));
        assert_eq!(tenant("bearer n3wer").as_deref(), Some("a"));
        assert_eq!(tenant("Bearer other-1").as_deref(), Some("b"));
        for wrong in ["", "Bearer", "Bearer ", "Bearer s3cre", "Bearer s3crett", "Basic s3cret", "s3cret"] {
            assert_eq!(tenant(wrong), None, "{wrong:?}");
        }
        assert_eq!(access.tenant(&HeaderMap::new()), None);
        assert_eq!(Access::Open.tenant(&HeaderMap::new()), Some("default"));
        assert!(!format!("{access:?}").contains("s3cret"));
    }

    #[test]
    fn invalid_entry_is_numbered_and_never_quoted() {
        for text in ["", " , ", "hunter2", "=hunter2", "a=hun", "a=hunter 2", "a=hunter2,b=hunter2"] {
            let error = Tokens::parse(text).unwrap_err().to_string();
            assert!(!error.contains("hun"), "{error}");
        }
    }
}
