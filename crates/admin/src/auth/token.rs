//! The tokens of operators. Each has a name, so that the audit log names a person. They are compared in constant time and
//! never printed.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use http::{HeaderMap, header};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;

use ichido_settings::{Invalid, Secret};

/// The environment variable of the operator token.
pub(crate) const TOKEN_VARIABLE: &str = "ICHIDO_ADMIN_TOKEN";
/// The environment variable of the read-only token.
const READ_TOKEN_VARIABLE: &str = "ICHIDO_ADMIN_READ_TOKEN";
/// The environment variable of the named tokens.
const TOKENS_VARIABLE: &str = "ICHIDO_ADMIN_TOKENS";
/// The shortest token that may protect a port outside loopback.
const LENGTH_MIN: usize = 16;
/// The longest name.
const NAME_BYTES_MAX: usize = 64;
/// The name of visitors where no token is needed.
pub(super) const ANONYMOUS: &str = "anonymous";

/// The tokens that the admin port accepts: at least one, and at least one with full access.
#[derive(Clone)]
pub struct Tokens(Arc<[Named]>);

struct Named {
    name: Arc<str>,
    access: Access,
    token: Box<str>,
    variable: &'static str,
}

/// What a visitor may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Access {
    /// Everything.
    Full,
    /// Read the console and the metrics.
    #[default]
    Read,
}

impl Tokens {
    /// The tokens of the settings, if any are set.
    pub(crate) fn check(
        full: Option<&Secret>,
        read: Option<&Secret>,
        named: Option<&Secret>,
    ) -> Result<Option<Self>, Invalid> {
        let single = |variable, name: &str, access, token: Option<&Secret>| -> Result<_, Invalid> {
            let token = token.map(|token| checked_token(variable, token.expose())).transpose()?;
            Ok(token.map(|token| Named { name: name.into(), access, token, variable }))
        };
        let mut tokens: Vec<Named> = Vec::new();
        tokens.extend(single(TOKEN_VARIABLE, "admin", Access::Full, full)?);
        tokens.extend(single(READ_TOKEN_VARIABLE, "reader", Access::Read, read)?);
        for (number, entry) in named.map_or("", Secret::expose).split(',').enumerate() {
            if named.is_some() {
                tokens.push(
                    parse_entry(entry.trim()).map_err(|why| {
                        Invalid::new(TOKENS_VARIABLE, format!("entry {} {why}", number + 1))
                    })?,
                );
            }
        }
        for (at, one) in tokens.iter().enumerate() {
            if let Some(other) =
                tokens[..at].iter().find(|other| other.name == one.name || other.token == one.token)
            {
                let what = if other.name == one.name { "the name" } else { "the token" };
                let problem = format!(
                    "{} has {what} of {} ({}); each must be different",
                    one.name, other.name, other.variable
                );
                return Err(Invalid::new(one.variable, problem));
            }
        }
        match tokens.first() {
            None => Ok(None),
            // Somebody must be able to act.
            Some(first) if tokens.iter().all(|one| one.access == Access::Read) => Err(Invalid::new(
                first.variable,
                format!(
                    "gives read access only; set {TOKEN_VARIABLE}, or a token in {TOKENS_VARIABLE} without :read, as well"
                ),
            )),
            Some(_) => Ok(Some(Self(tokens.into()))),
        }
    }

    #[cfg(test)]
    pub(crate) fn admin(token: &str) -> Self {
        let token = Secret::from(token.to_owned());
        Self::check(Some(&token), None, None).unwrap().unwrap()
    }

    /// The name and access of the token in the request's headers.
    pub(super) fn find_in(&self, headers: &HeaderMap) -> Option<(Arc<str>, Access)> {
        let shown = headers.get(header::AUTHORIZATION)?.as_bytes();
        let (scheme, token) = shown.split_at_checked("Bearer ".len())?;
        scheme.eq_ignore_ascii_case(b"Bearer ").then(|| self.find(token))?
    }

    /// The name and access of a token.
    pub(crate) fn find(&self, token: &[u8]) -> Option<(Arc<str>, Access)> {
        let mut found = None;
        // Every token is compared, so that the time does not tell which one comes close.
        for one in &*self.0 {
            if token.ct_eq(one.token.as_bytes()).into() {
                found = Some(one);
            }
        }
        found.map(|one| (one.name.clone(), one.access))
    }

