use std::io::{Cursor, Read, Write};

use flate2::write::GzEncoder;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn read(bytes: impl Into<Vec<u8>>) -> (Format, Vec<Item>, Option<Error>) {
    drain(Input::from_reader("test", Cursor::new(bytes.into())).unwrap())
}

fn drain(input: Input) -> (Format, Vec<Item>, Option<Error>) {
    let (format, mut items, mut error) = (input.format(), Vec::new(), None);
    for item in input {
        assert!(error.is_none(), "nothing follows an error");
        match item {
            Ok(item) => items.push(item),
            Err(stop) => error = Some(stop),
        }
    }
    (format, items, error)
}

/// Describes each item by its position and text, and invalid ones also by their reason.
fn described(items: &[Item]) -> Vec<String> {
    let description = |item: &Item| match item {
        Item::Record(record) => format!("{} {}", record.position, record.raw.get()),
        Item::Invalid(invalid) => format!("{} ! {} ! {}", invalid.position, invalid.reason, invalid.text()),
    };
    items.iter().map(description).collect()
}

#[test]
fn lines_keep_their_numbers_and_bytes() {
    let text =
        "\u{feff}{\"a\": 1.0}\r\n\n  {\"b\":[1, 2],\"b\":\"\\u00e9\"} \n\r\n{\"c\":12345678901234567890.10}";
    let (format, items, error) = read(text);
    assert_eq!(format, Format::Lines);
    assert!(error.is_none());
    assert_eq!(
        described(&items),
        [
            r#"line 1 {"a": 1.0}"#,
            r#"line 3 {"b":[1, 2],"b":"\u00e9"}"#,
            r#"line 5 {"c":12345678901234567890.10}"#
        ]
    );
}

#[test]
fn invalid_line_is_reported_and_reading_continues() {
    let (_, items, error) = read(
        b"{\"a\":1}\n{\"a\":\n{\"b\":\"\xff\"}\n42\n{\"c\":1}{\"d\":2}\nnot json\n{\"z\":1}\n".as_slice(),
    );
    assert!(error.is_none());
    assert_eq!(
        described(&items),
        [
            "line 1 {\"a\":1}",
            "line 2 ! not JSON: EOF while parsing a value at column 5 ! {\"a\":",
            "line 3 ! not UTF-8 ! {\"b\":\"\u{fffd}\"}",
            "line 4 ! not an object ! 42",
            "line 5 ! not JSON: trailing characters at column 8 ! {\"c\":1}{\"d\":2}",
            "line 6 ! not JSON: expected ident at column 2 ! not json",
            "line 7 {\"z\":1}",
        ]
    );
    let Item::Invalid(invalid) = &items[2] else { panic!("invalid") };
    assert_eq!(invalid.bytes, b"{\"b\":\"\xff\"}");
    assert!(!invalid.is_cut());
}

