//! Who may count, and for which tenant.

use std::fmt;

use http::{HeaderMap, header};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

/// The tenant of callers that show no token, on loopback.
pub const DEFAULT_TENANT: &str = "default";
/// The longest name of a tenant, in bytes.
const LONGEST_TENANT: usize = 255;
/// A shorter token is a mistake.
const SHORTEST_TOKEN: usize = 4;

/// Who may come in.
#[derive(Clone)]
pub enum Access {
    /// Everyone on this machine, as one tenant.
    Open,
    /// Those who show a token.
    Tokens(Tokens),
}

/// The tokens and their tenants.
#[derive(Clone)]
pub struct Tokens(Vec<(Box<str>, Box<str>)>);

/// Why tokens are refused. No token is repeated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

impl Tokens {
    /// Reads `tenant=token`, separated by commas or lines. A tenant may have several tokens, so that they can be changed.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let pairs =
            text.split([',', '\n']).map(str::trim).filter(|pair| !pair.is_empty() && !pair.starts_with('#'));
        let mut tokens: Vec<(Box<str>, Box<str>)> = Vec::new();
        for (place, pair) in pairs.enumerate() {
            let wrong = |what: &str| Error(format!("entry {} {what}", place + 1));
            let (tenant, token) =
                pair.split_once('=').ok_or_else(|| wrong("is not of the form tenant=token"))?;
            let (tenant, token) = (tenant.trim(), token.trim());
            if tenant.is_empty() || tenant.len() > LONGEST_TENANT || tenant.contains(char::is_control) {
                return Err(wrong("has no name of a tenant before the ="));
            }
            if token.len() < SHORTEST_TOKEN {
                return Err(wrong("has a token of fewer than 4 characters"));
            }
            if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(wrong("has a token with something else than visible ASCII in it"));
            }
            if tokens.iter().any(|(_, known)| **known == *token) {
                return Err(wrong("has a token that is there already: whose would it be?"));
            }
            tokens.push((tenant.into(), token.into()));
        }
        if tokens.is_empty() { Err(Error("there is no token in it".to_owned())) } else { Ok(Self(tokens)) }
    }

    /// The tenant whose token is shown. Every token is compared, whichever fits.
    fn tenant(&self, shown: &[u8]) -> Option<&str> {
        let (mut place, mut found) = (0_u64, Choice::from(0));
        for (at, (_, token)) in (0_u64..).zip(&self.0) {
            let fits = token.as_bytes().ct_eq(shown);
            place.conditional_assign(&at, fits);
            found |= fits;
        }
        let place = usize::try_from(place).ok()?;
        if bool::from(found) { self.0.get(place).map(|(tenant, _)| &**tenant) } else { None }
    }

    /// How many tenants there are.
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

    /// The tenant of a request, if it may come in.
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
    fn a_token_opens_for_its_tenant_and_no_other() {
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
    fn wrong_tokens_are_named_by_their_place_and_not_repeated() {
        for text in ["", " , ", "hunter2", "=hunter2", "a=hun", "a=hunter 2", "a=hunter2,b=hunter2"] {
            let error = Tokens::parse(text).unwrap_err().to_string();
            assert!(!error.contains("hun"), "{error}");
        }
    }
}