    /// The names of the tokens.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.0.iter().map(|one| &*one.name).collect()
    }

    /// Refuses tokens that are short enough to be guessed over the network.
    pub(crate) fn check_length(&self, address: SocketAddr) -> Result<(), Invalid> {
        let Some(short) = self.0.iter().find(|one| one.token.len() < LENGTH_MIN) else { return Ok(()) };
        let whose = if short.variable == TOKENS_VARIABLE {
            format!("the token of {} ", short.name)
        } else {
            String::new()
        };
        let problem = format!(
            "{whose}is too short: admin listener {address} is not on loopback and requires a token of at least {LENGTH_MIN} \
             characters (for example: openssl rand -hex 16)"
        );
        Err(Invalid::new(short.variable, problem))
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tokens(…)")
    }
}

/// Reads `NAME=TOKEN` or `NAME:read=TOKEN`. An error repeats neither: what looks like a name may be a token.
fn parse_entry(entry: &str) -> Result<Named, &'static str> {
    let form = "is not of the form name=token or name:read=token";
    let (left, token) = entry.split_once('=').ok_or(form)?;
    let (name, access) = match left.split_once(':') {
        None => (left, Access::Full),
        Some((name, "full")) => (name, Access::Full),
        Some((name, "read")) => (name, Access::Read),
        Some(_) => return Err("has an unknown access; it must be read or full"),
    };
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"._@-".contains(&byte);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_valid) || name == ANONYMOUS {
        return Err("has an invalid name; use 1 to 64 letters, digits and . _ @ -, but not anonymous");
    }
    let token = checked_token(TOKENS_VARIABLE, token).map_err(
        |_| "has an invalid token; it must consist of visible ASCII characters without spaces and commas",
    )?;
    Ok(Named { name: name.into(), access, token, variable: TOKENS_VARIABLE })
}

