//! Users that an authenticating proxy vouches for, in a header.
//!
//! The header is honoured from the addresses of the proxy only. The proxy must set or remove it on every request; whoever
//! else can send from these addresses can claim to be anyone.

use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, header};

use super::token::Access;
use crate::audit_log::is_name;
use ichido_serve::TrustedProxies;
use ichido_settings::Invalid;

const HEADER_SETTING: &str = "admin.trusted_user_header";
const PROXIES_SETTING: &str = "admin.trusted_proxies";
/// Headers that mean something else to this port.
const RESERVED: [HeaderName; 4] = [header::AUTHORIZATION, header::COOKIE, header::HOST, header::ORIGIN];
/// The host that the client asked the proxy for.
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// The header of a proxy, and who may send it.
#[derive(Clone, Debug)]
pub struct TrustedUser {
    header: HeaderName,
    proxies: TrustedProxies,
    access: Access,
}

impl TrustedUser {
    /// Checks the settings. Header and proxies are needed together.
    pub(crate) fn check(
        header: Option<&str>,
        proxies: &[String],
        access: Access,
    ) -> Result<Option<Self>, Invalid> {
        let Some(header) = header.filter(|header| !header.is_empty()) else {
            return match proxies.is_empty() {
                true => Ok(None),
                false => Err(Invalid::new(PROXIES_SETTING, format!("is set without {HEADER_SETTING}"))),
            };
        };
        if proxies.is_empty() {
            let problem = format!("requires {PROXIES_SETTING}: without it, anyone could send the header");
            return Err(Invalid::new(HEADER_SETTING, problem));
        }
        let header = header.parse::<HeaderName>().ok().filter(|header| !RESERVED.contains(header));
        let header = header.ok_or_else(|| {
            Invalid::new(HEADER_SETTING, "must be the name of a header of its own, such as X-Forwarded-User")
        })?;
        let proxies = TrustedProxies::check(PROXIES_SETTING, proxies)?;
        Ok(Some(Self { header, proxies, access }))
    }

    /// The user whom the proxy names, if the request comes from the proxy and names one.
    pub(super) fn find(&self, headers: &HeaderMap, peer: IpAddr) -> Option<(Arc<str>, Access)> {
        if !self.proxies.contains(peer) {
            return None;
        }
        let mut values = headers.get_all(&self.header).iter();
        // Two values: one of them may be the client's.
        let (value, None) = (values.next()?, values.next()) else { return None };
        let name = std::str::from_utf8(value.as_bytes()).ok()?.trim();
        is_name(name).then(|| (name.into(), self.access))
    }

    /// The host name of the pages, if the proxy tells it.
    pub(super) fn forwarded_host<'a>(&self, headers: &'a HeaderMap, peer: IpAddr) -> Option<&'a str> {
        headers.get(FORWARDED_HOST).filter(|_| self.proxies.contains(peer))?.to_str().ok()
    }

    /// The header.
    pub(crate) fn header(&self) -> &HeaderName {
        &self.header
    }

    /// Removes the header, whoever sent it.
    pub(crate) fn strip(&self, headers: &mut HeaderMap) {
        headers.remove(&self.header);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(header: &str, proxies: &[&str]) -> Result<Option<TrustedUser>, String> {
        let proxies: Vec<_> = proxies.iter().map(|&text| text.to_owned()).collect();
        TrustedUser::check(Some(header), &proxies, Access::Read).map_err(|invalid| invalid.to_string())
    }

    #[test]
    fn only_the_proxy_names_a_user() {
        let trusted = check("X-Forwarded-User", &["10.0.0.0/8", "::1"]).unwrap().unwrap();
        let user = |values: &[&[u8]], peer: &str| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append("x-forwarded-user", http::HeaderValue::from_bytes(value).unwrap());
            }
            trusted.find(&headers, peer.parse().unwrap()).map(|(name, access)| (name.to_string(), access))
        };
        let alice = Some(("alice@example.com".to_owned(), Access::Read));
        for peer in ["10.1.2.3", "::1", "::ffff:10.1.2.3"] {
            assert_eq!(user(&[b"alice@example.com"], peer), alice, "{peer}");
        }
        for peer in ["127.0.0.1", "192.0.2.1", "::2"] {
            assert_eq!(user(&[b"alice@example.com"], peer), None, "{peer}");
        }
        let cases: [&[&[u8]]; 5] = [&[], &[b""], &[b"a", b"b"], &[b"\xff"], &["a\u{202e}b".as_bytes()]];
        for values in cases {
            assert_eq!(user(values, "10.1.2.3"), None, "{values:?}");
        }
    }

    #[test]
    fn settings_are_checked_together() {
        for (header, proxies, error) in [
            ("X-User", &[][..], "admin.trusted_user_header: requires admin.trusted_proxies"),
            ("", &["::1"], "admin.trusted_proxies: is set without admin.trusted_user_header"),
            ("not a header", &["::1"], "admin.trusted_user_header: must be the name of a header"),
            ("Authorization", &["::1"], "admin.trusted_user_header: must be the name of a header"),
            ("X-User", &["proxy.example"], "admin.trusted_proxies: contains \"proxy.example\""),
        ] {
            let line = check(header, proxies).unwrap_err();
            assert!(line.starts_with(error), "{line}");
        }
        assert!(check("", &[]).unwrap().is_none());
    }
}
