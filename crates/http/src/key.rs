//! The `Idempotency-Key` field: an RFC 9651 String of 1 to 255 characters.
//!
//! Many clients send the key without quotes. Unless the rules are strict, a bare value is taken as well, as long as it
//! could not be mistaken for a list, parameters or a broken string.

use sfv::{GenericBareItem, Item, Parser};

/// The longest key, in characters.
pub const MAX_CHARS: usize = 255;

/// Why a key was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// More than one field line.
    #[error("there is more than one {name} field; send exactly one")]
    Several {
        /// The field.
        name: &'static str,
    },
    /// Nothing inside.
    #[error("the key is empty")]
    Empty,
    /// Longer than the limit.
    #[error("the key is longer than {MAX_CHARS} characters")]
    TooLong,
    /// Neither a String nor, where that is allowed, a bare key.
    #[error(
        "the key is not a structured-field String: write it in double quotes, with visible ASCII characters and spaces only"
    )]
    Malformed,
}

/// The key in a field value.
pub fn parse(value: &[u8], strict: bool) -> Result<String, KeyError> {
    let text = match Parser::new(value).parse::<Item>() {
        Ok(Item { bare_item: GenericBareItem::String(text), .. }) => text.into(),
        Ok(_) | Err(_) if !strict => bare(value)?,
        Ok(_) | Err(_) => return Err(KeyError::Malformed),
    };
    check_length(text)
}

/// A key from elsewhere than the `Idempotency-Key` field: any visible text.
pub(crate) fn plain(value: &[u8]) -> Result<String, KeyError> {
    let text = std::str::from_utf8(value).map_err(|_| KeyError::Malformed)?.trim();
    if text.chars().any(char::is_control) {
        return Err(KeyError::Malformed);
    }
    check_length(text.to_owned())
}

fn bare(value: &[u8]) -> Result<String, KeyError> {
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
    fn quoted_and_bare_are_the_same_key() {
        assert_eq!(parse(b"\"k1\"", false).unwrap(), "k1");
        assert_eq!(parse(b"k1", false).unwrap(), "k1");
        assert_eq!(parse(b"\"k1\"", true).unwrap(), "k1");
        assert_eq!(parse(b"k1", true), Err(KeyError::Malformed));
    }

    #[test]
    fn escapes_are_undone_and_parameters_ignored() {
        assert_eq!(parse(br#""a\"b\\c""#, true).unwrap(), r#"a"b\c"#);
        assert_eq!(parse(br#""k";v=1;w="x""#, true).unwrap(), "k");
        assert_eq!(parse(br#"  "k"  "#, true).unwrap(), "k");
    }

    #[test]
    fn numbers_tokens_and_the_like_are_bare_keys_only_where_those_are_allowed() {
        for value in
            ["17", "1.5", "abc:def/ghi", "?1", ":aGk=:", "@17", "8e03978e-40d5-43e8-bc93-6894a57f9324"]
        {
            assert_eq!(parse(value.as_bytes(), false).unwrap(), value);
            assert_eq!(parse(value.as_bytes(), true), Err(KeyError::Malformed), "{value}");
        }
    }

    #[test]
    fn what_is_no_key_is_refused_in_both_modes() {
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
        fn any_string_survives_its_quoting(text in "[ -~]{1,255}") {
            let quoted = format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
            prop_assert_eq!(parse(quoted.as_bytes(), true).unwrap(), text);
        }

        #[test]
        fn no_bytes_make_it_panic_or_give_an_unfit_key(value in prop::collection::vec(any::<u8>(), 0..300), strict: bool) {
            if let Ok(key) = parse(&value, strict) {
                prop_assert!((1..=MAX_CHARS).contains(&key.len()));
                prop_assert!(key.bytes().all(|byte| (0x20..0x7f).contains(&byte)));
            }
        }

        #[test]
        fn strict_takes_nothing_that_lenient_reads_otherwise(value in "[ -~]{0,40}") {
            if let Ok(key) = parse(value.as_bytes(), true) {
                prop_assert_eq!(parse(value.as_bytes(), false), Ok(key));
            }
        }
    }
}