/// A token that can be sent in a header.
pub(crate) fn checked_token(variable: &str, token: &str) -> Result<Box<str>, Invalid> {
    if token.is_empty() {
        return Err(Invalid::new(variable, "is empty; set a value or unset it"));
    }
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Invalid::new(variable, "must consist of visible ASCII characters without spaces"));
    }
    Ok(token.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(full: Option<&str>, read: Option<&str>, named: Option<&str>) -> Result<Option<Tokens>, String> {
        let secret = |text: Option<&str>| text.map(|text| Secret::from(text.to_owned()));
        let (full, read, named) = (secret(full), secret(read), secret(named));
        Tokens::check(full.as_ref(), read.as_ref(), named.as_ref()).map_err(|invalid| invalid.to_string())
    }

    fn found(tokens: &Tokens, token: &str) -> Option<(String, Access)> {
        tokens.find(token.as_bytes()).map(|(name, access)| (name.to_string(), access))
    }

    #[test]
    fn only_the_complete_token_gives_access() {
        let token = Tokens::admin("s3cret");
        let shows = |value: &str| {
            let headers = HeaderMap::from_iter([(header::AUTHORIZATION, value.parse().unwrap())]);
            token.find_in(&headers).map(|(_, access)| access)
        };
        assert_eq!(
            (shows("Bearer s3cret"), shows("bearer s3cret")),
            (Some(Access::Full), Some(Access::Full))
        );
        for wrong in ["", "Bearer", "Bearer ", "Bearer s3cre", "Bearer s3crett", "Basic s3cret", "s3cret"] {
            assert_eq!(shows(wrong), None, "{wrong:?}");
        }
        assert!(token.find_in(&HeaderMap::new()).is_none());
    }

    #[test]
    fn each_token_has_a_name_and_an_access() {
        let tokens = check(Some("s3cret"), Some("l00k"), Some("alice=a=b, bob:read=bb ,carol.d@e:full=cc"))
            .unwrap()
            .unwrap();
        for (token, name, access) in [
            ("s3cret", "admin", Access::Full),
            ("l00k", "reader", Access::Read),
            ("a=b", "alice", Access::Full),
            ("bb", "bob", Access::Read),
            ("cc", "carol.d@e", Access::Full),
        ] {
            assert_eq!(found(&tokens, token), Some((name.to_owned(), access)));
        }
        assert_eq!(found(&tokens, "l00"), None);
        assert!(check(None, None, None).unwrap().is_none());
        assert!(check(None, Some("l00k"), Some("alice=aa")).unwrap().is_some());
    }

    #[test]
    fn invalid_tokens_are_refused_without_printing_them() {
        for (full, read, named, error) in [
            (
                None,
                Some("hunter2"),
                None,
                "ICHIDO_ADMIN_READ_TOKEN: gives read access only; set ICHIDO_ADMIN_TOKEN",
            ),
            (None, None, Some("a:read=hunter2"), "ICHIDO_ADMIN_TOKENS: gives read access only"),
            (
                Some("hunter2"),
                Some("hunter2"),
                None,
                "ICHIDO_ADMIN_READ_TOKEN: reader has the token of admin",
            ),
            (
                Some("hunter2"),
                None,
                Some("a=hunter2"),
                "ICHIDO_ADMIN_TOKENS: a has the token of admin (ICHIDO_ADMIN_TOKEN)",
            ),
            (Some("x"), None, Some("admin=hunter2"), "ICHIDO_ADMIN_TOKENS: admin has the name of admin"),
            (None, None, Some("a=hunter2,b=x,a=y"), "ICHIDO_ADMIN_TOKENS: a has the name of a"),
            (None, None, Some("hunter2"), "ICHIDO_ADMIN_TOKENS: entry 1 is not of the form name=token"),
            (None, None, Some("a=x,"), "ICHIDO_ADMIN_TOKENS: entry 2 is not of the form name=token"),
            (None, None, Some("a:write=hunter2"), "ICHIDO_ADMIN_TOKENS: entry 1 has an unknown access"),
            (None, None, Some("=hunter2"), "ICHIDO_ADMIN_TOKENS: entry 1 has an invalid name"),
            (None, None, Some("hunter2 x=y"), "ICHIDO_ADMIN_TOKENS: entry 1 has an invalid name"),
            (None, None, Some("anonymous=hunter2"), "ICHIDO_ADMIN_TOKENS: entry 1 has an invalid name"),
            (None, None, Some("a="), "ICHIDO_ADMIN_TOKENS: entry 1 has an invalid token"),
            (None, None, Some("a=hunter2 x"), "ICHIDO_ADMIN_TOKENS: entry 1 has an invalid token"),
        ] {
            let line = check(full, read, named).unwrap_err();
            assert!(line.starts_with(error) && !line.contains("hunter2"), "{line}");
        }
        for bad in ["", "two words", "naïve", "line\n"] {
            let line = check(Some(bad), None, None).unwrap_err();
            assert!(line.starts_with(TOKEN_VARIABLE) && (bad.is_empty() || !line.contains(bad)), "{line}");
        }
        assert_eq!(format!("{:?}", Tokens::admin("hunter2")), "Tokens(…)");
    }

    #[test]
    fn short_token_is_refused_outside_loopback() {
        let address = "0.0.0.0:9090".parse().unwrap();
        let length = |full: &str, read: Option<&str>, named: Option<&str>| {
            check(Some(full), read, named)
                .unwrap()
                .unwrap()
                .check_length(address)
                .map_err(|invalid| invalid.to_string())
        };
        let long = "0123456789abcdef";
        assert!(length(long, None, None).is_ok() && length(long, Some("fedcba9876543210"), None).is_ok());
        for (full, read, named, error) in [
            (&long[1..], None, None, "ICHIDO_ADMIN_TOKEN: is too short"),
            (long, Some("hunter2"), None, "ICHIDO_ADMIN_READ_TOKEN: is too short"),
            (long, None, Some("alice=hunter2"), "ICHIDO_ADMIN_TOKENS: the token of alice is too short"),
        ] {
            let line = length(full, read, named).unwrap_err();
            assert!(line.starts_with(error) && line.contains("0.0.0.0:9090"), "{line}");
            assert!(
                line.contains("at least 16") && !line.contains("hunter2") && !line.contains(&long[1..]),
                "{line}"
            );
        }
    }
}
