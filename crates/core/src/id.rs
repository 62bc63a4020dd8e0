//! Nonces and tokens: sixteen random bytes that are compared for equality only.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::{Entropy, to_hex};

/// The text of an id, index or digest does not have the expected number of hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected {digits} hexadecimal digits")]
pub struct ParseIdError {
    pub(crate) digits: usize,
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name([u8; 16]);

        impl $name {
            /// Draws a random id.
            pub fn draw(entropy: &dyn Entropy) -> Self {
                Self(entropy.draw())
            }

            /// Creates an id from its bytes.
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(bytes)
            }

            /// The bytes.
            pub const fn as_bytes(&self) -> &[u8; 16] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&to_hex(&self.0))
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;
            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                let mut bytes = [0; 16];
                hex::decode_to_slice(text, &mut bytes).map_err(|_| ParseIdError { digits: 32 })?;
                Ok(Self(bytes))
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    };
}

id! {
    /// Identifies one call. A retry with the same nonce after a lost reply gets the same result.
    Nonce
}

id! {
    /// Proof of a grant. Whoever has the current token may renew, complete or release the claim, or declare it in doubt.
    Token
}

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Nonce({self})")
    }
}

/// Prints only the first digits: a token is a capability.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({}…)", hex::encode(&self.0[..3]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_round_trip_through_text() {
        let token = Token::from_bytes([7; 16]);
        assert_eq!(token.to_string().parse(), Ok(token));
        assert_eq!("07".parse::<Token>(), Err(ParseIdError { digits: 32 }));
        assert_eq!(format!("{token:?}"), "Token(070707…)");
    }
}