#[test]
fn list_is_read_from_an_array_or_an_envelope() {
    let records = "{\"a\":\"],}\\\"\"} ,\n {\"b\":[{}]}";
    let envelopes = [
        format!("{{\"records\":[{records}]}}"),
        format!(
            " {{\n \"batchIdempotencyKey\": \"records\", \"x\": {{\"records\":[1]}},\n \"records\" : [ {records} ] , \"retryCount\": 0 }}\n"
        ),
        format!("\u{feff}{{\"records\":[{records}],\"lastError\":\"two  words]\"}}"),
    ];
    let arrays = [format!("[{records}]"), format!("\u{feff} \r\n[ {records}\n]\n\n")];
    let expected = [r#"index 0 {"a":"],}\""}"#, r#"index 1 {"b":[{}]}"#];
    for text in &arrays {
        let (format, items, error) = read(text.as_str());
        assert_eq!(
            (format, described(&items).as_slice()),
            (Format::Array, expected.map(String::from).as_slice())
        );
        assert!(error.is_none(), "{text}: {error:?}");
    }
    for text in &envelopes {
        let (format, items, error) = read(text.as_str());
        assert!(matches!(format, Format::Envelope { .. }), "{text}");
        assert_eq!(described(&items), expected);
        assert!(error.is_none(), "{text}: {error:?}");
    }
}

#[test]
fn object_that_is_not_an_envelope_is_a_line() {
    for text in [
        "{\"a\":1}",
        "{\"records\":3}",
        "{\"x\":{\"records\":[1]}}",
        "{\"x\":\"records\",\"y\":[1]}",
        "{\"records\":[1]}\n{\"records\":[2]}\n",
    ] {
        let (format, items, error) = read(text);
        assert_eq!(format, Format::Lines, "{text}");
        assert!(error.is_none());
        assert!(items.iter().all(|item| matches!(item, Item::Record(_))), "{text}: {items:?}");
    }
}

#[test]
fn empty_input_has_no_records() {
    for text in [
        "",
        "\n",
        " \r\n\n",
        "\u{feff}",
        "[]",
        " [ \n ] ",
        "{\"records\":[]}",
        "{\"records\": [ ], \"a\": 1}",
    ] {
        let (_, items, error) = read(text);
        assert!(items.is_empty() && error.is_none(), "{text:?}: {items:?} {error:?}");
    }
}

#[test]
fn invalid_element_does_not_end_the_list() {
    let (_, items, error) = read("[{\"a\":1}, 42, \"x,]\", null, [{}], {\"b\":2}]");
    assert!(error.is_none());
    assert_eq!(
        described(&items),
        [
            "index 0 {\"a\":1}",
            "index 1 ! not an object ! 42",
            "index 2 ! not an object ! \"x,]\"",
            "index 3 ! not an object ! null",
            "index 4 ! not an object ! [{}]",
            "index 5 {\"b\":2}",
        ]
    );
}

#[test]
fn invalid_list_ends_after_its_valid_records_with_the_reason() {
    for (text, complete, reason) in [
        ("[{\"a\":1},{\"b\":", 1, "the input ends within the list"),
        ("[{\"a\":1},{\"b\":tru}]", 1, "index 1 is not JSON: expected ident at column 9"),
        ("[{\"a\":1},,{\"b\":2}]", 1, "an element is missing"),
        ("[{\"a\":1},]", 1, "an element is missing"),
        ("[,]", 0, "an element is missing"),
        ("[{\"a\":1}}", 0, "unexpected closing brace"),
        ("[{\"a\":1}] {\"b\":2}", 1, "unexpected data after the list"),
        ("[{\"a\":1}][{\"b\":2}]", 1, "unexpected data after the list"),
        ("{\"records\":[{\"a\":1}]", 1, "invalid JSON after the records"),
        ("{\"records\":[{\"a\":1}],\"records\":[{\"b\":1}]}", 1, "\"records\" occurs twice"),
        ("{\"x\" 1,\"records\":[{\"a\":1}]}", 0, "invalid JSON before \"records\""),
    ] {
        let (_, items, error) = read(text);
        assert_eq!(items.len(), complete, "{text}: {items:?}");
        let Some(Error::List { complete: said, reason: why, name, .. }) = error else {
            panic!("{text}: {error:?}")
        };
        assert_eq!((said, why.as_str(), name.as_str()), (complete as u64, reason, "test"), "{text}");
    }
}

#[test]
fn oversized_record_is_truncated_and_reading_continues() {
    let long = format!("{{\"a\":\"{}\"}}", "x".repeat(RECORD_BYTES_MAX));
    let fits = format!("{{\"a\":\"{}\"}}", "x".repeat(RECORD_BYTES_MAX - 8));
    assert_eq!(fits.len(), RECORD_BYTES_MAX);
    for text in [
        format!("{fits}\r\n{long}\n{{\"z\":1}}"),
        format!("[{fits},{long},{{\"z\":1}}]"),
        format!("{{\"records\":[{fits},{long},{{\"z\":1}}]}}"),
    ] {
        let (format, items, error) = read(text);
        assert!(error.is_none(), "{format:?}: {error:?}");
        let [Item::Record(first), Item::Invalid(cut), Item::Record(last)] = items.as_slice() else {
            panic!("{format:?}: {} items", items.len())
        };
        assert_eq!((first.raw.get().len(), last.raw.get()), (RECORD_BYTES_MAX, "{\"z\":1}"));
        assert_eq!(cut.bytes, long.as_bytes()[..KEPT_BYTES_MAX]);
        assert!(cut.is_cut() && cut.length >= long.len() as u64);
        assert_eq!(cut.reason, "longer than 8388608 bytes");
    }
}

#[test]
fn deeply_nested_record_is_invalid() {
    let nested = |depth: usize| format!("{{\"a\":{}1{}}}", "[".repeat(depth - 1), "]".repeat(depth - 1));
    let flat = format!("{{\"a\":\"{}\",\"b\":[{}[]]}}", "[{".repeat(500), "{},".repeat(500));
    let (_, items, _) = read(format!("{}\n{}\n{flat}\n", nested(DEPTH_MAX), nested(DEPTH_MAX + 1)));
    assert!(matches!(&items[0], Item::Record(_)) && matches!(&items[2], Item::Record(_)));
    assert!(matches!(&items[1], Item::Invalid(invalid) if invalid.reason == "nested deeper than 127"));
    let Item::Record(record) = &items[0] else { panic!("a record") };
    serde_json::from_str::<Value>(record.raw.get()).expect("a later parser accepts it");
}

#[test]
fn gzip_with_one_or_several_members_is_read() {
    let mut bytes = Vec::new();
    for part in ["{\"a\":1}\n{\"b\"", ":2}\n"] {
        let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(part.as_bytes()).unwrap();
        bytes.extend(encoder.finish().unwrap());
    }
    let input = Input::from_reader("test", Cursor::new(bytes.clone())).unwrap();
    let progress = input.progress();
    let (_, items, error) = drain(input);
    assert!(error.is_none());
    assert_eq!(described(&items), ["line 1 {\"a\":1}", "line 2 {\"b\":2}"]);
    assert_eq!(progress.read(), bytes.len() as u64);

    // A truncated gzip file is an error, after the records that could be read.
    bytes.truncate(bytes.len() - 4);
    let (_, items, error) = read(bytes);
    assert_eq!(described(&items)[0], "line 1 {\"a\":1}");
    assert!(matches!(error, Some(Error::Read { .. })), "{error:?}");
}

#[test]
fn unsupported_files_are_refused_with_the_reason() {
    let refused =
        |bytes: &[u8]| Input::from_reader("test", Cursor::new(bytes.to_vec())).unwrap_err().to_string();
    assert_eq!(refused(b"\xff\xfe{\0"), "test is encoded as UTF-16; convert it to UTF-8 first");
    let dir = tempfile::tempdir().unwrap();
    let error = Input::open(dir.path()).unwrap_err().to_string();
    assert_eq!(error, format!("{} is a directory", dir.path().display()));
    let missing = Input::open(&dir.path().join("none")).unwrap_err().to_string();
    assert!(missing.starts_with("cannot open ") && missing.contains("No such file"), "{missing}");
}

#[test]
fn progress_covers_the_whole_file() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"{\"a\":1}\n{\"b\":2}\n").unwrap();
    let input = Input::open(file.path()).unwrap();
    let progress = input.progress();
    assert_eq!(progress.total(), Some(16));
    assert_eq!(drain(input).1.len(), 2);
    assert_eq!(progress.read(), 16);
}

