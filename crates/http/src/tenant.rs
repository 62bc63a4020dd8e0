//! Tenants and callers. Two callers may choose the same key; neither may see the response of the other.
//!
//! Most rules name the tenant, which becomes part of the scope: the same key of a different tenant is a different key.
//! [`Tenant::Auto`] does not: the claim records the credentials of its caller instead, and refuses all others. The value of
//! a header or cookie is hashed before it is stored, because it is often a secret.

use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;

use http::header::{AUTHORIZATION, COOKIE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue};
use ichido_core::{Caller, Index, to_hex};
use sha2::{Digest, Sha256};

/// Headers that identify callers in many services. A caller that sends one must not share keys with everyone.
static CREDENTIALS: [HeaderName; 6] = [
    AUTHORIZATION,
    HeaderName::from_static("x-api-key"),
    HeaderName::from_static("api-key"),
    HeaderName::from_static("x-auth-token"),
    HeaderName::from_static("x-access-token"),
    COOKIE,
];

/// How the tenant of a request is determined.
#[derive(Clone, Debug)]
pub enum Tenant {
    /// All callers share one key space, and a key belongs to the credentials that used it first. A request with different
    /// credentials is refused: it neither runs nor gets the response.
    Auto,
    /// All callers share one key space, and each gets the stored responses of the others.
    None,
    /// The hash of a header.
    Header(HeaderName),
    /// The hash of a cookie.
    Cookie(String),
    /// Custom code, for example one that reads a verified token.
    Custom(Arc<dyn TenantResolver>),
}

/// Determines the tenant of a request.
pub trait TenantResolver: Send + Sync + fmt::Debug {
    /// The tenant. `None` if the request does not identify one.
    fn tenant(&self, parts: &Parts) -> Result<Option<String>, TenantError>;

    /// A description for the published rules.
    fn describe(&self) -> String;

    /// A warning for operators about this rule.
    fn caution(&self) -> Option<&'static str> {
        None
    }
}

/// Why the tenant of a request is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TenantError {
    /// The request carries credentials in this header, but nothing that identifies the tenant. One user could get the
    /// response of another.
    #[error(
        "the request has the header {0}, but nothing that identifies the tenant; the setting `tenant` must name what does"
    )]
    Unknown(HeaderName),
    /// The credentials could not be verified; the text says why.
    #[error("{0}")]
    Unverified(String),
}

impl Tenant {
    /// The tenant of a request; empty if it has none.
    pub(crate) fn of(&self, parts: &Parts) -> Result<String, TenantError> {
        let tenant = match self {
            Self::Auto | Self::None => return Ok(String::new()),
            Self::Header(name) => {
                hashed(name.as_str(), parts.headers.get_all(name).iter().map(|value| value.as_bytes()))
            }
            Self::Cookie(name) => hashed(name, cookies(&parts.headers, name)),
            Self::Custom(custom) => custom.tenant(parts)?,
        };
        if let Some(tenant) = tenant {
            return Ok(tenant);
        }
        match CREDENTIALS.iter().find(|name| parts.headers.contains_key(*name)) {
            Some(name) => Err(TenantError::Unknown(name.clone())),
            None => Ok(String::new()),
        }
    }

    /// The caller to record in the claim, if the rule compares callers.
    pub(crate) fn caller(&self, index: Index, headers: &HeaderMap) -> Option<Caller> {
        match self {
            Self::Auto => Some(Caller::of(index, credentials(headers))),
            Self::None | Self::Header(_) | Self::Cookie(_) | Self::Custom(_) => None,
        }
    }

    /// What counts as one tenant for the concurrency limits, hashed; `None` if the request has none.
    pub(crate) fn share(&self, tenant: &str, headers: &HeaderMap, hasher: &impl BuildHasher) -> Option<u64> {
        match self {
            Self::Auto => {
                let credentials = credentials(headers);
                (!credentials.is_empty()).then(|| hasher.hash_one(credentials))
            }
            Self::None | Self::Header(_) | Self::Cookie(_) | Self::Custom(_) => {
                (!tenant.is_empty()).then(|| hasher.hash_one(tenant))
            }
        }
    }

    /// A description for the published rules.
    pub fn describe(&self) -> String {
        match self {
            Self::Auto => "a key belongs to the credentials that used it first".to_owned(),
            Self::None => "keys are shared by all callers".to_owned(),
            Self::Header(name) => format!("keys are separate for each value of the header {name}"),
            Self::Cookie(name) => format!("keys are separate for each value of the cookie {name}"),
            Self::Custom(custom) => custom.describe(),
        }
    }

    /// A warning for operators about this rule.
    pub fn caution(&self) -> Option<&'static str> {
        match self {
            Self::Auto => Some(
                "callers who can guess each other's keys can block each other, and a caller whose credentials change is \
                 refused; set `tenant` to what identifies a caller",
            ),
            Self::None => Some("every caller can get the stored responses of all others"),
            Self::Header(_) | Self::Cookie(_) => None,
            Self::Custom(custom) => custom.caution(),
        }
    }
}

/// Names and values of the credentials of a request. Cookies count as a set: their order has no meaning, and HTTP/2 may
/// split them over several lines.
fn credentials(headers: &HeaderMap) -> Vec<&[u8]> {
    let mut found: Vec<(usize, &[u8])> = Vec::new();
    for (name, value) in headers {
        let Some(rank) = CREDENTIALS.iter().position(|known| known == name) else { continue };
        match *name == COOKIE {
            true => {
                found.extend(cookie_pairs(value).filter(|pair| !pair.is_empty()).map(|pair| (rank, pair)))
            }
            false => found.push((rank, value.as_bytes())),
        }
    }
    found.sort_unstable();
    found.into_iter().flat_map(|(rank, value)| [CREDENTIALS[rank].as_str().as_bytes(), value]).collect()
}

