//! Extracts the JSON values that a key or fingerprint needs, with every digit of every number.
//!
//! A double has 53 bits of precision. As doubles, `9007199254740993` and `9007199254740992` are equal, and one request
//! would be taken for a retry of another. So numbers are kept as text in a canonical form: `1e2`, `100` and `100.0` are
//! all `100`. In a [`Value`], such a number is a string with a prefix that no string of the document has: strings that
//! start like the prefix get a prefix of their own.
//!
//! A document that two parsers may read differently counts as not being JSON: one with a duplicate member name, or with a
//! number whose exponent is out of range.
//!
//! Only the requested values are built; everything else is validated and skipped. If a body is longer than the part that is
//! parsed, the values that are complete within that part are found, and [`Document::is_truncated`] is set.

mod number;

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::{Map, Value};

use self::number::canonical;
use crate::pointer::Pointer;

/// The same limit as in `serde_json`.
const DEPTH_MAX: usize = 128;
/// The prefix of numbers.
const NUMBER: &str = "\0n";
/// The prefix of strings that start with a NUL.
const TEXT: &str = "\0t";

/// The requested values of a JSON document.
#[derive(Default)]
pub(crate) struct Document<'a> {
    found: Vec<(&'a Pointer, Value)>,
    is_truncated: bool,
}

impl<'a> Document<'a> {
    /// Finds the values that the pointers name. `is_whole` tells whether the document ends where the bytes end.
    pub(crate) fn read(bytes: &[u8], is_whole: bool, pointers: &[&'a Pointer]) -> Self {
        let tokens: Vec<Vec<String>> = pointers.iter().map(|pointer| pointer.tokens().collect()).collect();
        let paths: Vec<Path<'_>> =
            tokens.iter().enumerate().map(|(index, tokens)| Path { index, tokens }).collect();
        let mut found = vec![None; pointers.len()];
        let mut reader = Reader { bytes, at: 0, is_whole, found: &mut found };
        let parsed = reader.value(0, false, &paths).and_then(|_| reader.end());
        let is_truncated = match parsed {
            Ok(()) => false,
            Err(Stop::Truncated) => true,
            Err(Stop::NotJson) => return Self::default(),
        };
        let pairs = pointers.iter().zip(found).filter_map(|(pointer, value)| Some((*pointer, value?)));
        Self { found: pairs.collect(), is_truncated }
    }

    /// A requested value.
    pub(crate) fn get(&self, pointer: &Pointer) -> Option<&Value> {
        self.found.iter().find_map(|(known, value)| (*known == pointer).then_some(value))
    }

    /// The text of a requested string or number.
    pub(crate) fn text(&self, pointer: &Pointer) -> Option<&str> {
        self.get(pointer).and_then(scalar)
    }

    /// Takes a requested value out of the document.
    pub(crate) fn take(mut self, pointer: &Pointer) -> Option<Value> {
        let index = self.found.iter().position(|(known, _)| *known == pointer)?;
        Some(self.found.swap_remove(index).1)
    }

    /// Whether the document continues after the part that was parsed.
    pub(crate) fn is_truncated(&self) -> bool {
        self.is_truncated
    }
}

/// The text of a string or number, without its prefix.
pub(crate) fn scalar(value: &Value) -> Option<&str> {
    let Value::String(text) = value else { return None };
    Some(text.strip_prefix(NUMBER).or_else(|| text.strip_prefix(TEXT)).unwrap_or(text))
}

/// Why parsing stopped before the end of the document.
enum Stop {
    NotJson,
    /// The bytes ended, and the document continues.
    Truncated,
}

/// The remaining tokens of the pointer with this index.
#[derive(Clone, Copy)]
struct Path<'a> {
    index: usize,
    tokens: &'a [String],
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    is_whole: bool,
    found: &'a mut [Option<Value>],
}

