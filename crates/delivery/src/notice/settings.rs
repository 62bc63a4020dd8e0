//! The settings of the channels, validated before anything starts. No error echoes a value, which may be a secret.

use std::net::IpAddr;

use lettre::message::Mailbox;
use percent_encoding::percent_decode_str;
use secrecy::{ExposeSecret, SecretString};
use url::{Host, Url};

use crate::settings::{Error, Get};

/// The configured channels.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The URL of the Slack webhook.
    pub slack: Option<SecretString>,
    /// The mail server and its mailboxes.
    pub email: Option<EmailSettings>,
}

/// A mail server and its mailboxes.
#[derive(Debug, Clone)]
pub struct EmailSettings {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) encryption: Encryption,
    pub(super) login: Option<(String, SecretString)>,
    pub(super) from: Mailbox,
    pub(super) to: Vec<Mailbox>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encryption {
    /// TLS from the first byte.
    Tls,
    /// STARTTLS; without it nothing is sent.
    StartTls,
    /// STARTTLS if the server offers it, for tests on loopback.
    IfOffered,
}

impl Settings {
    /// Reads `SLACK_WEBHOOK_URL`, `SMTP_URL`, `NOTIFY_EMAIL_TO` and `NOTIFY_EMAIL_FROM`. An empty value counts as
    /// not set.
    ///
    /// `allow_loopback` is `EXTERNAL_API_ALLOW_HTTP_LOOPBACK`: it allows connections to this machine without TLS.
    pub fn read(get: Get<'_>, allow_loopback: bool) -> Result<Self, Error> {
        let get = |name| {
            let value = get(name).map_err(Error)?;
            Ok(value.map(|value| value.trim().to_owned()).filter(|value| !value.is_empty()))
        };
        let slack = get("SLACK_WEBHOOK_URL")?.map(|url| webhook(url, allow_loopback)).transpose()?;
        let email = match (get("SMTP_URL")?, get("NOTIFY_EMAIL_TO")?, get("NOTIFY_EMAIL_FROM")?) {
            (None, None, None) => None,
            (Some(url), Some(to), Some(from)) => Some(email(&url, &to, &from, allow_loopback)?),
            (None, ..) => return Err(wrong("SMTP_URL", "is not set; e-mail needs a mail server")),
            (_, None, _) => {
                return Err(wrong("NOTIFY_EMAIL_TO", "is not set; e-mail needs a recipient"));
            }
            (.., None) => {
                return Err(wrong("NOTIFY_EMAIL_FROM", "is not set; e-mail needs a sender"));
            }
        };
        Ok(Self { slack, email })
    }
}

/// The error for an invalid setting.
pub(super) fn wrong(setting: &str, reason: &str) -> Error {
    Error(format!("{setting} {reason}"))
}

fn webhook(text: String, allow_loopback: bool) -> Result<SecretString, Error> {
    let text = SecretString::from(text);
    let wrong = |reason: &str| wrong("SLACK_WEBHOOK_URL", reason);
    let url = Url::parse(text.expose_secret()).map_err(|_| wrong("is not a URL"))?;
    let plain = url.scheme() == "http" && allow_loopback && is_loopback(&url);
    if url.scheme() != "https" && !plain {
        return Err(wrong("must start with https://"));
    }
    if url.host().is_none() || !url.username().is_empty() || url.password().is_some() {
        return Err(wrong("must have a host and no user"));
    }
    Ok(text)
}

fn email(url: &str, to: &str, from: &str, allow_loopback: bool) -> Result<EmailSettings, Error> {
    let wrong = |reason: &str| wrong("SMTP_URL", reason);
    let url = Url::parse(url).map_err(|_| wrong("is not a URL"))?;
    let host = url.host_str().filter(|host| !host.is_empty()).ok_or(wrong("must have a host"))?;
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let (encryption, port) = match url.scheme() {
        "smtps" => (Encryption::Tls, 465),
        "smtp" if allow_loopback && is_loopback(&url) => (Encryption::IfOffered, 587),
        "smtp" => (Encryption::StartTls, 587),
        _ => return Err(wrong("must start with smtps://, or with smtp:// for STARTTLS")),
    };
    if !url.path().trim_start_matches('/').is_empty()
        || url.fragment().is_some()
        || url.query_pairs().any(|pair| pair != ("tls".into(), "required".into()))
    {
        return Err(wrong("may only have a user, a password, a host and a port (TLS is always required)"));
    }
    let decoded = |text: &str| percent_decode_str(text).decode_utf8().map(String::from);
    let login = match (url.username(), url.password()) {
        ("", None) => None,
        ("", Some(_)) | (_, None) => return Err(wrong("must have both a user and a password, or neither")),
        (user, Some(password)) => Some((
            decoded(user).map_err(|_| wrong("has a user that is not UTF-8"))?,
            SecretString::from(decoded(password).map_err(|_| wrong("has a password that is not UTF-8"))?),
        )),
    };
    let port = url.port().unwrap_or(port);
    let (from, to) = (mailbox("NOTIFY_EMAIL_FROM", from)?, mailboxes(to)?);
    Ok(EmailSettings { host, port, encryption, login, from, to })
}

fn mailboxes(list: &str) -> Result<Vec<Mailbox>, Error> {
    let parts = list.split(',').map(str::trim).filter(|part| !part.is_empty());
    let mailboxes: Vec<Mailbox> =
        parts.map(|part| mailbox("NOTIFY_EMAIL_TO", part)).collect::<Result<_, _>>()?;
    match mailboxes.is_empty() {
        true => Err(wrong("NOTIFY_EMAIL_TO", "contains no address")),
        false => Ok(mailboxes),
    }
}

fn mailbox(setting: &'static str, text: &str) -> Result<Mailbox, Error> {
    text.parse().map_err(|_| wrong(setting, "is not an e-mail address such as ops@example.com"))
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => {
            // For schemes outside the URL standard, an IP address is parsed as a domain.
            name == "localhost" || name.parse().is_ok_and(|address: IpAddr| address.is_loopback())
        }
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}