#[test]
fn first_record_does_not_wait_for_the_second() {
    // The pipe stays open: a reader that wanted more than it needs would block forever.
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(b"{\"a\":1}\n").unwrap();
    let mut input = Input::from_reader("pipe", reader).unwrap();
    assert!(matches!(input.next(), Some(Ok(Item::Record(_)))));
    writer.write_all(b"{\"b\":2}\n").unwrap();
    assert!(matches!(input.next(), Some(Ok(Item::Record(_)))));
    drop(writer);
    assert!(input.next().is_none());
}

/// Returns a few bytes at a time, like a slow pipe.
struct Pieces {
    bytes: Cursor<Vec<u8>>,
    sizes: std::iter::Cycle<std::vec::IntoIter<usize>>,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let size = self.sizes.next().unwrap_or(1).min(buffer.len());
        self.bytes.read(&mut buffer[..size])
    }
}

fn in_pieces(bytes: Vec<u8>, sizes: Vec<usize>) -> Input {
    Input::from_reader("test", Pieces { bytes: Cursor::new(bytes), sizes: sizes.into_iter().cycle() })
        .unwrap()
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
        "[\\\\\"\\[\\]{},: \n\u{1}]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z\"\\]]{0,4}", inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

/// The text of a record on one line.
fn any_record() -> impl Strategy<Value = String> {
    let fields = prop::collection::btree_map("[a-q\"\\]]{0,4}", any_value(), 0..4);
    fields.prop_map(|map| json!(map).to_string())
}

fn any_sizes() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(1_usize..40, 1..6)
}

