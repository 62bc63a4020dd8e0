//! Reads the JSON values that a key or a fingerprint needs, with every digit of every number.
//!
//! A double holds 53 bits. Read into one, `9007199254740993` and `9007199254740992` are the same number, and one
//! request would be taken for a repeat of another. So numbers are kept as text here, in one spelling for each value:
//! `1e2`, `100` and `100.0` are `100`. In a [`Value`] such a number is a text behind a mark that no text of the
//! document has: a text that begins like the mark gets another one.
//!
//! A document that two readers may read differently counts as no JSON: one with a name that comes twice in an object, or
//! with a number whose exponent is out of all proportion.
//!
//! Only the wanted values are built; everything else is checked and skipped. A body may be longer than what is read of
//! it: the values that are complete within the part that was read are then found, and [`Document::is_cut`] tells that
//! others may follow.

mod number;

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::{Map, Value};

use self::number::spelled;
use crate::pointer::Pointer;

/// As deep as `serde_json` goes.
const DEPTH: usize = 128;
const NUMBER: &str = "\0n";
const TEXT: &str = "\0t";

/// The wanted values of a JSON document.
#[derive(Default)]
pub(crate) struct Document<'a> {
    found: Vec<(&'a Pointer, Value)>,
    is_cut: bool,
}

impl<'a> Document<'a> {
    /// Finds the values at these places. `is_whole` tells whether the document ends where the bytes end.
    pub(crate) fn read(bytes: &[u8], is_whole: bool, wanted: &[&'a Pointer]) -> Self {
        let steps: Vec<Vec<String>> = wanted.iter().map(|pointer| pointer.steps().collect()).collect();
        let paths: Vec<Path<'_>> =
            steps.iter().enumerate().map(|(place, steps)| Path { place, steps }).collect();
        let mut found = vec![None; wanted.len()];
        let mut reader = Reader { bytes, at: 0, is_whole, found: &mut found };
        let ended = reader.value(0, false, &paths).and_then(|_| reader.end());
        let is_cut = match ended {
            Ok(()) => false,
            Err(Stop::Cut) => true,
            Err(Stop::NotJson) => return Self::default(),
        };
        let pairs = wanted.iter().zip(found).filter_map(|(pointer, value)| Some((*pointer, value?)));
        Self { found: pairs.collect(), is_cut }
    }

    /// The value at a place that was wanted.
    pub(crate) fn at(&self, pointer: &Pointer) -> Option<&Value> {
        self.found.iter().find_map(|(known, value)| (*known == pointer).then_some(value))
    }

    /// The text of the string or number at a place that was wanted.
    pub(crate) fn text(&self, pointer: &Pointer) -> Option<&str> {
        self.at(pointer).and_then(scalar)
    }

    /// Takes the value at a place that was wanted.
    pub(crate) fn take(mut self, pointer: &Pointer) -> Option<Value> {
        let at = self.found.iter().position(|(known, _)| *known == pointer)?;
        Some(self.found.swap_remove(at).1)
    }

    /// Whether there is more of the document than was read.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut
    }
}

/// The text of a string or number of a document.
pub(crate) fn scalar(value: &Value) -> Option<&str> {
    let Value::String(text) = value else { return None };
    Some(text.strip_prefix(NUMBER).or_else(|| text.strip_prefix(TEXT)).unwrap_or(text))
}

/// Why reading ended before the end of the document.
enum Stop {
    NotJson,
    /// The bytes ended; the document goes on.
    Cut,
}

/// What is left of the way to a wanted value.
#[derive(Clone, Copy)]
struct Path<'a> {
    place: usize,
    steps: &'a [String],
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    is_whole: bool,
    found: &'a mut [Option<Value>],
}

