//! A rule for senders that have no preset.

use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName};

use crate::options::options;
use crate::parse_error::ParseError;

options! {
    /// How a signature is made.
    Algorithm {
        /// HMAC with SHA-256 and a shared secret.
        HmacSha256 = "hmac-sha256",
        /// Ed25519 with the sender's private key; we have the public one.
        Ed25519 = "ed25519",
    }
}

options! {
    /// How the bytes of a signature are written.
    Encoding {
        /// Hexadecimal digits.
        Hex = "hex",
        /// Base64.
        Base64 = "base64",
    }
}

/// How a sender without a preset signs its requests: a signature in one header, over some headers and the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignatureRule {
    /// The header that carries the signature.
    pub header: HeaderName,
    /// What comes before the signature in its header, such as `sha256=`.
    pub prefix: String,
    /// How the signature is made.
    pub algorithm: Algorithm,
    /// How the signature is written.
    pub encoding: Encoding,
    /// A header with a signed time in seconds, which must be close to ours.
    pub timestamp: Option<HeaderName>,
    /// What is signed.
    pub signed: SignedText,
}

/// What is signed: text and headers, then the body. Written as `v0:{x-timestamp}:{body}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedText(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Header(HeaderName),
}

impl Default for SignedText {
    /// The body alone.
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl SignedText {
    /// Whether a header is signed.
    pub fn includes(&self, header: &HeaderName) -> bool {
        self.0.iter().any(|part| matches!(part, Part::Header(name) if name == header))
    }
}

impl FromStr for SignedText {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let invalid = |problem: &str| ParseError::new(format!("{text:?} {problem}"));
        let Some(mut rest) = text.strip_suffix("{body}") else {
            return Err(invalid("does not end with {body}"));
        };
        let mut parts = Vec::new();
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}').ok_or_else(|| invalid("has a { without }"))?;
            let header =
                name.parse().map_err(|_| invalid(&format!("names {name:?}, which is not a header")))?;
            if name.eq_ignore_ascii_case("body") {
                return Err(invalid("has {body} twice"));
            }
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            parts.push(Part::Header(header));
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Ok(Self(parts))
    }
}

impl SignatureRule {
    pub(super) fn decode(&self, line: &str) -> Option<Vec<u8>> {
        let text = line.strip_prefix(&*self.prefix)?;
        match self.encoding {
            Encoding::Hex => hex::decode(text).ok(),
            Encoding::Base64 => STANDARD.decode(text).ok(),
        }
    }

    /// What is signed before the body. The error is a header that is missing, or occurs more than once.
    pub(super) fn signed_before_the_body(&self, headers: &HeaderMap) -> Result<String, &HeaderName> {
        let mut signed = String::new();
        for part in &self.signed.0 {
            signed.push_str(match part {
                Part::Text(text) => text,
                Part::Header(name) => only(headers, name).ok_or(name)?,
            });
        }
        Ok(signed)
    }
}

/// The value of a header that must occur once.
pub(super) fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut lines = headers.get_all(name).iter();
    let line = lines.next()?.to_str().ok()?;
    lines.next().is_none().then_some(line)
}