impl<'a> Reader<'a> {
    /// Parses a value. The result is null unless `keep` is set or the value was requested.
    fn value(&mut self, depth: usize, keep: bool, paths: &[Path<'_>]) -> Result<Value, Stop> {
        self.skip_space();
        let keep = keep || paths.iter().any(|path| path.tokens.is_empty());
        let value = match self.peek()? {
            b'{' if depth < DEPTH_MAX => self.object(depth + 1, keep, paths)?,
            b'[' if depth < DEPTH_MAX => self.array(depth + 1, keep, paths)?,
            b'"' => {
                let text = self.text()?;
                let prefix = if text.starts_with('\0') { TEXT } else { "" };
                if keep { Value::String([prefix, &text].concat()) } else { Value::Null }
            }
            b't' => self.literal("true", Value::Bool(true))?,
            b'f' => self.literal("false", Value::Bool(false))?,
            b'n' => self.literal("null", Value::Null)?,
            _ => Value::String(self.number()?),
        };
        for path in paths.iter().filter(|path| path.tokens.is_empty()) {
            self.found[path.index] = Some(value.clone());
        }
        Ok(value)
    }

    fn object(&mut self, depth: usize, keep: bool, paths: &[Path<'_>]) -> Result<Value, Stop> {
        self.at += 1;
        let (mut names, mut fields) = (HashSet::new(), Map::new());
        if self.takes(b'}')? {
            return Ok(Value::Object(fields));
        }
        loop {
            self.skip_space();
            let name = self.text()?;
            self.expect(b':')?;
            let value = self.value(depth, keep, &inside(paths, |token| token == name))?;
            if keep {
                fields.insert(name.clone().into_owned(), value);
            }
            if !names.insert(name) {
                return Err(Stop::NotJson);
            }
            if self.takes(b'}')? {
                return Ok(Value::Object(fields));
            }
            self.expect(b',')?;
        }
    }

    fn array(&mut self, depth: usize, keep: bool, paths: &[Path<'_>]) -> Result<Value, Stop> {
        self.at += 1;
        let mut items = Vec::new();
        if self.takes(b']')? {
            return Ok(Value::Array(items));
        }
        for index in 0_usize.. {
            let value = self.value(depth, keep, &inside(paths, |token| is_index(token, index)))?;
            if keep {
                items.push(value);
            }
            if self.takes(b']')? {
                break;
            }
            self.expect(b',')?;
        }
        Ok(Value::Array(items))
    }

    /// Parses a string. Only its end is searched for here; `serde_json` does the rest.
    fn text(&mut self) -> Result<Cow<'a, str>, Stop> {
        if self.peek()? != b'"' {
            return Err(Stop::NotJson);
        }
        let mut end = self.at + 1;
        loop {
            match self.bytes.get(end).ok_or_else(|| self.end_of_bytes())? {
                b'"' => break,
                b'\\' => end += 2,
                _ => end += 1,
            }
        }
        let token = &self.bytes[self.at..=end];
        self.at = end + 1;
        let plain = serde_json::from_slice::<&str>(token).map(Cow::Borrowed);
        plain.or_else(|_| serde_json::from_slice(token).map(Cow::Owned)).map_err(|_| Stop::NotJson)
    }

    fn number(&mut self) -> Result<String, Stop> {
        let rest = &self.bytes[self.at..];
        let is_number = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E');
        let token = &rest[..rest.iter().position(|byte| !is_number(byte)).unwrap_or(rest.len())];
        if token.len() == rest.len() && !self.is_whole {
            return Err(Stop::Truncated);
        }
        // Checks the grammar only.
        serde_json::from_slice::<serde::de::IgnoredAny>(token).map_err(|_| Stop::NotJson)?;
        self.at += token.len();
        let number = std::str::from_utf8(token).ok().and_then(canonical);
        number.map(|number| format!("{NUMBER}{number}")).ok_or(Stop::NotJson)
    }

    fn literal(&mut self, literal: &str, value: Value) -> Result<Value, Stop> {
        let rest = &self.bytes[self.at..];
        if rest.len() < literal.len() && literal.as_bytes().starts_with(rest) {
            return Err(self.end_of_bytes());
        }
        if !rest.starts_with(literal.as_bytes()) {
            return Err(Stop::NotJson);
        }
        self.at += literal.len();
        Ok(value)
    }

    /// Checks that nothing but white space follows.
    fn end(&mut self) -> Result<(), Stop> {
        self.skip_space();
        match self.bytes.get(self.at) {
            Some(_) => Err(Stop::NotJson),
            None if self.is_whole => Ok(()),
            None => Err(Stop::Truncated),
        }
    }

    fn expect(&mut self, byte: u8) -> Result<(), Stop> {
        if self.takes(byte)? { Ok(()) } else { Err(Stop::NotJson) }
    }

    fn takes(&mut self, byte: u8) -> Result<bool, Stop> {
        self.skip_space();
        let is_there = self.peek()? == byte;
        self.at += usize::from(is_there);
        Ok(is_there)
    }

    fn skip_space(&mut self) {
        while matches!(self.bytes.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Result<u8, Stop> {
        self.bytes.get(self.at).copied().ok_or_else(|| self.end_of_bytes())
    }

    /// Why parsing stops at the end of the bytes.
    fn end_of_bytes(&self) -> Stop {
        if self.is_whole { Stop::NotJson } else { Stop::Truncated }
    }
}

/// The paths that continue in a member or item.
fn inside<'a>(paths: &[Path<'a>], matches: impl Fn(&str) -> bool) -> Vec<Path<'a>> {
    let next = |path: &Path<'a>| {
        let (first, tokens) = path.tokens.split_first()?;
        matches(first).then_some(Path { index: path.index, tokens })
    };
    paths.iter().filter_map(next).collect()
}

