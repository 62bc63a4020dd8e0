//! Words of the settings and of the wire: an enum, its words, and an error that names them all.

use thiserror::Error;

/// A word that is none of those that are known.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{what} must be one of {}, not {word:?}", known.join(", "))]
pub struct UnknownWord {
    /// What the word was to say.
    pub what: &'static str,
    /// The word.
    pub word: String,
    /// The words that are known.
    pub known: &'static [&'static str],
}

/// Gives an enum its words: `ALL`, `as_str`, `Display`, `FromStr` and serde in both directions.
macro_rules! words {
    ($name:ident, $what:literal, { $($variant:ident = $word:literal),+ $(,)? }) => {
        impl $name {
            /// Every one of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];
            /// Their words, in the same order.
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            /// Its word.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::named_enum::UnknownWord;

            fn from_str(word: &str) -> Result<Self, Self::Err> {
                match word {
                    $($word => Ok(Self::$variant),)+
                    _ => Err($crate::named_enum::UnknownWord {
                        what: $what,
                        word: word.chars().take(64).collect(),
                        known: Self::WORDS,
                    }),
                }
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let word = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                word.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
pub(crate) use words;
