//! Enums whose variants have fixed names, in settings and on the wire.

use thiserror::Error;

/// A name that no variant has.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{what} must be one of {}, not {name:?}", known.join(", "))]
pub struct UnknownName {
    /// What the name was meant for.
    pub what: &'static str,
    /// The name.
    pub name: String,
    /// The names of all variants.
    pub known: &'static [&'static str],
}

/// Implements `ALL`, `NAMES`, `as_str`, `Display`, `FromStr`, `Serialize` and `Deserialize`.
macro_rules! named_enum {
    ($type:ident, $what:literal, { $($variant:ident = $name:literal),+ $(,)? }) => {
        impl $type {
            /// All variants.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];
            /// The names of all variants, in the same order.
            pub const NAMES: &'static [&'static str] = &[$($name),+];

            /// The name of the variant.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),+
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::named_enum::UnknownName;

            fn from_str(name: &str) -> Result<Self, Self::Err> {
                match name {
                    $($name => Ok(Self::$variant),)+
                    _ => Err($crate::named_enum::UnknownName {
                        what: $what,
                        name: name.chars().take(64).collect(),
                        known: Self::NAMES,
                    }),
                }
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let name = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                name.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
pub(crate) use named_enum;