/// Whether a token of a pointer names this array item. RFC 6901 does not allow leading zeros.
fn is_index(token: &str, index: usize) -> bool {
    (token == "0" || !token.starts_with(['0', '+'])) && token.parse() == Ok(index)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(bytes: &[u8]) -> Option<Value> {
        let whole = Pointer::whole();
        Document::read(bytes, true, &[&whole]).take(&whole)
    }

    fn pick(text: &str, is_whole: bool, pointers: &[&str]) -> (Vec<Option<String>>, bool) {
        let pointers: Vec<Pointer> = pointers.iter().map(|pointer| pointer.parse().unwrap()).collect();
        let document = Document::read(text.as_bytes(), is_whole, &pointers.iter().collect::<Vec<_>>());
        let found = pointers.iter().map(|pointer| document.text(pointer).map(ToOwned::to_owned));
        (found.collect(), document.is_truncated())
    }

    #[test]
    fn only_the_requested_values_are_found() {
        let text = r#"{"x":[1,{"a/b":"c"},"d"],"y":{"x":5},"e":"\u0065"}"#;
        let pointers = ["/x/1/a~1b", "/x/2", "/x/02", "/x/3", "/y/x", "/y", "/e", "/z"];
        let found: Vec<_> = [Some("c"), Some("d"), None, None, Some("5"), None, Some("e"), None]
            .map(|text| text.map(ToOwned::to_owned))
            .into();
        assert_eq!(pick(text, true, &pointers), (found, false));
        let (one, whole): (Pointer, Pointer) = ("/y/x".parse().unwrap(), Pointer::whole());
        let both = Document::read(text.as_bytes(), true, &[&one, &whole]);
        assert_eq!((both.text(&one), both.get(&whole).unwrap()["e"].as_str()), (Some("5"), Some("e")));
    }

    #[test]
    fn a_truncated_document_yields_its_complete_values() {
        let text = r#"{"id":"E1","n":17,"ok":true,"rest":"long"}"#;
        for end in 0..text.len() {
            let (found, is_truncated) = pick(&text[..end], false, &["/id", "/n", "/rest"]);
            assert!(is_truncated, "{}", &text[..end]);
            assert_eq!(found[0].as_deref(), (end >= 10).then_some("E1"), "{}", &text[..end]);
            // The next byte could be a digit.
            assert_eq!(found[1].as_deref(), (end >= 18).then_some("17"), "{}", &text[..end]);
            assert_eq!(found[2].as_deref(), (end >= 41).then_some("long"), "{}", &text[..end]);
            assert_eq!(pick(&text[..end], true, &["/id"]), (vec![None], false), "{}", &text[..end]);
        }
        assert_eq!(pick(text, false, &["/id"]), (vec![Some("E1".to_owned())], true));
    }

    #[test]
    fn a_truncated_document_with_a_syntax_error_is_not_json() {
        for text in
            ["{\"id\":1,\"id\":2,", "{\"id\":1 x", "\u{1}", "{\"id\":1}x", "truly", "{\"id\":1,\"b\":tru,"]
        {
            assert_eq!(pick(text, false, &["/id"]), (vec![None], false), "{text}");
        }
    }

    fn number(text: &str) -> String {
        scalar(&parse(text.as_bytes()).unwrap()).unwrap().to_owned()
    }

    #[test]
    fn a_number_has_one_canonical_form_with_all_its_digits() {
        for (canonical, tokens) in [
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
                assert_eq!(number(token), canonical, "{token}");
            }
        }
        assert_eq!(parse(b"1e99999999999999999999"), None);
    }

    #[test]
    fn a_document_with_duplicate_names_is_not_json() {
        for text in ["{\"a\":1,\"a\":1}", "{\"a\":1,\"\\u0061\":2}", "{\"b\":{\"a\":1,\"a\":1}}"] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_string_never_equals_a_number() {
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
        for (index, value) in values.iter().enumerate() {
            assert!(values.iter().skip(index + 1).all(|other| other != value), "{}", texts[index]);
        }
        assert_eq!(scalar(&values[2]), Some("\0n1"));
        assert_eq!(scalar(&values[0]), scalar(&values[1]));
    }

    #[test]
    fn nesting_depth_is_limited() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse(nested(100).as_bytes()).is_some());
        assert!(parse(nested(200).as_bytes()).is_none());
        assert!(parse("[".repeat(1_000_000).as_bytes()).is_none());
    }

    /// JSON documents and texts that are almost JSON.
    fn nearly_json() -> impl Strategy<Value = String> {
        let tokens = prop::sample::select(vec![
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
        prop::collection::vec(tokens, 0..12).prop_map(|tokens| tokens.concat())
    }

    proptest! {
        #[test]
        fn it_accepts_what_serde_accepts_except_for_duplicate_names(text in nearly_json()) {
            let serde = serde_json::from_str::<serde::de::IgnoredAny>(&text);
            match parse(text.as_bytes()) {
                Some(_) => prop_assert!(serde.is_ok(), "{text}"),
                None => prop_assert!(serde.is_err() || text.contains("\"a\"") || text.contains("\"b\"") || text.contains("\\u"), "{text}"),
            }
        }

        #[test]
        fn integers_are_equal_only_if_their_values_are(one: i128, other: i128) {
            prop_assert_eq!(number(&one.to_string()), one.to_string());
            prop_assert_eq!(number(&one.to_string()) == number(&other.to_string()), one == other);
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = parse(&bytes);
        }
    }
}
