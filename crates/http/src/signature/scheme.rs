//! Where senders put their signatures, and what they sign.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName};

use super::key::{Key, Secret};
use super::rule::{Algorithm, SignatureRule, only};
use super::{SIGNATURES_MAX, SignedParts, timestamp_refused};
use crate::parse_error::ParseError;
use crate::problem::{Kind, Problem};

pub(super) const SLACK_SIGNATURE: HeaderName = HeaderName::from_static("x-slack-signature");
pub(super) const SLACK_TIMESTAMP: HeaderName = HeaderName::from_static("x-slack-request-timestamp");
pub(super) const GITHUB_SIGNATURE: HeaderName = HeaderName::from_static("x-hub-signature-256");
pub(super) const STRIPE_SIGNATURE: HeaderName = HeaderName::from_static("stripe-signature");
pub(super) const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
pub(super) const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
pub(super) const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// How a sender signs its requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// `X-Slack-Signature: v0=…` over `v0:{X-Slack-Request-Timestamp}:{body}`.
    Slack,
    /// `X-Hub-Signature-256: sha256=…` over the body.
    GitHub,
    /// `Stripe-Signature: t={time},v1=…[,v1=…]` over `{time}.{body}`.
    Stripe,
    /// `webhook-signature: v1,… [v1a,…]` over `{webhook-id}.{webhook-timestamp}.{body}`.
    StandardWebhooks,
    /// As a rule says.
    Other(SignatureRule),
}

impl Scheme {
    /// The header that carries the signature.
    pub fn header(&self) -> &str {
        match self {
            Self::Slack => "X-Slack-Signature",
            Self::GitHub => "X-Hub-Signature-256",
            Self::Stripe => "Stripe-Signature",
            Self::StandardWebhooks => "webhook-signature",
            Self::Other(rule) => rule.header.as_str(),
        }
    }

    pub(super) fn key(&self, secret: &Secret) -> Result<Key, ParseError> {
        match self {
            Self::Slack | Self::GitHub | Self::Stripe => Key::hmac(secret),
            Self::StandardWebhooks => Key::standard_webhooks(secret),
            Self::Other(rule) => match rule.algorithm {
                Algorithm::HmacSha256 => Key::hmac(secret),
                Algorithm::Ed25519 => Key::ed25519(secret),
            },
        }
    }

