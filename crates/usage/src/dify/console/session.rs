//! How we authenticate: with an admin key, with the tokens of the older login, or with the cookies of the newer one.
//!
//! Cookies are returned under exactly the names they came with: over https these begin with `__Host-`. Every
//! request carries the CSRF token, including those that only read. None of this is ever printed.

use std::fmt;

use http::header::{AUTHORIZATION, COOKIE, HeaderMap, HeaderValue, SET_COOKIE};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

/// The credentials of a session.
pub(super) enum Session {
    /// The admin key of the installation.
    AdminKey(SecretString),
    /// Dify up to 1.9.1.
    Tokens { access: SecretString, refresh: SecretString },
    /// Dify from 1.9.2.
    Cookies(Vec<(String, SecretString)>),
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AdminKey(_) => "AdminKey(…)",
            Self::Tokens { .. } => "Tokens(…)",
            Self::Cookies(_) => "Cookies(…)",
        })
    }
}

#[derive(Deserialize)]
struct LoginResponse {
    data: Option<Tokens>,
}

#[derive(Deserialize)]
struct Tokens {
    access_token: String,
    refresh_token: String,
}

impl Session {
    /// Takes the credentials from the response to a login or refresh, if it has any.
    pub(super) fn from_response(headers: &HeaderMap, body: &[u8]) -> Option<Self> {
        let cookies: Vec<(String, SecretString)> =
            headers.get_all(SET_COOKIE).iter().filter_map(cookie).collect();
        if cookies.iter().any(|(name, _)| is_named(name, "access_token")) {
            return Some(Self::Cookies(cookies));
        }
        let tokens = serde_json::from_slice::<LoginResponse>(body).ok()?.data?;
        Some(Self::Tokens { access: tokens.access_token.into(), refresh: tokens.refresh_token.into() })
    }

    /// Merges in the credentials from a refresh.
    pub(super) fn merge(self, new: Self) -> Self {
        match (self, new) {
            (Self::Cookies(mut old), Self::Cookies(new)) => {
                old.retain(|(name, _)| !new.iter().any(|(other, _)| other == name));
                old.extend(new);
                Self::Cookies(old)
            }
            (_, new) => new,
        }
    }

    /// The headers of a request.
    pub(super) fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let mut put = |name: http::HeaderName, value: String| {
            if let Ok(mut value) = HeaderValue::from_str(&value) {
                value.set_sensitive(true);
                headers.insert(name, value);
            }
        };
        match self {
            Self::AdminKey(key) | Self::Tokens { access: key, .. } => {
                put(AUTHORIZATION, format!("Bearer {}", key.expose_secret()));
            }
            Self::Cookies(cookies) => {
                let pairs: Vec<String> =
                    cookies.iter().map(|(name, value)| format!("{name}={}", value.expose_secret())).collect();
                put(COOKIE, pairs.join("; "));
                if let Some((_, csrf)) = cookies.iter().find(|(name, _)| is_named(name, "csrf_token")) {
                    put(http::HeaderName::from_static("x-csrf-token"), csrf.expose_secret().to_owned());
                }
            }
        }
        headers
    }

    /// The body of a refresh request, or `None` if the session cannot be refreshed.
    pub(super) fn refresh_body(&self) -> Option<String> {
        match self {
            Self::AdminKey(_) => None,
            Self::Tokens { refresh, .. } => {
                Some(serde_json::json!({ "refresh_token": refresh.expose_secret() }).to_string())
            }
            Self::Cookies(cookies) => {
                cookies.iter().any(|(name, _)| is_named(name, "refresh_token")).then(|| "{}".to_owned())
            }
        }
    }
}

/// Whether a cookie has this name, with or without the https prefix.
fn is_named(cookie: &str, name: &str) -> bool {
    cookie.strip_prefix("__Host-").unwrap_or(cookie) == name
}

fn cookie(value: &HeaderValue) -> Option<(String, SecretString)> {
    let pair = value.to_str().ok()?.split(';').next()?;
    let (name, value) = pair.split_once('=')?;
    // A cookie that is being deleted has no value.
    (!value.is_empty()).then(|| (name.trim().to_owned(), SecretString::from(value.trim().to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set_cookies(cookies: &[&str]) -> HeaderMap {
        cookies.iter().map(|cookie| (SET_COOKIE, HeaderValue::from_str(cookie).unwrap())).collect()
    }

    #[test]
    fn cookies_keep_their_names() {
        for prefix in ["", "__Host-"] {
            let set = ["access_token=a; Path=/; HttpOnly", "csrf_token=c; Path=/", "refresh_token=r; Path=/"];
            let set: Vec<String> = set.iter().map(|cookie| format!("{prefix}{cookie}")).collect();
            let set: Vec<&str> = set.iter().map(String::as_str).collect();
            let session = Session::from_response(&set_cookies(&set), b"{\"result\":\"success\"}").unwrap();
            let headers = session.headers();
            assert_eq!(headers["x-csrf-token"], "c");
            assert_eq!(
                headers[COOKIE],
                format!("{prefix}access_token=a; {prefix}csrf_token=c; {prefix}refresh_token=r").as_str()
            );
            assert!(headers[COOKIE].is_sensitive());
            assert_eq!(format!("{session:?}"), "Cookies(…)");
        }
    }

    #[test]
    fn older_login_returns_tokens_and_refusal_returns_nothing() {
        let body = br#"{"result":"success","data":{"access_token":"a","refresh_token":"r"}}"#;
        let session = Session::from_response(&HeaderMap::new(), body).unwrap();
        assert_eq!(session.headers()[AUTHORIZATION], "Bearer a");
        assert!(session.refresh_body().unwrap().contains("\"r\""));
        assert!(Session::from_response(&HeaderMap::new(), br#"{"result":"fail","data":"no"}"#).is_none());
        assert!(Session::from_response(&set_cookies(&["access_token=; Max-Age=0"]), b"{}").is_none());
    }

    #[test]
    fn refresh_replaces_only_what_it_returns() {
        let old =
            Session::from_response(&set_cookies(&["access_token=a", "csrf_token=c", "refresh_token=r"]), b"")
                .unwrap();
        let new = Session::from_response(&set_cookies(&["access_token=b", "csrf_token=d"]), b"").unwrap();
        let headers = old.merge(new).headers();
        assert_eq!(headers[COOKIE], "refresh_token=r; access_token=b; csrf_token=d");
        assert_eq!(headers["x-csrf-token"], "d");
    }
}
