use super::*;

const GOOD: &str = r#"{"id":"m1","time":"2025-11-29T01:02:03Z","tenant":"t","provider":"openai","model":"gpt-4o","app_id":"a","app_name":"Help \"desk\"","user_id":"u","input_tokens":12,"output_tokens":30,"price":"0.0004200","currency":"USD","colour":"red"}"#;

fn with(field: &str, value: &str) -> String {
    let mut object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(GOOD).unwrap();
    match value {
        "" => object.remove(field),
        value => object.insert(field.to_owned(), serde_json::from_str(value).unwrap()),
    };
    serde_json::to_string(&object).unwrap()
}

fn all(text: &str) -> Vec<Result<CheckedEvent<'static>, InvalidLine>> {
    let mut reader = Reader::new(io::BufReader::with_capacity(64, text.as_bytes()));
    let mut found = Vec::new();
    while let Some(event) = reader.next_event().unwrap() {
        found.push(event.map(CheckedEvent::into_owned));
    }
    found
}

#[test]
fn event_is_read_field_by_field() {
    let event = all(GOOD).remove(0).unwrap();
    assert_eq!((&*event.id, &*event.app.name, &*event.user.id), ("m1", "Help \"desk\"", "u"));
    assert_eq!((event.user.kind, event.total_tokens, event.requests), (UserKind::EndUser, 42, 1));
    assert_eq!((event.price.to_string().as_str(), event.debugger), ("0.0004200", false));
    let event = all(&with("user_id", "null")).remove(0).unwrap();
    assert_eq!((event.user.kind, &*event.user.id), (UserKind::None, ""));
    let event = all(&with("price", "1.5e-3")).remove(0).unwrap();
    assert_eq!(event.price.to_string(), "0.0015");
}

#[test]
fn invalid_field_is_named() {
    for (field, value, reason) in [
        ("input_tokens", "-3", "input_tokens: must not be negative, but is -3"),
        ("input_tokens", "\"3\"", "input_tokens: invalid type: string \"3\", expected i64"),
        ("input_tokens", "1.5", "input_tokens: invalid type: floating point `1.5`, expected i64"),
        ("output_tokens", "", "missing field `output_tokens`"),
        ("total_tokens", "7", "total_tokens: is 7, but input_tokens + output_tokens is 42"),
        ("price", "\"free\"", "price: not a number"),
        ("price", "null", "price: not a number"),
        ("price", "-1", "price: must not be negative"),
        ("price", "", "missing field `price`"),
        ("currency", "null", "currency: is missing"),
        ("currency", "\"US$\"", "currency: must be letters, as in USD"),
        ("time", "\"2025-13-01T00:00:00Z\"", "time: must be a timestamp such as 2025-11-29T12:00:00Z"),
        ("time", "\"2025-11-29 01:02:03\"", "time: must be a timestamp such as 2025-11-29T12:00:00Z"),
        (
            "user_type",
            "\"robot\"",
            "user_type: a kind of user must be one of none, end_user, account, not \"robot\"",
        ),
        ("requests", "-1", "requests: must not be negative, but is -1"),
        ("model", "7", "model: invalid type: integer `7`, expected a string"),
    ] {
        let error = all(&with(field, value)).remove(0).unwrap_err();
        assert_eq!((error.line, error.reason.as_str()), (1, reason));
    }
}

#[test]
fn invalid_lines_are_numbered_and_reading_goes_on() {
    let long = format!("{{\"x\":\"{}\"}}", "y".repeat(LINE_MAX_BYTES));
    let text = format!("\u{feff}{GOOD}\r\n\n  \n{{\"time\":\n{long}\n[1]\n{GOOD}\n\u{0}\n{GOOD}");
    let found = all(&text);
    let lines: Vec<u64> =
        found.iter().filter_map(|event| event.as_ref().err().map(|invalid| invalid.line)).collect();
    assert_eq!((lines, found.len()), (vec![4, 5, 6, 8], 7));
    let messages: Vec<String> =
        found.iter().filter_map(|event| event.as_ref().err().map(ToString::to_string)).collect();
    assert!(messages[0].starts_with("line 4: not JSON: "), "{messages:?}");
    assert!(messages[1].contains("longer than 1048576 bytes"), "{messages:?}");
    assert_eq!(messages[2], "line 6: must be a JSON object");
    assert!(found[1].as_ref().unwrap_err().text.len() <= 200);
}

#[test]
fn longest_line_is_read() {
    let padding = " ".repeat(LINE_MAX_BYTES - GOOD.len());
    assert!(all(&format!("{GOOD}{padding}\n{GOOD}")).iter().all(Result::is_ok));
    assert!(all(&format!("{GOOD}{padding}")).iter().all(Result::is_ok));
}
