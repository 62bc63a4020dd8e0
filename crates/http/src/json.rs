//! JSON as a request's name needs it: every number with all its digits.
//!
//! A double holds 53 bits. Read into one, `9007199254740993` and `9007199254740992` are the same number, and one
//! request would be taken for a repeat of another. So numbers are kept as text here, in one spelling for each value:
//! `1e2`, `100` and `100.0` are `100`. In a [`Value`] such a number is a text behind a mark that no text of the
//! document has: a text that begins like the mark gets another one.
//!
//! What two readers may read differently is not read at all, and compared byte by byte instead: names that come twice
//! in one object, and numbers whose exponent is out of all proportion.

use serde_json::{Map, Value};

/// As deep as `serde_json` goes.
const DEPTH: usize = 128;
const NUMBER: &str = "\0n";
const TEXT: &str = "\0t";
/// Zeros that are written out; beyond, a number has an exponent.
const ZEROS: usize = 20;

/// A document, if it is one.
pub(crate) fn parse(bytes: &[u8]) -> Option<Value> {
    let mut reader = Reader { bytes, at: 0 };
    let value = reader.value(0)?;
    reader.skip_space();
    (reader.at == bytes.len()).then_some(value)
}

/// The text of a string or number of a parsed document.
pub(crate) fn scalar(value: &Value) -> Option<&str> {
    let Value::String(text) = value else { return None };
    Some(text.strip_prefix(NUMBER).or_else(|| text.strip_prefix(TEXT)).unwrap_or(text))
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn value(&mut self, depth: usize) -> Option<Value> {
        self.skip_space();
        match self.peek()? {
            b'{' if depth < DEPTH => self.object(depth + 1),
            b'[' if depth < DEPTH => self.array(depth + 1),
            b'"' => self.text().map(|text| {
                Value::String(if text.starts_with('\0') { format!("{TEXT}{text}") } else { text })
            }),
            b't' => self.word("true", Value::Bool(true)),
            b'f' => self.word("false", Value::Bool(false)),
            b'n' => self.word("null", Value::Null),
            _ => self.number().map(Value::String),
        }
    }

    fn object(&mut self, depth: usize) -> Option<Value> {
        self.at += 1;
        let mut fields = Map::new();
        if self.takes(b'}') {
            return Some(Value::Object(fields));
        }
        loop {
            self.skip_space();
            let name = self.text()?;
            if !self.takes(b':') || fields.insert(name, self.value(depth)?).is_some() {
                return None;
            }
            if self.takes(b'}') {
                return Some(Value::Object(fields));
            }
            self.takes(b',').then_some(())?;
        }
    }

    fn array(&mut self, depth: usize) -> Option<Value> {
        self.at += 1;
        let mut items = Vec::new();
        if self.takes(b']') {
            return Some(Value::Array(items));
        }
        loop {
            items.push(self.value(depth)?);
            if self.takes(b']') {
                return Some(Value::Array(items));
            }
            self.takes(b',').then_some(())?;
        }
    }

    /// What a string is, `serde_json` knows; here only its end is looked for.
    fn text(&mut self) -> Option<String> {
        (self.peek()? == b'"').then_some(())?;
        let mut end = self.at + 1;
        loop {
            match self.bytes.get(end)? {
                b'"' => break,
                b'\\' => end += 2,
                _ => end += 1,
            }
        }
        let text = serde_json::from_slice(&self.bytes[self.at..=end]).ok()?;
        self.at = end + 1;
        Some(text)
    }

    fn number(&mut self) -> Option<String> {
        let rest = &self.bytes[self.at..];
        let is_in = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E');
        let token = &rest[..rest.iter().position(|byte| !is_in(byte)).unwrap_or(rest.len())];
        // The grammar of numbers, without their values.
        serde_json::from_slice::<serde::de::IgnoredAny>(token).ok()?;
        self.at += token.len();
        spelled(std::str::from_utf8(token).ok()?).map(|number| format!("{NUMBER}{number}"))
    }

    fn word(&mut self, word: &str, value: Value) -> Option<Value> {
        self.bytes[self.at..].starts_with(word.as_bytes()).then(|| {
            self.at += word.len();
            value
        })
    }

    fn takes(&mut self, byte: u8) -> bool {
        self.skip_space();
        let is_there = self.peek() == Some(byte);
        self.at += usize::from(is_there);
        is_there
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }
}