impl<'a> Reader<'a> {
    /// Reads a value. It is built if `keep` says so or if it is wanted; otherwise the result is null.
    fn value(&mut self, depth: usize, keep: bool, paths: &[Path<'_>]) -> Result<Value, Stop> {
        self.skip_space();
        let keep = keep || paths.iter().any(|path| path.steps.is_empty());
        let value = match self.peek()? {
            b'{' if depth < DEPTH => self.object(depth + 1, keep, paths)?,
            b'[' if depth < DEPTH => self.array(depth + 1, keep, paths)?,
            b'"' => {
                let text = self.text()?;
                let mark = if text.starts_with('\0') { TEXT } else { "" };
                if keep { Value::String([mark, &text].concat()) } else { Value::Null }
            }
            b't' => self.word("true", Value::Bool(true))?,
            b'f' => self.word("false", Value::Bool(false))?,
            b'n' => self.word("null", Value::Null)?,
            _ => Value::String(self.number()?),
        };
        for path in paths.iter().filter(|path| path.steps.is_empty()) {
            self.found[path.place] = Some(value.clone());
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
            let value = self.value(depth, keep, &inside(paths, |step| step == name))?;
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
        for number in 0_usize.. {
            let value = self.value(depth, keep, &inside(paths, |step| is_index(step, number)))?;
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

    /// What a string is, `serde_json` knows; here only its end is looked for.
    fn text(&mut self) -> Result<Cow<'a, str>, Stop> {
        if self.peek()? != b'"' {
            return Err(Stop::NotJson);
        }
        let mut end = self.at + 1;
        loop {
            match self.bytes.get(end).ok_or_else(|| self.ended())? {
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
        let is_in = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E');
        let token = &rest[..rest.iter().position(|byte| !is_in(byte)).unwrap_or(rest.len())];
        if token.len() == rest.len() && !self.is_whole {
            return Err(Stop::Cut);
        }
        // The grammar of numbers, without their values.
        serde_json::from_slice::<serde::de::IgnoredAny>(token).map_err(|_| Stop::NotJson)?;
        self.at += token.len();
        let spelled = std::str::from_utf8(token).ok().and_then(spelled);
        spelled.map(|number| format!("{NUMBER}{number}")).ok_or(Stop::NotJson)
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, Stop> {
        let rest = &self.bytes[self.at..];
        if rest.len() < word.len() && word.as_bytes().starts_with(rest) {
            return Err(self.ended());
        }
        if !rest.starts_with(word.as_bytes()) {
            return Err(Stop::NotJson);
        }
        self.at += word.len();
        Ok(value)
    }

    /// Nothing but space follows.
    fn end(&mut self) -> Result<(), Stop> {
        self.skip_space();
        match self.bytes.get(self.at) {
            Some(_) => Err(Stop::NotJson),
            None if self.is_whole => Ok(()),
            None => Err(Stop::Cut),
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
        self.bytes.get(self.at).copied().ok_or_else(|| self.ended())
    }

    /// What the end of the bytes means.
    fn ended(&self) -> Stop {
        if self.is_whole { Stop::NotJson } else { Stop::Cut }
    }
}

/// The paths that go on in a member or item.
fn inside<'a>(paths: &[Path<'a>], fits: impl Fn(&str) -> bool) -> Vec<Path<'a>> {
    let next = |path: &Path<'a>| {
        let (first, steps) = path.steps.split_first()?;
        fits(first).then_some(Path { place: path.place, steps })
    };
    paths.iter().filter_map(next).collect()
}

/// Whether a step of a pointer means this item of an array. RFC 6901 allows no leading zeros.
fn is_index(step: &str, number: usize) -> bool {
    (step == "0" || !step.starts_with(['0', '+'])) && step.parse() == Ok(number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(bytes: &[u8]) -> Option<Value> {
        let whole = Pointer::whole();
        Document::read(bytes, true, &[&whole]).take(&whole)
    }

    fn pick(text: &str, is_whole: bool, places: &[&str]) -> (Vec<Option<String>>, bool) {
        let places: Vec<Pointer> = places.iter().map(|place| place.parse().unwrap()).collect();
        let document = Document::read(text.as_bytes(), is_whole, &places.iter().collect::<Vec<_>>());
        let found = places.iter().map(|place| document.text(place).map(ToOwned::to_owned));
        (found.collect(), document.is_cut())
    }

    #[test]
    fn only_the_wanted_values_are_found() {
        let text = r#"{"x":[1,{"a/b":"c"},"d"],"y":{"x":5},"e":"\u0065"}"#;
        let places = ["/x/1/a~1b", "/x/2", "/x/02", "/x/3", "/y/x", "/y", "/e", "/z"];
        let found: Vec<_> = [Some("c"), Some("d"), None, None, Some("5"), None, Some("e"), None]
            .map(|text| text.map(ToOwned::to_owned))
            .into();
        assert_eq!(pick(text, true, &places), (found, false));
        let (one, whole): (Pointer, Pointer) = ("/y/x".parse().unwrap(), Pointer::whole());
        let both = Document::read(text.as_bytes(), true, &[&one, &whole]);
        assert_eq!((both.text(&one), both.at(&whole).unwrap()["e"].as_str()), (Some("5"), Some("e")));
    }

    #[test]
    fn of_a_cut_document_the_values_before_the_cut_are_found() {
        let text = r#"{"id":"E1","n":17,"ok":true,"rest":"long"}"#;
        for end in 0..text.len() {
            let (found, is_cut) = pick(&text[..end], false, &["/id", "/n", "/rest"]);
            assert!(is_cut, "{}", &text[..end]);
            assert_eq!(found[0].as_deref(), (end >= 10).then_some("E1"), "{}", &text[..end]);
            // The next byte could be a digit.
            assert_eq!(found[1].as_deref(), (end >= 18).then_some("17"), "{}", &text[..end]);
            assert_eq!(found[2].as_deref(), (end >= 41).then_some("long"), "{}", &text[..end]);
            assert_eq!(pick(&text[..end], true, &["/id"]), (vec![None], false), "{}", &text[..end]);
        }
        assert_eq!(pick(text, false, &["/id"]), (vec![Some("E1".to_owned())], true));
    }

    #[test]
    fn what_is_no_json_before_the_cut_is_no_json() {
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
