//! Signatures of webhooks: whether a request comes from the sender that shares a secret with us.
//!
//! A signature is an HMAC-SHA256 over the bytes of the body as they came, checked before anything is claimed or passed
//! on, and compared in constant time. Slack signs the time as well, so that an old request cannot be sent again.

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
/// How far a signed time may be from ours, in either direction.
const TOLERANCE: Duration = Duration::from_secs(300);

/// What a sender shares with us. It is never printed.
#[derive(Clone)]
pub struct Secret(Box<[u8]>);

impl Secret {
    /// A secret of at least one byte.
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

/// How requests are signed.
#[derive(Clone, Debug)]
pub enum Signature {
    /// `X-Slack-Signature: v0=…` over `v0:{X-Slack-Request-Timestamp}:{body}`, at most five minutes old.
    Slack(Secret),
    /// `X-Hub-Signature-256: sha256=…` over the body.
    GitHub(Secret),
}

impl Signature {
    /// The field that carries it, for people.
    pub fn field(&self) -> &'static str {
        match self {
            Self::Slack(_) => "X-Slack-Signature",
            Self::GitHub(_) => "X-Hub-Signature-256",
        }
    }

    /// What can be said before the body is there. The rest is said by [`Checking::finish`].
    pub(crate) fn begin(&self, headers: &HeaderMap, now: Timestamp) -> Result<Checking, Problem> {
        let field = self.field();
        let (given, signed_before, secret) = match self {
            Self::Slack(secret) => {
                let time = slack_time(headers, now)?;
                (signature(headers, &SLACK_SIGNATURE, "v0=", field)?, format!("v0:{time}:"), secret)
            }
            Self::GitHub(secret) => {
                (signature(headers, &GITHUB_SIGNATURE, "sha256=", field)?, String::new(), secret)
            }
        };
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&secret.0).map_err(|_| refused(field, "cannot be checked"))?;
        mac.update(signed_before.as_bytes());
        Ok(Checking { mac, given, field })
    }
}

/// A signature whose body is on its way.
pub(crate) struct Checking {
    mac: Hmac<Sha256>,
    given: Vec<u8>,
    field: &'static str,
}

impl Checking {
    pub(crate) fn update(&mut self, piece: &[u8]) {
        self.mac.update(piece);
    }

    pub(crate) fn finish(self) -> Result<(), Problem> {
        self.mac
            .verify_slice(&self.given)
            .map_err(|_| refused(self.field, "does not fit the body and the secret"))
    }
}

/// The one line of a field, as text.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut lines = headers.get_all(name).iter();
    let line = lines.next()?.to_str().ok()?;
    lines.next().is_none().then_some(line)
}

fn signature(
    headers: &HeaderMap,
    name: &HeaderName,
    version: &str,
    field: &'static str,
) -> Result<Vec<u8>, Problem> {
    if !headers.contains_key(name) {
        return Err(refused(field, "is missing"));
    }
    let digits = only(headers, name).and_then(|line| line.strip_prefix(version));
    let bytes = digits.and_then(|digits| hex::decode(digits).ok());
    bytes.ok_or_else(|| refused(field, &format!("is not of the form {version}<hexadecimal digits>")))
}

fn slack_time(headers: &HeaderMap, now: Timestamp) -> Result<&str, Problem> {
    let refused = |why: &str| {
        Problem::new(Kind::TimestampRefused, format!("X-Slack-Request-Timestamp {why}; nothing was done"))
    };
    if !headers.contains_key(&SLACK_TIMESTAMP) {
        return Err(refused("is missing"));
    }
    let text = only(headers, &SLACK_TIMESTAMP);
    let digits = text.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let seconds = digits.and_then(|digits| digits.parse::<u64>().ok());
    let (Some(text), Some(seconds)) = (text, seconds) else {
        return Err(refused("is not a time in seconds"));
    };
    // To the second, as the sender counts.
    if seconds.abs_diff(now.0 / 1000) > TOLERANCE.as_secs() {
        return Err(refused("is more than 5 minutes from the time here"));
    }
    Ok(text)
}

