//! Sessions of users who signed in to the console.
//!
//! A session is a random id in a cookie that no script can read and no foreign page can send. The token itself is in
//! no cookie, URL or page. Sessions are kept in memory: after a restart, users sign in again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use ichido_core::{Entropy, SystemEntropy, to_hex};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::token::{ANONYMOUS, Access};
use super::visitor::Visitor;
use crate::audit_log::Via;
use crate::browser::cookie;

/// The longest that a session lasts.
const LIFETIME: Duration = Duration::from_secs(12 * 3600);
/// The longest that an unused session lasts.
const IDLE_MAX: Duration = Duration::from_secs(2 * 3600);
/// The most sessions at once. When it is reached, the session that was idle longest is dropped.
const SESSIONS_MAX: usize = 1_000;

/// The sessions of one admin port.
#[derive(Clone, Debug)]
pub(crate) struct Sessions(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Cookies ignore ports: the name keeps two consoles on one machine apart.
    cookie: String,
    /// The CSRF token of visitors without a session.
    csrf: Arc<str>,
    /// The CSRF tokens of a proxy's users are derived from it.
    csrf_secret: String,
    by_id: Mutex<HashMap<String, Session>>,
}

#[derive(Debug)]
struct Session {
    name: Arc<str>,
    access: Access,
    csrf: Arc<str>,
    started: Instant,
    last_used: Instant,
}

impl Sessions {
    pub(crate) fn new(port: u16) -> Self {
        let cookie = format!("ichido-session-{port}");
        Self(Arc::new(Inner {
            cookie,
            csrf: secret().into(),
            csrf_secret: secret(),
            by_id: Mutex::default(),
        }))
    }

    /// A visitor of a port without a token: everyone is an operator.
    pub(crate) fn open_access(&self) -> Visitor {
        self.without_session(ANONYMOUS.into(), Some(Access::Full), Via::Open)
    }

    /// A visitor who has not signed in.
    pub(crate) fn signed_out(&self) -> Visitor {
        self.without_session(ANONYMOUS.into(), None, Via::Open)
    }

    /// A program that sent a valid token.
    pub(crate) fn token_holder(&self, name: Arc<str>, access: Access) -> Visitor {
        self.without_session(name, Some(access), Via::Token)
    }

    fn without_session(&self, name: Arc<str>, access: Option<Access>, via: Via) -> Visitor {
        Visitor { access, name, via, csrf: self.0.csrf.clone() }
    }

    /// A user of the proxy. Each has a CSRF token of their own, which no visitor without access can read.
    pub(crate) fn proxy_user(&self, name: Arc<str>, access: Access) -> Visitor {
        let csrf = Sha256::new().chain_update(&self.0.csrf_secret).chain_update(&*name).finalize();
        Visitor { access: Some(access), name, via: Via::Proxy, csrf: to_hex(&csrf).into() }
    }

    /// The visitor whose session the request belongs to.
    pub(crate) fn find(&self, headers: &HeaderMap) -> Option<Visitor> {
        self.find_at(headers, Instant::now())
    }

    fn find_at(&self, headers: &HeaderMap, now: Instant) -> Option<Visitor> {
        let id = cookie(headers, &self.0.cookie)?;
        let mut by_id = self.by_id();
        let session = by_id.get_mut(id)?;
        if !session.is_valid(now) {
            by_id.remove(id);
            return None;
        }
        session.last_used = now;
        let Session { name, access, csrf, .. } = session;
        Some(Visitor { access: Some(*access), name: name.clone(), via: Via::Session, csrf: csrf.clone() })
    }