    pub(super) fn read<'a>(&'a self, headers: &HeaderMap) -> Result<SignedParts<'a>, Problem> {
        match self {
            Self::Slack => {
                let (text, seconds) = time(headers, &SLACK_TIMESTAMP, "X-Slack-Request-Timestamp")?;
                Ok(SignedParts {
                    signatures: vec![self.only_signature(headers, &SLACK_SIGNATURE, "v0=")?],
                    signed_at: Some((seconds, "X-Slack-Request-Timestamp")),
                    prefix: format!("v0:{text}:"),
                })
            }
            Self::GitHub => Ok(SignedParts {
                signatures: vec![self.only_signature(headers, &GITHUB_SIGNATURE, "sha256=")?],
                signed_at: None,
                prefix: String::new(),
            }),
            Self::Stripe => self.stripe(headers),
            Self::StandardWebhooks => self.standard_webhooks(headers),
            Self::Other(rule) => self.other(rule, headers),
        }
    }

    fn only_signature(
        &self,
        headers: &HeaderMap,
        name: &HeaderName,
        version: &str,
    ) -> Result<(Algorithm, Vec<u8>), Problem> {
        let digits = self.line(headers, name)?.and_then(|line| line.strip_prefix(version));
        let bytes = digits.and_then(|digits| hex::decode(digits).ok());
        let bytes = bytes
            .ok_or_else(|| self.refused(&format!("does not have the form {version}<hexadecimal digits>")))?;
        Ok((Algorithm::HmacSha256, bytes))
    }

    fn stripe(&self, headers: &HeaderMap) -> Result<SignedParts<'_>, Problem> {
        let line = self.line(headers, &STRIPE_SIGNATURE)?.unwrap_or_default();
        let pairs = || line.split(',').filter_map(|pair| pair.trim().split_once('='));
        let mut times = pairs().filter(|(name, _)| *name == "t").map(|(_, value)| value);
        let (Some((text, seconds)), None) = (times.next().and_then(unix_seconds), times.next()) else {
            return Err(self.refused("has no timestamp t=<seconds>"));
        };
        // Other versions, such as v0 of test events, do not count.
        let signatures: Vec<_> = pairs()
            .filter_map(|(name, digits)| hex::decode(digits).ok().filter(|_| name == "v1"))
            .map(|bytes| (Algorithm::HmacSha256, bytes))
            .take(SIGNATURES_MAX)
            .collect();
        if signatures.is_empty() {
            return Err(self.refused("has no signature v1=<hexadecimal digits>"));
        }
        Ok(SignedParts { signatures, signed_at: Some((seconds, self.header())), prefix: format!("{text}.") })
    }

    fn standard_webhooks(&self, headers: &HeaderMap) -> Result<SignedParts<'_>, Problem> {
        let (text, seconds) = time(headers, &WEBHOOK_TIMESTAMP, "webhook-timestamp")?;
        let Some(id) = only(headers, &WEBHOOK_ID) else {
            return Err(self.refused("cannot be verified without one webhook-id"));
        };
        let line = self.line(headers, &WEBHOOK_SIGNATURE)?.unwrap_or_default();
        let read = |one: &str| {
            let (version, encoded) = one.split_once(',')?;
            let algorithm = match version {
                "v1" => Algorithm::HmacSha256,
                "v1a" => Algorithm::Ed25519,
                _ => return None,
            };
            Some((algorithm, STANDARD.decode(encoded).ok()?))
        };
        let signatures: Vec<_> =
            line.split_ascii_whitespace().filter_map(read).take(SIGNATURES_MAX).collect();
        if signatures.is_empty() {
            return Err(self.refused("has no signature v1,<base64> or v1a,<base64>"));
        }
        let signed_at = Some((seconds, "webhook-timestamp"));
        Ok(SignedParts { signatures, signed_at, prefix: format!("{id}.{text}.") })
    }

    fn other<'a>(&self, rule: &'a SignatureRule, headers: &HeaderMap) -> Result<SignedParts<'a>, Problem> {
        let signed_at = match &rule.timestamp {
            Some(name) => Some((time(headers, name, name.as_str())?.1, name.as_str())),
            None => None,
        };
        let line = self.line(headers, &rule.header)?;
        let signature = line.and_then(|line| rule.decode(line)).ok_or_else(|| {
            self.refused(&format!("does not have the form {}<{}>", rule.prefix, rule.encoding.as_str()))
        })?;
        let prefix = rule.signed_before_the_body(headers).map_err(|header| {
            self.refused(&format!("cannot be verified without one {header}, which is signed as well"))
        })?;
        Ok(SignedParts { signatures: vec![(rule.algorithm, signature)], signed_at, prefix })
    }

    /// The signature header. `None` if it is not a single line of text.
    fn line<'h>(&self, headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>, Problem> {
        match headers.contains_key(name) {
            true => Ok(only(headers, name)),
            false => Err(self.refused("is missing")),
        }
    }

    pub(super) fn refused(&self, reason: &str) -> Problem {
        Problem::new(Kind::SignatureRefused, format!("{} {reason}; the request was not run", self.header()))
    }
}

fn unix_seconds(text: &str) -> Option<(&str, u64)> {
    let digits = Some(text).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    Some((text, digits.parse().ok()?))
}

/// A header with a time in seconds: its text and its value. `shown` is its name in messages.
fn time<'a>(headers: &'a HeaderMap, name: &HeaderName, shown: &str) -> Result<(&'a str, u64), Problem> {
    if !headers.contains_key(name) {
        return Err(timestamp_refused(&format!("{shown} is missing")));
    }
    let time = only(headers, name).and_then(unix_seconds);
    time.ok_or_else(|| timestamp_refused(&format!("{shown} is not a time in seconds")))
}