fn cookie_pairs(line: &HeaderValue) -> impl Iterator<Item = &[u8]> {
    line.as_bytes().split(|byte| *byte == b';').map(<[u8]>::trim_ascii)
}

fn cookies<'a>(headers: &'a HeaderMap, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    let pairs = headers.get_all(COOKIE).iter().flat_map(cookie_pairs);
    pairs.filter_map(move |pair| pair.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

fn hashed<'a>(name: &str, values: impl Iterator<Item = &'a [u8]>) -> Option<String> {
    let mut hash = Sha256::new();
    let mut has_value = false;
    for value in values {
        has_value = true;
        hash.update((value.len() as u64).to_be_bytes());
        hash.update(value);
    }
    has_value.then(|| [name, ":", &to_hex(&hash.finalize()[..16])].concat())
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn of(tenant: &Tenant, headers: &[(&str, &str)]) -> Result<String, TenantError> {
        let mut request = Request::builder();
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        tenant.of(&request.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn a_secret_is_stored_as_its_hash() {
        let tenant = Tenant::Header(HeaderName::from_static("authorization"));
        let one = of(&tenant, &[("authorization", "Bearer hunter2")]).unwrap();
        assert!(one.starts_with("authorization:") && !one.contains("hunter2"), "{one}");
        assert_eq!(one, of(&tenant, &[("authorization", "Bearer hunter2"), ("cookie", "a=b")]).unwrap());
        assert_ne!(one, of(&tenant, &[("authorization", "Bearer hunter3")]).unwrap());
        assert_eq!(of(&tenant, &[]).unwrap(), "");
    }

    #[test]
    fn cookies_without_a_tenant_are_refused_unless_the_rules_have_no_tenant() {
        let header = Tenant::Header(HeaderName::from_static("authorization"));
        assert_eq!(of(&header, &[("cookie", "sid=1")]), Err(TenantError::Unknown(COOKIE)));
        assert_eq!(of(&Tenant::None, &[("cookie", "sid=1")]).unwrap(), "");
        let cookie = Tenant::Cookie("sid".to_owned());
        let one = of(&cookie, &[("cookie", "theme=dark; sid=1")]).unwrap();
        assert_eq!(one, of(&cookie, &[("cookie", "sid=1; theme=light")]).unwrap());
        assert_ne!(one, of(&cookie, &[("cookie", "sid=2")]).unwrap());
        assert_eq!(of(&cookie, &[("cookie", "xsid=1")]), Err(TenantError::Unknown(COOKIE)));
    }

    #[test]
    fn callers_are_identified_by_their_credentials_only() {
        let caller = |headers: &[(&'static str, &str)]| {
            let map = headers.iter().map(|(name, value)| {
                (HeaderName::from_static(name), http::HeaderValue::from_str(value).unwrap())
            });
            Tenant::Auto.caller(Index::from_bytes([7; 32]), &map.collect())
        };
        let (nobody, alice) = (caller(&[]), caller(&[("authorization", "Bearer a")]));
        assert!(nobody.is_some(), "a request without credentials has a caller too");
        assert_eq!(nobody, caller(&[("user-agent", "x"), ("cookie", "")]));
        assert_eq!(alice, caller(&[("x-request-id", "2"), ("authorization", "Bearer a")]));
        assert_ne!(alice, caller(&[("authorization", "Bearer a"), ("cookie", "sid=1")]));
        for name in ["authorization", "x-api-key", "api-key", "x-auth-token", "x-access-token", "cookie"] {
            let (one, two) = (caller(&[(name, "1")]), caller(&[(name, "2")]));
            assert!(one != two && one != nobody && one == caller(&[(name, "1")]), "{name}");
        }
        assert_ne!(caller(&[("x-api-key", "1")]), caller(&[("api-key", "1")]));
        let split = caller(&[("cookie", "b=2"), ("cookie", "a=1")]);
        assert_eq!(split, caller(&[("cookie", "a=1; b=2")]), "the order of cookies has no meaning");
        let other = Tenant::Header(HeaderName::from_static("x-account"));
        assert_eq!(other.caller(Index::from_bytes([7; 32]), &HeaderMap::new()), None);
    }

    #[test]
    fn a_missing_header_is_refused_even_with_other_credentials() {
        let account = Tenant::Header(HeaderName::from_static("x-account"));
        let refused = of(&account, &[("authorization", "Bearer a")]);
        assert_eq!(refused, Err(TenantError::Unknown(AUTHORIZATION)));
        assert_eq!(of(&Tenant::Auto, &[("authorization", "Bearer a"), ("cookie", "sid=1")]).unwrap(), "");
    }

    #[test]
    fn credentials_in_other_headers_are_refused_unless_they_identify_the_tenant() {
        let header = Tenant::Header(HeaderName::from_static("authorization"));
        for name in ["x-api-key", "api-key", "x-auth-token"] {
            let refused = of(&header, &[(name, "hunter2")]).unwrap_err().to_string();
            assert!(refused.contains(name) && refused.contains("`tenant`"), "{refused}");
            assert!(!refused.contains("hunter2"), "{refused}");
            let both = of(&header, &[(name, "hunter2"), ("authorization", "Bearer a")]).unwrap();
            assert!(both.starts_with("authorization:"), "{both}");
            assert_eq!(of(&Tenant::None, &[(name, "hunter2")]).unwrap(), "");
            let itself = Tenant::Header(HeaderName::from_static(name));
            let one = of(&itself, &[(name, "hunter2")]).unwrap();
            assert_ne!(one, of(&itself, &[(name, "hunter3")]).unwrap());
        }
    }
}