/// The one spelling of a number: `digits × 10^exponent`, without zeros at either end of the digits.
fn spelled(token: &str) -> Option<String> {
    let (sign, token) = token.strip_prefix('-').map_or(("", token), |token| ("-", token));
    let (mantissa, exponent) = token.split_once(['e', 'E']).unwrap_or((token, "0"));
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{part}");
    let digits = digits.trim_start_matches('0');
    let significant = digits.trim_end_matches('0');
    if significant.is_empty() {
        return Some("0".to_owned());
    }
    let dropped = i64::try_from(digits.len() - significant.len()).ok()?;
    let exponent =
        exponent.parse::<i64>().ok()?.checked_add(dropped)?.checked_sub(part.len().try_into().ok()?)?;
    Some(match usize::try_from(exponent) {
        Ok(zeros) if zeros <= ZEROS => format!("{sign}{significant}{}", "0".repeat(zeros)),
        Ok(_) => format!("{sign}{significant}e{exponent}"),
        Err(_) => {
            let places = usize::try_from(exponent.unsigned_abs()).ok()?;
            if places < significant.len() {
                let (whole, part) = significant.split_at(significant.len() - places);
                format!("{sign}{whole}.{part}")
            } else if places - significant.len() <= ZEROS {
                format!("{sign}0.{}{significant}", "0".repeat(places - significant.len()))
            } else {
                format!("{sign}{significant}e{exponent}")
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn number(text: &str) -> String {
        scalar(&parse(text.as_bytes()).unwrap()).unwrap().to_owned()
    }

    #[test]
    fn a_number_has_one_spelling_and_all_its_digits() {
        for (spelling, tokens) in [
            ("0", &["0", "-0", "0.0", "0e5", "-0.00E-9"][..]),
            ("100", &["100", "100.0", "1e2", "1E+2", "10.00e1"]),
            ("-20", &["-20", "-2.0e1"]),
            ("0.5", &["0.5", "5e-1", "0.50"]),
            ("12.34", &["12.34", "1234e-2", "0.1234e2"]),
            ("0.0012", &["0.0012", "12e-4"]),
            ("9007199254740993", &["9007199254740993", "9007199254740993.0"]),
            ("18446744073709551617", &["18446744073709551617"]),
            ("1e400", &["1e400", "10e399"]),
            ("5e-400", &["5e-400", "0.5e-399"]),
        ] {
            for token in tokens {
                assert_eq!(number(token), spelling, "{token}");
            }
        }
        assert_eq!(parse(b"1e99999999999999999999"), None);
    }

    #[test]
    fn what_two_readers_may_read_differently_is_not_read() {
        for text in ["{\"a\":1,\"a\":1}", "{\"a\":1,\"\\u0061\":2}", "{\"b\":{\"a\":1,\"a\":1}}"] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_text_is_no_number_whatever_it_looks_like() {
        let texts = [
            "1",
            "\"1\"",
            "\"\\u0000n1\"",
            "\"\\u0000t1\"",
            "\"\\u0000t\\u0000n1\"",
            "\"\\u00001\"",
            "\"n1\"",
        ];
        let values: Vec<_> = texts.iter().map(|text| parse(text.as_bytes()).unwrap()).collect();
        for (at, one) in values.iter().enumerate() {
            assert!(values.iter().skip(at + 1).all(|other| other != one), "{}", texts[at]);
        }
        assert_eq!(scalar(&values[2]), Some("\0n1"));
        assert_eq!(scalar(&values[0]), scalar(&values[1]));
    }

    #[test]
    fn depth_has_a_bound() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse(nested(100).as_bytes()).is_some());
        assert!(parse(nested(200).as_bytes()).is_none());
        assert!(parse("[".repeat(1_000_000).as_bytes()).is_none());
    }

    /// Documents, and bytes that are nearly documents.
    fn nearly_json() -> impl Strategy<Value = String> {
        let pieces = prop::sample::select(vec![
            "{",
            "}",
            "[",
            "]",
            ":",
            ",",
            "\"a\"",
            "\"b\"",
            "\"\\u00e9\"",
            "\"",
            "\\",
            "1",
            "-",
            "0",
            ".",
            "e",
            "5e1",
            "1.5",
            "true",
            "null",
            "fals",
            " ",
            "\n",
            "é",
        ]);
        prop::collection::vec(pieces, 0..12).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn it_reads_what_serde_reads_but_for_names_given_twice(text in nearly_json()) {
            let serde = serde_json::from_str::<serde::de::IgnoredAny>(&text);
            match parse(text.as_bytes()) {
                Some(_) => prop_assert!(serde.is_ok(), "{text}"),
                None => prop_assert!(serde.is_err() || text.contains("\"a\"") || text.contains("\"b\"") || text.contains("\\u"), "{text}"),
            }
        }

        #[test]
        fn whole_numbers_are_told_apart(one: i128, other: i128) {
            prop_assert_eq!(number(&one.to_string()), one.to_string());
            prop_assert_eq!(number(&one.to_string()) == number(&other.to_string()), one == other);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = parse(&bytes);
        }
    }
}
