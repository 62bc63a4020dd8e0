//! Secrets, and the keys that a scheme makes of them.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::VerifyingKey;
use hmac::{Hmac, KeyInit};
use sha2::Sha256;

use super::Candidate;
use super::rule::Algorithm;
use crate::parse_error::ParseError;

/// A secret that a sender shares with us, or the public key that it signs for. It is never printed.
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

/// What verifies a signature.
#[derive(Clone)]
pub(super) enum Key {
    Hmac(Hmac<Sha256>),
    Ed25519(VerifyingKey),
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

impl Key {
    /// The secret as it is.
    pub(super) fn hmac(secret: &Secret) -> Result<Self, ParseError> {
        hmac_of(&secret.0)
    }

    /// A public key in hexadecimal digits or base64.
    pub(super) fn ed25519(secret: &Secret) -> Result<Self, ParseError> {
        let decoded = hex::decode(&secret.0).ok().or_else(|| STANDARD.decode(&secret.0).ok());
        ed25519_of(decoded).ok_or_else(|| {
            ParseError::new("is not an Ed25519 public key in hexadecimal digits or base64".to_owned())
        })
    }

    /// A secret of Standard Webhooks: `whsec_` and base64, or a public key, `whpk_` and base64.
    pub(super) fn standard_webhooks(secret: &Secret) -> Result<Self, ParseError> {
        let invalid = || ParseError::new("is neither whsec_<base64> nor whpk_<base64>".to_owned());
        let text = std::str::from_utf8(&secret.0).map_err(|_| invalid())?;
        if let Some(public) = text.strip_prefix("whpk_") {
            return ed25519_of(STANDARD.decode(public).ok()).ok_or_else(invalid);
        }
        // As in the libraries of the specification, the prefix may be missing.
        let bytes = STANDARD.decode(text.strip_prefix("whsec_").unwrap_or(text)).map_err(|_| invalid())?;
        match bytes.is_empty() {
            true => Err(invalid()),
            false => hmac_of(&bytes),
        }
    }

    /// What this key can verify of some signatures.
    pub(super) fn begin(&self, signatures: &[(Algorithm, Vec<u8>)]) -> Vec<Candidate> {
        let of = |algorithm| {
            signatures.iter().filter(move |(of, _)| *of == algorithm).map(|(_, signature)| signature)
        };
        match self {
            Self::Hmac(mac) => {
                let signatures: Vec<_> = of(Algorithm::HmacSha256).cloned().collect();
                let is_signed = !signatures.is_empty();
                is_signed.then(|| Candidate::Hmac { mac: mac.clone(), signatures }).into_iter().collect()
            }
            Self::Ed25519(key) => of(Algorithm::Ed25519)
                .filter_map(|signature| ed25519_dalek::Signature::from_slice(signature).ok())
                .filter_map(|signature| key.verify_stream(&signature).ok())
                .map(|verifier| Candidate::Ed25519(Box::new(verifier)))
                .collect(),
        }
    }
}

fn hmac_of(key: &[u8]) -> Result<Key, ParseError> {
    let mac = Hmac::new_from_slice(key);
    mac.map(Key::Hmac).map_err(|_| ParseError::new("cannot be used as a key".to_owned()))
}

fn ed25519_of(bytes: Option<Vec<u8>>) -> Option<Key> {
    let bytes: [u8; 32] = bytes?.try_into().ok()?;
    let key = VerifyingKey::from_bytes(&bytes).ok()?;
    // Of a weak key, signatures can be made by anyone.
    (!key.is_weak()).then_some(Key::Ed25519(key))
}
