//! Webhook signatures: verifies that a request comes from the sender that shares a secret with us.
//!
//! All schemes work alike: an HMAC-SHA256, with one of several secrets, over some text from the headers followed by the
//! raw body. A scheme defines where the signatures and the timestamp are, and what is signed before the body. Tolerance,
//! the choice of secrets and the constant-time comparison are shared. Verification precedes the claim, so a request with a
//! wrong signature claims nothing.

use std::fmt;
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, HeaderName};
use ichido_core::Timestamp;
use sha2::Sha256;

use crate::problem::{Kind, Problem};

const SLACK_SIGNATURE: HeaderName = HeaderName::from_static("x-slack-signature");
const SLACK_TIMESTAMP: HeaderName = HeaderName::from_static("x-slack-request-timestamp");
const GITHUB_SIGNATURE: HeaderName = HeaderName::from_static("x-hub-signature-256");
const STRIPE_SIGNATURE: HeaderName = HeaderName::from_static("stripe-signature");
/// How far a signed timestamp may be from our clock, in either direction.
const TOLERANCE: Duration = Duration::from_secs(300);
/// More signatures than any rotation needs. Each is compared with every secret.
const SIGNATURES_MAX: usize = 16;

/// A secret that a sender shares with us. It is never printed.
#[derive(Clone)]
pub struct Secret(Box<[u8]>);