    /// Starts a session and returns its cookie.
    pub(crate) fn sign_in(&self, name: Arc<str>, access: Access, over_tls: bool) -> Option<HeaderValue> {
        let (id, now) = (secret(), Instant::now());
        let mut by_id = self.by_id();
        by_id.retain(|_, session| session.is_valid(now));
        if by_id.len() >= SESSIONS_MAX {
            let oldest = by_id.iter().min_by_key(|(_, session)| session.last_used).map(|(id, _)| id.clone());
            oldest.and_then(|id| by_id.remove(&id));
        }
        by_id.insert(
            id.clone(),
            Session { name, access, csrf: secret().into(), started: now, last_used: now },
        );
        self.set_cookie(&id, LIFETIME, over_tls)
    }

    /// Ends the session of a request and returns the cookie that removes it.
    pub(crate) fn sign_out(&self, headers: &HeaderMap, over_tls: bool) -> Option<HeaderValue> {
        if let Some(id) = cookie(headers, &self.0.cookie) {
            self.by_id().remove(id);
        }
        self.set_cookie("", Duration::ZERO, over_tls)
    }

    fn set_cookie(&self, id: &str, lifetime: Duration, over_tls: bool) -> Option<HeaderValue> {
        let secure = if over_tls { "; Secure" } else { "" };
        let text = format!(
            "{}={id}; Path=/; Max-Age={}; HttpOnly; SameSite=Strict{secure}",
            self.0.cookie,
            lifetime.as_secs()
        );
        let mut value = HeaderValue::try_from(text).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    fn by_id(&self) -> MutexGuard<'_, HashMap<String, Session>> {
        self.0.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    fn is_valid(&self, now: Instant) -> bool {
        now.duration_since(self.started) < LIFETIME && now.duration_since(self.last_used) < IDLE_MAX
    }
}

/// 256 random bits, as hex.
fn secret() -> String {
    let draws = [SystemEntropy.draw(), SystemEntropy.draw()];
    draws.iter().flatten().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use http::header;

    use super::*;

    fn with(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::COOKIE, value.parse().unwrap())])
    }

    #[test]
    fn session_ends_when_idle_or_signed_out() {
        let sessions = Sessions::new(9090);
        let cookie = sessions.sign_in("bob".into(), Access::Read, false).unwrap();
        let text = cookie.to_str().unwrap();
        assert!(
            text.starts_with("ichido-session-9090=") && text.contains("HttpOnly; SameSite=Strict"),
            "{text}"
        );
        let headers = with(&format!("other=1; {}", text.split(';').next().unwrap()));
        let visitor = sessions.find(&headers).unwrap();
        assert_eq!(
            (visitor.access, visitor.known_name(), visitor.has_session()),
            (Some(Access::Read), Some("bob"), true)
        );
        assert!(visitor.csrf_matches(visitor.csrf()) && !visitor.csrf_matches(sessions.signed_out().csrf()));
        let later = Instant::now() + IDLE_MAX;
        assert!(sessions.find_at(&headers, later).is_none());
        let cookie = sessions.sign_in("alice".into(), Access::Full, true).unwrap();
        assert!(cookie.to_str().unwrap().ends_with("; Secure"));
        let headers = with(cookie.to_str().unwrap().split(';').next().unwrap());
        sessions.sign_out(&headers, true);
        assert!(sessions.find(&headers).is_none());
        assert!(sessions.find(&with("ichido-session-9090=")).is_none());
    }

    #[test]
    fn users_of_the_proxy_have_csrf_tokens_of_their_own() {
        let sessions = Sessions::new(1);
        let user = |name: &str| sessions.proxy_user(name.into(), Access::Full);
        assert!(user("alice").csrf_matches(user("alice").csrf()));
        assert!(!user("alice").csrf_matches(user("bob").csrf()));
        assert!(!user("alice").csrf_matches(sessions.signed_out().csrf()));
    }

    #[test]
    fn session_count_is_limited() {
        let sessions = Sessions::new(1);
        for _ in 0..SESSIONS_MAX + 5 {
            sessions.sign_in("bob".into(), Access::Read, false).unwrap();
        }
        assert_eq!(sessions.by_id().len(), SESSIONS_MAX);
    }
}