fn space() -> impl Strategy<Value = String> {
    "[ \t]{0,3}".prop_map(String::from)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_format_yields_the_same_records(
        records in prop::collection::vec(any_record(), 0..12),
        (sizes, space) in (any_sizes(), space()),
        (bom, crlf) in any::<(bool, bool)>(),
    ) {
        let bom = if bom { "\u{feff}" } else { "" };
        let end = if crlf { "\r\n" } else { "\n" };
        let lines = records.iter().map(|record| format!("{space}{record}{space}{end}")).collect::<String>();
        let list = records.join(&format!("{space},{end}{space}"));
        let texts = [
            format!("{bom}{lines}"),
            format!("{bom}{space}[{space}{list}{end}]{space}{end}"),
            format!("{bom}{{{space}\"a\":\"[\",{end}\"records\"{space}:{space}[{list}{space}]{space},\"z\":[]}}{end}"),
        ];
        for text in texts {
            let (format, items, error) = drain(in_pieces(text.into_bytes(), sizes.clone()));
            prop_assert!(error.is_none(), "{:?}: {:?}", format, error);
            let raws: Vec<&str> = items.iter().map(|item| match item {
                Item::Record(record) => record.raw.get(),
                Item::Invalid(invalid) => panic!("{invalid:?}"),
            }).collect();
            prop_assert_eq!(raws, records.clone());
        }
    }

    #[test]
    fn truncated_list_yields_its_first_records_and_an_error(
        records in prop::collection::vec(any_record(), 1..8),
        sizes in any_sizes(),
        (at, envelope) in (any::<prop::sample::Index>(), any::<bool>()),
    ) {
        let list = records.join(",");
        let text = if envelope { format!("{{\"records\":[{list}]}}") } else { format!("[{list}]") };
        let start = if envelope { 12 } else { 1 };
        let cut = start + at.index(text.len() - start);
        let (_, items, error) = drain(in_pieces(text.as_bytes()[..cut].to_vec(), sizes));
        prop_assert!(matches!(error, Some(Error::List { .. })), "{:?}", error);
        for (item, record) in items.iter().zip(&records) {
            let Item::Record(read) = item else { panic!("{item:?}") };
            prop_assert_eq!(read.raw.get(), record);
        }
        prop_assert!(items.len() <= records.len());
    }

    #[test]
    fn invalid_lines_do_not_affect_other_lines(
        lines in prop::collection::vec(prop_oneof![any_record(), "[^\n]{0,20}".prop_map(String::from)], 0..12),
        sizes in any_sizes(),
    ) {
        // The first line determines the format.
        let text = format!("{{}}\n{}", lines.join("\n"));
        let (_, items, error) = drain(in_pieces(text.into_bytes(), sizes));
        prop_assert!(error.is_none(), "{:?}", error);
        let mut items = items.into_iter().skip(1);
        for (index, line) in lines.iter().enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() {
                continue;
            }
            let at = Position::Line(index as u64 + 2);
            match items.next() {
                Some(Item::Record(record)) => prop_assert_eq!((record.position, record.raw.get()), (at, line)),
                Some(Item::Invalid(invalid)) => {
                    prop_assert!(serde_json::from_str::<serde_json::Map<String, Value>>(line).is_err(), "{}", line);
                    prop_assert_eq!((invalid.position, invalid.bytes.as_slice()), (at, line.as_bytes()));
                }
                None => prop_assert!(false, "line {} is missing", index + 2),
            }
        }
        prop_assert!(items.next().is_none());
    }

    #[test]
    fn no_bytes_make_it_panic_or_loop(
        start in prop::sample::select(vec!["", "[", "{", "{\"records\":[", "\u{feff}", "\n"]),
        bytes in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(b"{}[]\",:\\\n 1".to_vec())], 0..200),
        sizes in any_sizes(),
    ) {
        let bytes = [start.as_bytes(), &bytes].concat();
        let reader = Pieces { bytes: Cursor::new(bytes), sizes: sizes.into_iter().cycle() };
        if let Ok(input) = Input::from_reader("test", reader) {
            prop_assert!(input.count() < 300);
        }
    }
}
