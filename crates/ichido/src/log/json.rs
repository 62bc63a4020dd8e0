//! Formats an event as one line with a JSON object.
//!
//! A dot in a field name makes an object: `context.origin` and `context.records` become
//! `"context":{"origin":…,"records":…}`.
//!
//! The JSON format of `tracing-subscriber` serializes each piece separately. With a log line per request, that took
//! longer than replaying a response.

use std::cell::RefCell;
use std::fmt::{self, Debug, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use ichido_core::to_hex;
use jiff::Timestamp;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::registry::LookupSpan;

/// Writes the time, the level and the fields of an event.
pub(super) struct JsonLine;

thread_local! {
    /// A buffer per thread. Each line reaches the writer as a whole.
    static LINE: RefCell<Line> = const { RefCell::new(Line { text: String::new(), time: String::new(), second: 0 }) };
}

impl<S, N> FormatEvent<S, N> for JsonLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        LINE.with(|line| match line.try_borrow_mut() {
            Ok(mut line) => writer.write_str(line.format(event)),
            // Formatting a field logged another event.
            Err(_) => writer.write_str(Line::default().format(event)),
        })
    }
}

#[derive(Default)]
struct Line {
    text: String,
    /// The time of the last line, formatted to the second: most lines share it with the one before.
    time: String,
    second: u64,
}

impl Line {
    fn format(&mut self, event: &Event<'_>) -> &str {
        self.text.clear();
        self.text.push_str("{\"timestamp\":\"");
        self.push_time();
        self.text.push_str("\",\"level\":\"");
        self.text.push_str(event.metadata().level().as_str());
        self.text.push('"');
        let mut fields = Fields { text: &mut self.text, objects: Vec::new() };
        event.record(&mut fields);
        fields.finish();
        self.text.push_str("}\n");
        &self.text
    }

    /// The current time in UTC, to the microsecond.
    #[allow(clippy::disallowed_methods, reason = "only shown, never compared")]
    fn push_time(&mut self) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        if self.second != since.as_secs() || self.time.is_empty() {
            let time = i64::try_from(since.as_secs()).ok().and_then(|time| Timestamp::from_second(time).ok());
            self.second = since.as_secs();
            self.time = time.unwrap_or_default().strftime("%Y-%m-%dT%H:%M:%S.").to_string();
        }
        self.text.push_str(&self.time);
        let mut digits = itoa::Buffer::new();
        // The leading 1, which is cut off, keeps the zeros after it.
        self.text.push_str(&digits.format(1_000_000 + since.subsec_micros())[1..]);
        self.text.push('Z');
    }
}

struct Fields<'a> {
    text: &'a mut String,
    /// The objects so far: name and members.
    objects: Vec<(&'static str, String)>,
}

impl Fields<'_> {
    /// Appends the name of a field, and returns the text to append its value to.
    fn push_name(&mut self, field: &Field) -> &mut String {
        let (text, name) = match field.name().split_once('.') {
            None => (&mut *self.text, field.name()),
            Some((object, member)) => {
                let existing = self.objects.iter().position(|(name, _)| *name == object);
                let index = existing.unwrap_or_else(|| {
                    self.objects.push((object, String::new()));
                    self.objects.len() - 1
                });
                (&mut self.objects[index].1, member)
            }
        };
        text.push_str(",\"");
        text.push_str(name);
        text.push_str("\":");
        text
    }

    fn push(&mut self, field: &Field, value: &str) {
        self.push_name(field).push_str(value);
    }

    /// Appends the objects.
    fn finish(self) {
        for (name, members) in self.objects {
            self.text.push_str(",\"");
            self.text.push_str(name);
            self.text.push_str("\":{");
            self.text.push_str(members.strip_prefix(',').unwrap_or(&members));
            self.text.push('}');
        }
    }
}

impl Visit for Fields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        let text = self.push_name(field);
        text.push('"');
        Escaped(text).push(value);
        text.push('"');
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.push(field, if value { "true" } else { "false" });
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.push(field, itoa::Buffer::new().format(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.push(field, itoa::Buffer::new().format(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        match value.is_finite() {
            true => self.push(field, zmij::Buffer::new().format_finite(value)),
            false => self.push(field, "null"),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = self.push_name(field);
        text.push('"');
        // Writing to a string cannot fail.
        let _ = write!(Escaped(text), "{value:?}");
        text.push('"');
    }
}

/// Escapes text that is inside the quotes of a JSON string.
struct Escaped<'a>(&'a mut String);

impl Escaped<'_> {
    fn push(&mut self, text: &str) {
        let mut rest = text;
        while let Some(index) = rest.bytes().position(|byte| byte < b' ' || byte == b'"' || byte == b'\\') {
            let (plain, tail) = rest.split_at(index);
            let (special, after) = tail.split_at(1);
            self.0.push_str(plain);
            match special {
                "\"" => self.0.push_str("\\\""),
                "\\" => self.0.push_str("\\\\"),
                "\n" => self.0.push_str("\\n"),
                other => {
                    self.0.push_str("\\u00");
                    self.0.push_str(&to_hex(other.as_bytes()));
                }
            }
            rest = after;
        }
        self.0.push_str(rest);
    }
}

impl Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use serde_json::{Value, json};

    use super::*;

    #[derive(Clone, Default)]
    struct Captured(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Captured {
        fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(line);
            Ok(line.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn fields_survive_a_round_trip_through_json() {
        let text: String = (0..0x250).filter_map(char::from_u32).collect();
        let captured = Captured::default();
        let writer = captured.clone();
        let log = tracing_subscriber::fmt().event_format(JsonLine).with_writer(move || writer.clone());
        tracing::subscriber::with_default(log.finish(), || {
            tracing::warn!(
                text,
                displayed = %text,
                small = -7,
                ms = 1.0,
                none = f64::NAN,
                ok = true,
                absent = None::<u64>,
                object.text = text,
                other.number = 1,
                object.absent = None::<u64>,
                object.number = 2,
                "a\tb"
            );
        });
        let bytes = captured.0.lock().unwrap().clone();
        assert_eq!(bytes.iter().filter(|byte| **byte == b'\n').count(), 1);
        let mut line: Value = serde_json::from_slice(&bytes).unwrap();
        let time = line["timestamp"].take();
        let time = time.as_str().unwrap();
        assert!(time.len() == 27 && time.ends_with('Z') && time.parse::<Timestamp>().is_ok(), "{time}");
        assert_eq!(
            line,
            json!({"timestamp": null, "level": "WARN", "message": "a\tb", "text": text, "displayed": text, "small": -7,
                "ms": 1.0, "none": null, "ok": true, "object": {"text": text, "number": 2}, "other": {"number": 1}})
        );
    }
}
