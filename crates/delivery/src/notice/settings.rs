//! The settings of the channels, validated before anything starts. No error echoes a value, which may be a secret.

use std::net::IpAddr;

use ichido_settings::{Invalid, Secret};
use lettre::message::Mailbox;
use percent_encoding::percent_decode_str;
use secrecy::{ExposeSecret, SecretString};
use url::{Host, Url};

use crate::invalid::invalid;
use crate::redact::SECRET_BYTES_MIN;
use crate::settings::{Raw, given};

/// The configured channels.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The URL of the Slack webhook.
    pub slack: Option<SecretString>,
    /// The mail server and its mailboxes.
    pub email: Option<EmailSettings>,
    /// The webhook that gets JSON.
    pub webhook: Option<WebhookSettings>,
    /// The program that gets JSON.
    pub command: Option<CommandSettings>,
}

/// A webhook that gets JSON.
#[derive(Debug, Clone)]
pub struct WebhookSettings {
    pub(super) url: SecretString,
    /// Scheme, host and port: the rest may be a secret.
    pub(super) origin: String,
    pub(super) token: Option<SecretString>,
}

/// A program and its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandSettings {
    pub(super) program: String,
    pub(super) args: Vec<String>,
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
    /// Checks the channels of the section. `allow_http_loopback` also allows mail to this machine without TLS.
    pub fn check(raw: &Raw) -> Result<Self, Invalid> {
        let secret = |secret: &Option<Secret>| {
            let text = secret.as_ref().map(|secret| secret.expose().trim().to_owned());
            text.filter(|text| !text.is_empty())
        };
        let loopback = raw.allow_http_loopback;
        let slack = secret(&raw.slack_webhook_url)
            .map(|url| url_of("slack_webhook_url", url, loopback))
            .transpose()?;
        let slack = slack.map(|(url, _)| url);
        let (to, from) = (given(Some(&raw.notify_email_to)), given(Some(&raw.notify_email_from)));
        let email = match (secret(&raw.smtp_url), to, from) {
            (None, None, None) => None,
            (Some(url), Some(to), Some(from)) => Some(email(&url, to, from, loopback)?),
            (None, ..) => {
                return Err(invalid("smtp_url", "is not set (SMTP_URL); e-mail needs a mail server"));
            }
            (_, None, _) => {
                return Err(invalid(
                    "notify_email_to",
                    "is not set (NOTIFY_EMAIL_TO); e-mail needs a recipient",
                ));
            }
            (.., None) => {
                return Err(invalid(
                    "notify_email_from",
                    "is not set (NOTIFY_EMAIL_FROM); e-mail needs a sender",
                ));
            }
        };
        let token = secret(&raw.notify_webhook_token);
        let webhook = webhook(secret(&raw.notify_webhook_url), token, loopback)?;
        Ok(Self { slack, email, webhook, command: command(&raw.notify_command)? })
    }
}

fn webhook(
    url: Option<String>,
    token: Option<String>,
    allow_loopback: bool,
) -> Result<Option<WebhookSettings>, Invalid> {
    if let Some(token) = &token {
        let wrong = |reason: &str| Err(invalid("notify_webhook_token", reason));
        match () {
            () if url.is_none() => return wrong("is set, but NOTIFY_WEBHOOK_URL is not"),
            () if token.len() < SECRET_BYTES_MIN => return wrong("must have at least 4 characters"),
            () if !token.bytes().all(|byte| byte.is_ascii_graphic()) => {
                return wrong("must be visible ASCII");
            }
            () => {}
        }
    }
    let Some(url) = url else { return Ok(None) };
    let (url, origin) = url_of("notify_webhook_url", url, allow_loopback)?;
    Ok(Some(WebhookSettings { url, origin, token: token.map(SecretString::from) }))
}

/// A program that is named by a path must exist, so that a mistake is noticed before the first notice.
fn command(text: &str) -> Result<Option<CommandSettings>, Invalid> {
    let mut words = text.split_whitespace().map(str::to_owned);
    let Some(program) = words.next() else { return Ok(None) };
    if program.contains('/') && !std::path::Path::new(&program).is_file() {
        let problem =
            format!("{program} is not a file; set the path of a program, and its arguments after spaces");
        return Err(invalid("notify_command", problem));
    }
    Ok(Some(CommandSettings { program, args: words.collect() }))
}

/// The URL of a webhook, and its origin.
fn url_of(
    setting: &'static str,
    text: String,
    allow_loopback: bool,
) -> Result<(SecretString, String), Invalid> {
    let text = SecretString::from(text);
    let wrong = |reason: &str| invalid(setting, reason);
    let url = Url::parse(text.expose_secret()).map_err(|_| wrong("is not a URL"))?;
    let plain = url.scheme() == "http" && allow_loopback && is_loopback(&url);
    if url.scheme() != "https" && !plain {
        return Err(wrong(match is_loopback(&url) {
            true => "must start with https:// (on loopback, set EXTERNAL_API_ALLOW_HTTP_LOOPBACK=on)",
            false => "must start with https://",
        }));
    }
    if url.host().is_none() || !url.username().is_empty() || url.password().is_some() {
        return Err(wrong("must have a host and no user"));
    }
    let origin = url.origin().ascii_serialization();
    Ok((text, origin))
}

fn email(url: &str, to: &str, from: &str, allow_loopback: bool) -> Result<EmailSettings, Invalid> {
    let wrong = |reason: &str| invalid("smtp_url", reason);
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
    if login.as_ref().is_some_and(|(_, password)| password.expose_secret().len() < SECRET_BYTES_MIN) {
        return Err(wrong("must have a password of at least 4 characters, so that it can be hidden in logs"));
    }
    let port = url.port().unwrap_or(port);
    let (from, to) = (mailbox("notify_email_from", from)?, mailboxes(to)?);
    Ok(EmailSettings { host, port, encryption, login, from, to })
}

fn mailboxes(list: &str) -> Result<Vec<Mailbox>, Invalid> {
    let parts = list.split(',').map(str::trim).filter(|part| !part.is_empty());
    let mailboxes: Vec<Mailbox> =
        parts.map(|part| mailbox("notify_email_to", part)).collect::<Result<_, _>>()?;
    match mailboxes.is_empty() {
        true => Err(invalid("notify_email_to", "contains no address")),
        false => Ok(mailboxes),
    }
}

fn mailbox(setting: &'static str, text: &str) -> Result<Mailbox, Invalid> {
    text.parse().map_err(|_| invalid(setting, "is not an e-mail address such as ops@example.com"))
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