impl Secret {
    /// Creates a secret. `None` if it is empty.
    pub fn new(secret: impl Into<Vec<u8>>) -> Option<Self> {
        let secret: Vec<u8> = secret.into();
        (!secret.is_empty()).then(|| Self(secret.into_boxed_slice()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// How a sender signs its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// `X-Slack-Signature: v0=…` over `v0:{X-Slack-Request-Timestamp}:{body}`.
    Slack,
    /// `X-Hub-Signature-256: sha256=…` over the body.
    GitHub,
    /// `Stripe-Signature: t={time},v1=…[,v1=…]` over `{time}.{body}`.
    Stripe,
}

/// What the headers of a request say about its signature.
struct SignedParts {
    /// One of these must match. A sender that rotates its secret signs with both.
    signatures: Vec<Vec<u8>>,
    /// The timestamp in seconds and its header, if the scheme has one.
    signed_at: Option<(u64, &'static str)>,
    /// What is signed before the body.
    prefix: String,
}

impl Scheme {
    /// The header that carries the signature.
    pub fn header(self) -> &'static str {
        match self {
            Self::Slack => "X-Slack-Signature",
            Self::GitHub => "X-Hub-Signature-256",
            Self::Stripe => "Stripe-Signature",
        }
    }

    fn read(self, headers: &HeaderMap) -> Result<SignedParts, Problem> {
        match self {
            Self::Slack => {
                let (text, seconds) = slack_time(headers)?;
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
        }
    }

    fn only_signature(
        self,
        headers: &HeaderMap,
        name: &HeaderName,
        version: &str,
    ) -> Result<Vec<u8>, Problem> {
        let digits = self.line(headers, name)?.and_then(|line| line.strip_prefix(version));
        let bytes = digits.and_then(|digits| hex::decode(digits).ok());
        bytes.ok_or_else(|| self.refused(&format!("does not have the form {version}<hexadecimal digits>")))
    }

    fn stripe(self, headers: &HeaderMap) -> Result<SignedParts, Problem> {
        let line = self.line(headers, &STRIPE_SIGNATURE)?.unwrap_or_default();
        let pairs = || line.split(',').filter_map(|pair| pair.trim().split_once('='));
        let mut times = pairs().filter(|(name, _)| *name == "t").map(|(_, value)| value);
        let (Some((text, seconds)), None) = (times.next().and_then(unix_seconds), times.next()) else {
            return Err(self.refused("has no timestamp t=<seconds>"));
        };
        // Other versions, such as v0 of test events, do not count.
        let signatures: Vec<_> = pairs()
            .filter_map(|(name, digits)| hex::decode(digits).ok().filter(|_| name == "v1"))
            .take(SIGNATURES_MAX)
            .collect();
        if signatures.is_empty() {
            return Err(self.refused("has no signature v1=<hexadecimal digits>"));
        }
        Ok(SignedParts { signatures, signed_at: Some((seconds, self.header())), prefix: format!("{text}.") })
    }

    /// The signature header. `None` if it is not a single line of text.
    fn line<'a>(self, headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Problem> {
        match headers.contains_key(name) {
            true => Ok(only(headers, name)),
            false => Err(self.refused("is missing")),
        }
    }

    fn refused(self, reason: &str) -> Problem {
        Problem::new(Kind::SignatureRefused, format!("{} {reason}; the request was not run", self.header()))
    }
}

/// How the requests of a route must be signed.
#[derive(Clone, Debug)]
pub struct Signature {
    scheme: Scheme,
    secrets: Vec<Secret>,
}

impl Signature {
    /// A signature with any one of these secrets. `None` if there are none.
    pub fn new(scheme: Scheme, secrets: Vec<Secret>) -> Option<Self> {
        (!secrets.is_empty()).then_some(Self { scheme, secrets })
    }

    /// The scheme.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The header that carries the signature.
    pub fn header(&self) -> &'static str {
        self.scheme.header()
    }

    /// Checks the headers, before the body is read. [`Verification::finish`] checks the signature itself.
    pub(crate) fn begin_verification(
        &self,
        headers: &HeaderMap,
        now: Timestamp,
    ) -> Result<Verification, Problem> {
        let signed = self.scheme.read(headers)?;
        if let Some((seconds, header)) = signed.signed_at {
            // In whole seconds, as senders count.
            if seconds.abs_diff(now.0 / 1000) > TOLERANCE.as_secs() {
                return Err(timestamp_refused(&format!(
                    "the timestamp in {header} is more than 5 minutes from our clock"
                )));
            }
        }
        let start = |secret: &Secret| {
            let mut mac = Hmac::<Sha256>::new_from_slice(&secret.0)
                .map_err(|_| self.scheme.refused("cannot be verified"))?;
            mac.update(signed.prefix.as_bytes());
            Ok(mac)
        };
        let macs = self.secrets.iter().map(start).collect::<Result<_, Problem>>()?;
        Ok(Verification { scheme: self.scheme, macs, signatures: signed.signatures })
    }
}

/// A verification that waits for the body.
pub(crate) struct Verification {
    scheme: Scheme,
    /// One per secret.
    macs: Vec<Hmac<Sha256>>,
    signatures: Vec<Vec<u8>>,
}

impl Verification {
    pub(crate) fn update(&mut self, chunk: &[u8]) {
        self.macs.iter_mut().for_each(|mac| mac.update(chunk));
    }

    pub(crate) fn finish(self) -> Result<(), Problem> {
        let matches = |mac: &Hmac<Sha256>| {
            self.signatures.iter().any(|signature| mac.clone().verify_slice(signature).is_ok())
        };
        match self.macs.iter().any(matches) {
            true => Ok(()),
            false => Err(self.scheme.refused("does not match the body and the secret")),
        }
    }
}

/// The value of a header that must occur once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut lines = headers.get_all(name).iter();
    let line = lines.next()?.to_str().ok()?;
    lines.next().is_none().then_some(line)
}

fn unix_seconds(text: &str) -> Option<(&str, u64)> {
    let digits = Some(text).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    Some((text, digits.parse().ok()?))
}

fn slack_time(headers: &HeaderMap) -> Result<(&str, u64), Problem> {
    if !headers.contains_key(&SLACK_TIMESTAMP) {
        return Err(timestamp_refused("X-Slack-Request-Timestamp is missing"));
    }
    let time = only(headers, &SLACK_TIMESTAMP).and_then(unix_seconds);
    time.ok_or_else(|| timestamp_refused("X-Slack-Request-Timestamp is not a time in seconds"))
}

fn timestamp_refused(reason: &str) -> Problem {
    Problem::new(Kind::TimestampRefused, format!("{reason}; the request was not run"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example in Slack's documentation.
    const SECRET: &str = "8f742231b10e8888abcd99yyyzzz85a5";
    const TIME: u64 = 1_531_420_618;
    const BODY: &str = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c";
    const SIGNED: &str = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503";

    fn signature(scheme: Scheme, secrets: &[&str]) -> Signature {
        Signature::new(scheme, secrets.iter().map(|secret| Secret::new(*secret).unwrap()).collect()).unwrap()
    }

    fn slack() -> Signature {
        signature(Scheme::Slack, &[SECRET])
    }

    fn header_map(pairs: &[(&HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| ((*name).clone(), value.parse().unwrap())).collect()
    }

    fn verify(signature: &Signature, headers: &HeaderMap, body: &str, seconds: u64) -> Result<(), Kind> {
        let mut verification = signature
            .begin_verification(headers, Timestamp(seconds * 1000))
            .map_err(|problem| problem.kind)?;
        // A body may arrive in chunks.
        let (first, second) = body.split_at(body.len() / 2);
        verification.update(first.as_bytes());
        verification.update(second.as_bytes());
        verification.finish().map_err(|problem| problem.kind)
    }

    #[test]
    fn the_example_of_slacks_documentation_is_accepted_within_five_minutes() {
        let headers = header_map(&[(&SLACK_TIMESTAMP, &TIME.to_string()), (&SLACK_SIGNATURE, SIGNED)]);
        for now in [TIME, TIME + 300, TIME - 300] {
            assert_eq!(verify(&slack(), &headers, BODY, now), Ok(()));
        }
        for now in [TIME + 301, TIME - 301, 0] {
            assert_eq!(verify(&slack(), &headers, BODY, now), Err(Kind::TimestampRefused));
        }
    }

    #[test]
    fn a_different_body_timestamp_secret_or_signature_is_refused() {
        let time = TIME.to_string();
        let headers = header_map(&[(&SLACK_TIMESTAMP, &time), (&SLACK_SIGNATURE, SIGNED)]);
        assert_eq!(verify(&slack(), &headers, &BODY[1..], TIME), Err(Kind::SignatureRefused));
        let other = signature(Scheme::Slack, &["other"]);
        assert_eq!(verify(&other, &headers, BODY, TIME), Err(Kind::SignatureRefused));
        let later = header_map(&[(&SLACK_TIMESTAMP, "1531420619"), (&SLACK_SIGNATURE, SIGNED)]);
        assert_eq!(verify(&slack(), &later, BODY, TIME), Err(Kind::SignatureRefused));
        for wrong in
            ["", "v0=", "v1=a2", SIGNED.trim_start_matches("v0="), &SIGNED[..SIGNED.len() - 2], "v0=zz"]
        {
            let headers = header_map(&[(&SLACK_TIMESTAMP, &time), (&SLACK_SIGNATURE, wrong)]);
            assert_eq!(verify(&slack(), &headers, BODY, TIME), Err(Kind::SignatureRefused), "{wrong}");
        }
        let mut twice = headers;
        twice.append(&SLACK_SIGNATURE, SIGNED.parse().unwrap());
        assert_eq!(verify(&slack(), &twice, BODY, TIME), Err(Kind::SignatureRefused));
        let unsigned = header_map(&[(&SLACK_TIMESTAMP, &time)]);
        assert_eq!(verify(&slack(), &unsigned, BODY, TIME), Err(Kind::SignatureRefused));
        for wrong in [None, Some(""), Some("+5"), Some("now"), Some("1531420618.0")] {
            let mut headers = header_map(&[(&SLACK_SIGNATURE, SIGNED)]);
            wrong.into_iter().for_each(|time| {
                headers.insert(&SLACK_TIMESTAMP, time.parse().unwrap());
            });
            assert_eq!(verify(&slack(), &headers, BODY, TIME), Err(Kind::TimestampRefused), "{wrong:?}");
        }
    }

    #[test]
    fn the_example_of_githubs_documentation_is_accepted() {
        let signature = signature(Scheme::GitHub, &["It's a Secret to Everybody"]);
        let signed = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        let headers = header_map(&[(&GITHUB_SIGNATURE, signed)]);
        assert_eq!(verify(&signature, &headers, "Hello, World!", 0), Ok(()));
        assert_eq!(verify(&signature, &headers, "Hello, World?", 0), Err(Kind::SignatureRefused));
        assert_eq!(verify(&signature, &HeaderMap::new(), "Hello, World!", 0), Err(Kind::SignatureRefused));
    }

    #[test]
    fn a_secret_is_not_printed() {
        assert_eq!(format!("{:?}", slack()), "Signature { scheme: Slack, secrets: [Secret(…)] }");
        assert!(Secret::new("").is_none());
    }

    const STRIPE_BODY: &str = r#"{"id":"evt_1","object":"event"}"#;

    /// Signs as Stripe's libraries do.
    fn stripe_v1(secret: &str, time: u64, body: &str) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
        mac.update(format!("{time}.{body}").as_bytes());
        format!("v1={}", hex::encode(mac.finalize().into_bytes()))
    }

    fn stripe(secrets: &[&str], line: &str, body: &str, now: u64) -> Result<(), Kind> {
        verify(&signature(Scheme::Stripe, secrets), &header_map(&[(&STRIPE_SIGNATURE, line)]), body, now)
    }

    #[test]
    fn one_of_stripes_signatures_must_match_one_of_our_secrets() {
        let (old, new) =
            (stripe_v1("whsec_old", TIME, STRIPE_BODY), stripe_v1("whsec_new", TIME, STRIPE_BODY));
        let line = |signatures: &str| format!("t={TIME},{signatures}");
        for (secrets, line) in [
            (&["whsec_old"][..], line(&old)),
            (&["whsec_new", "whsec_old"], line(&old)),
            (&["whsec_new"], line(&format!("{old},{new}"))),
            (&["whsec_new"], line(&format!("v0=00,{new}"))),
            (&["whsec_new"], format!("{new}, t={TIME}")),
        ] {
            assert_eq!(stripe(secrets, &line, STRIPE_BODY, TIME + 300), Ok(()), "{line}");
            assert_eq!(stripe(secrets, &line, STRIPE_BODY, TIME + 301), Err(Kind::TimestampRefused));
            assert_eq!(stripe(secrets, &line, "{}", TIME), Err(Kind::SignatureRefused), "{line}");
            assert_eq!(stripe(&["other"], &line, STRIPE_BODY, TIME), Err(Kind::SignatureRefused));
        }
        let later = format!("t={},{old}", TIME + 1);
        assert_eq!(stripe(&["whsec_old"], &later, STRIPE_BODY, TIME), Err(Kind::SignatureRefused));
    }

    #[test]
    fn a_stripe_signature_without_timestamp_or_v1_is_refused() {
        let good = stripe_v1("s", TIME, STRIPE_BODY);
        for line in [
            String::new(),
            good.clone(),
            format!("t={TIME}"),
            format!("t={TIME},t={TIME},{good}"),
            format!("t=+{TIME},{good}"),
            format!("t={TIME},v1=zz"),
            format!("t={TIME},{}", good.replace("v1=", "v0=")),
        ] {
            assert_eq!(stripe(&["s"], &line, STRIPE_BODY, TIME), Err(Kind::SignatureRefused), "{line}");
        }
        let unsigned = verify(&signature(Scheme::Stripe, &["s"]), &HeaderMap::new(), STRIPE_BODY, TIME);
        assert_eq!(unsigned, Err(Kind::SignatureRefused));
    }
}
