//! Webhook signatures: verifies that a request comes from the sender that shares a secret with us.
//!
//! All schemes work alike: an HMAC-SHA256 or an Ed25519 signature, with one of several keys, over some text from the
//! headers followed by the raw body. A [`Scheme`] defines where the signatures and the timestamp are, and what is signed
//! before the body. Tolerance, the choice of keys and the constant-time comparison are shared. Verification precedes the
//! claim, so a request with a wrong signature claims nothing.

mod key;
mod rule;
mod scheme;
#[cfg(test)]
mod tests;

use std::time::Duration;

use ed25519_dalek::StreamVerifier;
use hmac::{Hmac, Mac};
use http::HeaderMap;
use ichido_core::Timestamp;
use sha2::Sha256;

use self::key::Key;
pub use self::key::Secret;
pub use self::rule::{Algorithm, Encoding, SignatureRule, SignedText};
pub use self::scheme::Scheme;
use crate::parse_error::ParseError;
use crate::problem::{Kind, Problem};

/// How far a signed timestamp may be from our clock, in either direction.
const TOLERANCE: Duration = Duration::from_secs(300);
/// More signatures than any rotation needs. Each is compared with every key.
const SIGNATURES_MAX: usize = 16;

/// How the requests of a route must be signed.
#[derive(Clone, Debug)]
pub struct Signature {
    scheme: Scheme,
    keys: Vec<Key>,
}

impl Signature {
    /// A signature with any one of these secrets. `None` if there are none.
    pub fn new(scheme: Scheme, secrets: &[Secret]) -> Result<Option<Self>, ParseError> {
        let keys: Vec<_> = secrets.iter().map(|secret| scheme.key(secret)).collect::<Result<_, _>>()?;
        Ok((!keys.is_empty()).then_some(Self { scheme, keys }))
    }

    /// The scheme.
    pub fn scheme(&self) -> &Scheme {
        &self.scheme
    }

    /// The header that carries the signature.
    pub fn header(&self) -> &str {
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
        let mut candidates: Vec<Candidate> = Vec::new();
        for key in &self.keys {
            candidates.extend(key.begin(&signed.signatures));
        }
        let mut verification = Verification { refused: self.scheme.refused(MISMATCH), candidates };
        verification.update(signed.prefix.as_bytes());
        Ok(verification)
    }
}

const MISMATCH: &str = "does not match the body and the secret";

/// What the headers of a request say about its signature.
struct SignedParts<'a> {
    /// One of these must match. A sender that rotates its secret signs with both.
    signatures: Vec<(Algorithm, Vec<u8>)>,
    /// The timestamp in seconds and its header, if the scheme has one.
    signed_at: Option<(u64, &'a str)>,
    /// What is signed before the body.
    prefix: String,
}

/// A key that may have made a signature of the request.
enum Candidate {
    Hmac { mac: Hmac<Sha256>, signatures: Vec<Vec<u8>> },
    Ed25519(Box<StreamVerifier>),
}

/// A verification that waits for the body.
pub(crate) struct Verification {
    candidates: Vec<Candidate>,
    refused: Problem,
}

impl Verification {
    pub(crate) fn update(&mut self, chunk: &[u8]) {
        for candidate in &mut self.candidates {
            match candidate {
                Candidate::Hmac { mac, .. } => mac.update(chunk),
                Candidate::Ed25519(verifier) => verifier.update(chunk),
            }
        }
    }

    pub(crate) fn finish(self) -> Result<(), Problem> {
        let matches = |candidate: Candidate| match candidate {
            Candidate::Hmac { mac, signatures } => {
                signatures.iter().any(|signature| mac.clone().verify_slice(signature).is_ok())
            }
            Candidate::Ed25519(verifier) => verifier.finalize_and_verify().is_ok(),
        };
        match self.candidates.into_iter().any(matches) {
            true => Ok(()),
            false => Err(self.refused),
        }
    }
}

fn timestamp_refused(reason: &str) -> Problem {
    Problem::new(Kind::TimestampRefused, format!("{reason}; the request was not run"))
}
