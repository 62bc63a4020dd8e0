//! Who looks at the console: sessions of people who showed a token, and the word that each form must bring back.
//!
//! A session is a random number in a cookie that no script can read and no foreign page can send; the token itself is in
//! no cookie, address or page. Sessions live in memory: a new process asks for the token again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use ichido_core::{Entropy, SystemEntropy};
use tokio::time::Instant;

use super::token::Access;
use super::visitor::Visitor;
use crate::browser::cookie;

/// How long a session lasts, however busy it is.
const LIFE: Duration = Duration::from_secs(12 * 3600);
/// How long a session lasts that nobody uses.
const IDLE: Duration = Duration::from_secs(2 * 3600);
/// Sessions at once; the one that was idle longest makes room.
const MOST: usize = 1_000;

/// The sessions of one admin port.
#[derive(Clone, Debug)]
pub struct Sessions(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Cookies know no ports: two consoles on one machine must not take each other's.
    cookie: String,
    /// The word for forms of those who have no session.
    csrf: Arc<str>,
    open: Mutex<HashMap<String, Session>>,
}

#[derive(Debug)]
struct Session {
    access: Access,
    csrf: Arc<str>,
    began: Instant,
    used: Instant,
}

impl Sessions {
    pub fn new(port: u16) -> Self {
        let cookie = format!("ichido-session-{port}");
        Self(Arc::new(Inner { cookie, csrf: secret().into(), open: Mutex::default() }))
    }

    /// Where no token is demanded, everyone who reaches the port is an operator.
    pub fn anyone(&self) -> Visitor {
        Visitor { access: Some(Access::Full), signed_in: false, csrf: self.0.csrf.clone() }
    }

    /// Someone who has shown nothing.
    pub fn nobody(&self) -> Visitor {
        Visitor { access: None, signed_in: false, csrf: self.0.csrf.clone() }
    }

    /// A program that showed a token.
    pub fn program(&self, access: Access) -> Visitor {
        Visitor { access: Some(access), signed_in: false, csrf: self.0.csrf.clone() }
    }

    /// Whose session a request belongs to.
    pub fn visitor(&self, headers: &HeaderMap) -> Option<Visitor> {
        self.visitor_at(headers, Instant::now())
    }

    fn visitor_at(&self, headers: &HeaderMap, now: Instant) -> Option<Visitor> {
        let id = cookie(headers, &self.0.cookie)?;
        let mut open = self.open();
        let session = open.get_mut(id)?;
        if !session.is_good(now) {
            open.remove(id);
            return None;
        }
        session.used = now;
        Some(Visitor { access: Some(session.access), signed_in: true, csrf: session.csrf.clone() })
    }

    /// Begins a session: the cookie to set.
    pub(crate) fn begin(&self, access: Access, over_tls: bool) -> Option<HeaderValue> {
        let (id, now) = (secret(), Instant::now());
        let mut open = self.open();
        open.retain(|_, session| session.is_good(now));
        if open.len() >= MOST {
            let oldest = open.iter().min_by_key(|(_, session)| session.used).map(|(id, _)| id.clone());
            oldest.and_then(|id| open.remove(&id));
        }
        open.insert(id.clone(), Session { access, csrf: secret().into(), began: now, used: now });
        self.set_cookie(&id, LIFE, over_tls)
    }

    /// Ends the session of a request: the cookie that takes it back.
    pub(crate) fn end(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        if let Some(id) = cookie(headers, &self.0.cookie) {
            self.open().remove(id);
        }
        self.set_cookie("", Duration::ZERO, false)
    }

    fn set_cookie(&self, id: &str, life: Duration, over_tls: bool) -> Option<HeaderValue> {
        let secure = if over_tls { "; Secure" } else { "" };
        let text = format!(
            "{}={id}; Path=/; Max-Age={}; HttpOnly; SameSite=Strict{secure}",
            self.0.cookie,
            life.as_secs()
        );
        let mut value = HeaderValue::try_from(text).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    fn open(&self) -> MutexGuard<'_, HashMap<String, Session>> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    fn is_good(&self, now: Instant) -> bool {
        now.duration_since(self.began) < LIFE && now.duration_since(self.used) < IDLE
    }
}

/// 256 bits that nobody guesses.
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
    fn a_session_ends_when_it_is_left_alone_or_ended() {
        let sessions = Sessions::new(9090);
        let cookie = sessions.begin(Access::Read, false).unwrap();
        let text = cookie.to_str().unwrap();
        assert!(
            text.starts_with("ichido-session-9090=") && text.contains("HttpOnly; SameSite=Strict"),
            "{text}"
        );
        let headers = with(&format!("other=1; {}", text.split(';').next().unwrap()));
        let visitor = sessions.visitor(&headers).unwrap();
        assert_eq!((visitor.access, visitor.signed_in), (Some(Access::Read), true));
        assert!(visitor.is_own_form(visitor.csrf()) && !visitor.is_own_form(sessions.nobody().csrf()));
        let later = Instant::now() + IDLE;
        assert!(sessions.visitor_at(&headers, later).is_none());
        let cookie = sessions.begin(Access::Full, true).unwrap();
        assert!(cookie.to_str().unwrap().ends_with("; Secure"));
        let headers = with(cookie.to_str().unwrap().split(';').next().unwrap());
        sessions.end(&headers);
        assert!(sessions.visitor(&headers).is_none());
        assert!(sessions.visitor(&with("ichido-session-9090=")).is_none());
    }

    #[test]
    fn sessions_are_bounded() {
        let sessions = Sessions::new(1);
        for _ in 0..MOST + 5 {
            sessions.begin(Access::Read, false).unwrap();
        }
        assert_eq!(sessions.open().len(), MOST);
    }
}
