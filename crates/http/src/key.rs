//! The `Idempotency-Key` header: an RFC 9651 String of 1 to 255 characters.
//!
//! Many clients send the key without quotes. Unless the rules are strict, an unquoted value is accepted too, provided that
//! it cannot be mistaken for a list, parameters or a malformed string.

use sfv::{GenericBareItem, Item, Parser};

/// The longest key, in characters.
pub const MAX_CHARS: usize = 255;

/// Why a key is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The header occurs more than once.
    #[error("there is more than one {name} header; send exactly one")]
    Several {
        /// The header.
        name: &'static str,
    },
    /// The key is empty.
    #[error("the key is empty")]
    Empty,
    /// The key is longer than the limit.
    #[error("the key is longer than {MAX_CHARS} characters")]
    TooLong,
    /// The value is neither a String nor, where that is allowed, an unquoted key.
    #[error(
        "the key is not a structured-field String: put it in double quotes, and use only visible ASCII characters and spaces"
    )]
    Malformed,
}

/// Parses the value of an `Idempotency-Key` header.
pub fn parse(value: &[u8], strict: bool) -> Result<String, KeyError> {
    let text = match Parser::new(value).parse::<Item>() {
        Ok(Item { bare_item: GenericBareItem::String(text), .. }) => text.into(),
        Ok(_) | Err(_) if !strict => unquoted(value)?,
        Ok(_) | Err(_) => return Err(KeyError::Malformed),
    };
    check_length(text)
}

/// Checks a key from any other source: text without control characters.
pub(crate) fn plain(value: &[u8]) -> Result<String, KeyError> {
    let text = std::str::from_utf8(value).map_err(|_| KeyError::Malformed)?.trim();
    if text.chars().any(char::is_control) {
        return Err(KeyError::Malformed);
    }
    check_length(text.to_owned())
}

fn unquoted(value: &[u8]) -> Result<String, KeyError> {
    let value = value.trim_ascii();
    let fits = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b',' | b';' | b'(' | b')');
    if !value.iter().all(fits) {
        return Err(KeyError::Malformed);
    }
    Ok(value.iter().map(|byte| char::from(*byte)).collect())
}

fn check_length(text: String) -> Result<String, KeyError> {
    match text.chars().count() {
        0 => Err(KeyError::Empty),
        count if count > MAX_CHARS => Err(KeyError::TooLong),
        _ => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quoted_and_unquoted_are_the_same_key() {
        assert_eq!(parse(b"\"k1\"", false).unwrap(), "k1");
        assert_eq!(parse(b"k1", false).unwrap(), "k1");
        assert_eq!(parse(b"\"k1\"", true).unwrap(), "k1");
        assert_eq!(parse(b"k1", true), Err(KeyError::Malformed));
    }

    #[test]
    fn escapes_are_decoded_and_parameters_ignored() {
        assert_eq!(parse(br#""a\"b\\c""#, true).unwrap(), r#"a"b\c"#);
        assert_eq!(parse(br#""k";v=1;w="x""#, true).unwrap(), "k");
        assert_eq!(parse(br#"  "k"  "#, true).unwrap(), "k");
    }

    #[test]
    fn unquoted_numbers_and_tokens_are_keys_unless_the_rules_are_strict() {
        for value in
            ["17", "1.5", "abc:def/ghi", "?1", ":aGk=:", "@17", "8e03978e-40d5-43e8-bc93-6894a57f9324"]
        {
            assert_eq!(parse(value.as_bytes(), false).unwrap(), value);
            assert_eq!(parse(value.as_bytes(), true), Err(KeyError::Malformed), "{value}");
        }
    }

    #[test]
    fn invalid_keys_are_refused_in_both_modes() {
        for strict in [false, true] {
            for value in [
                &b"\"unterminated"[..],
                b"un\"terminated\"",
                b"\"a\" \"b\"",
                b"\"a\",\"b\"",
                b"a,b",
                b"a;b",
                b"(a)",
                b"a b",
                b"\"tab\there\"",
                b"\"\xc3\xa9\"",
                b"\xc3\xa9",
                b"a\x7fb",
                br#""a\b""#,
                b"%\"f%c3%bc\"",
            ] {
                assert_eq!(
                    parse(value, strict),
                    Err(KeyError::Malformed),
                    "{:?}",
                    String::from_utf8_lossy(value)
                );
            }
        }
        assert_eq!(parse(b"\"\"", true), Err(KeyError::Empty));
        assert_eq!(parse(b"", false), Err(KeyError::Empty));
        assert_eq!(parse(format!("\"{}\"", "k".repeat(256)).as_bytes(), true), Err(KeyError::TooLong));
        assert_eq!(parse("k".repeat(256).as_bytes(), false), Err(KeyError::TooLong));
        assert_eq!(parse("k".repeat(255).as_bytes(), false).unwrap().len(), 255);
    }

    proptest! {
        #[test]
        fn any_quoted_string_round_trips(text in "[ -~]{1,255}") {
            let quoted = format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
            prop_assert_eq!(parse(quoted.as_bytes(), true).unwrap(), text);
        }

        #[test]
        fn arbitrary_bytes_neither_panic_nor_give_an_invalid_key(value in prop::collection::vec(any::<u8>(), 0..300), strict: bool) {
            if let Ok(key) = parse(&value, strict) {
                prop_assert!((1..=MAX_CHARS).contains(&key.len()));
                prop_assert!(key.bytes().all(|byte| (0x20..0x7f).contains(&byte)));
            }
        }

        #[test]
        fn strict_and_lenient_agree_on_strict_keys(value in "[ -~]{0,40}") {
            if let Ok(key) = parse(value.as_bytes(), true) {
                prop_assert_eq!(parse(value.as_bytes(), false), Ok(key));
            }
        }
    }
}