fn refused(field: &str, why: &str) -> Problem {
    Problem::new(Kind::SignatureRefused, format!("{field} {why}; nothing was done"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of Slack's documentation.
    const SECRET: &str = "8f742231b10e8888abcd99yyyzzz85a5";
    const TIME: u64 = 1_531_420_618;
    const BODY: &str = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c";
    const SIGNED: &str = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503";

    fn slack() -> Signature {
        Signature::Slack(Secret::new(SECRET).unwrap())
    }

    fn fields(pairs: &[(&HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| ((*name).clone(), value.parse().unwrap())).collect()
    }

    fn verdict(signature: &Signature, headers: &HeaderMap, body: &str, seconds: u64) -> Result<(), Kind> {
        let mut checking =
            signature.begin(headers, Timestamp(seconds * 1000)).map_err(|problem| problem.kind)?;
        // A body may come in pieces.
        let (one, two) = body.split_at(body.len() / 2);
        checking.update(one.as_bytes());
        checking.update(two.as_bytes());
        checking.finish().map_err(|problem| problem.kind)
    }

    #[test]
    fn the_example_of_slacks_documentation_is_believed_for_five_minutes_either_way() {
        let headers = fields(&[(&SLACK_TIMESTAMP, &TIME.to_string()), (&SLACK_SIGNATURE, SIGNED)]);
        for now in [TIME, TIME + 300, TIME - 300] {
            assert_eq!(verdict(&slack(), &headers, BODY, now), Ok(()));
        }
        for now in [TIME + 301, TIME - 301, 0] {
            assert_eq!(verdict(&slack(), &headers, BODY, now), Err(Kind::TimestampRefused));
        }
    }

    #[test]
    fn another_body_time_secret_or_signature_is_refused() {
        let time = TIME.to_string();
        let headers = fields(&[(&SLACK_TIMESTAMP, &time), (&SLACK_SIGNATURE, SIGNED)]);
        assert_eq!(verdict(&slack(), &headers, &BODY[1..], TIME), Err(Kind::SignatureRefused));
        let other = Signature::Slack(Secret::new("other").unwrap());
        assert_eq!(verdict(&other, &headers, BODY, TIME), Err(Kind::SignatureRefused));
        let later = fields(&[(&SLACK_TIMESTAMP, "1531420619"), (&SLACK_SIGNATURE, SIGNED)]);
        assert_eq!(verdict(&slack(), &later, BODY, TIME), Err(Kind::SignatureRefused));
        for wrong in
            ["", "v0=", "v1=a2", SIGNED.trim_start_matches("v0="), &SIGNED[..SIGNED.len() - 2], "v0=zz"]
        {
            let headers = fields(&[(&SLACK_TIMESTAMP, &time), (&SLACK_SIGNATURE, wrong)]);
            assert_eq!(verdict(&slack(), &headers, BODY, TIME), Err(Kind::SignatureRefused), "{wrong}");
        }
        let mut twice = headers;
        twice.append(&SLACK_SIGNATURE, SIGNED.parse().unwrap());
        assert_eq!(verdict(&slack(), &twice, BODY, TIME), Err(Kind::SignatureRefused));
        let unsigned = fields(&[(&SLACK_TIMESTAMP, &time)]);
        assert_eq!(verdict(&slack(), &unsigned, BODY, TIME), Err(Kind::SignatureRefused));
        for wrong in [None, Some(""), Some("+5"), Some("now"), Some("1531420618.0")] {
            let mut headers = fields(&[(&SLACK_SIGNATURE, SIGNED)]);
            wrong.into_iter().for_each(|time| {
                headers.insert(&SLACK_TIMESTAMP, time.parse().unwrap());
            });
            assert_eq!(verdict(&slack(), &headers, BODY, TIME), Err(Kind::TimestampRefused), "{wrong:?}");
        }
    }

    #[test]
    fn the_example_of_githubs_documentation_is_believed() {
        let signature = Signature::GitHub(Secret::new("It's a Secret to Everybody").unwrap());
        let signed = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        let headers = fields(&[(&GITHUB_SIGNATURE, signed)]);
        assert_eq!(verdict(&signature, &headers, "Hello, World!", 0), Ok(()));
        assert_eq!(verdict(&signature, &headers, "Hello, World?", 0), Err(Kind::SignatureRefused));
        assert_eq!(verdict(&signature, &HeaderMap::new(), "Hello, World!", 0), Err(Kind::SignatureRefused));
    }

    #[test]
    fn a_secret_is_not_printed() {
        assert_eq!(format!("{:?}", slack()), "Slack(Secret(…))");
        assert!(Secret::new("").is_none());
    }
}
