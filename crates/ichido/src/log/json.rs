//! A line of the log as one JSON object.
//!
//! A field whose name has a dot is a member of an object: `context.origin` and `context.records` make
//! `"context":{"origin":…,"records":…}`.
//!
//! The subscriber's own format goes through a serializer that checks and copies each piece; for a line per request that
//! took longer than answering a repeat.

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
    /// Lines are made here, and given to the writer whole.
    static LINE: RefCell<Line> = const { RefCell::new(Line { text: String::new(), second: 0, time: String::new() }) };
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
            Ok(mut line) => writer.write_str(line.make(event)),
            // A field that writes a line of its own while it is written.
            Err(_) => writer.write_str(Line::default().make(event)),
        })
    }
}

#[derive(Default)]
struct Line {
    text: String,
    /// The second of the last line, and its text: most lines are of the same second as the one before.
    second: u64,
    time: String,
}

impl Line {
    fn make(&mut self, event: &Event<'_>) -> &str {
        self.text.clear();
        self.text.push_str("{\"timestamp\":\"");
        self.put_time();
        self.text.push_str("\",\"level\":\"");
        self.text.push_str(event.metadata().level().as_str());
        self.text.push('"');
        let mut fields = Fields { text: &mut self.text, objects: Vec::new() };
        event.record(&mut fields);
        fields.close();
        self.text.push_str("}\n");
        &self.text
    }

    /// The present, in UTC, to the microsecond.
    #[allow(clippy::disallowed_methods, reason = "no decision hangs on it")]
    fn put_time(&mut self) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        if self.second != since.as_secs() || self.time.is_empty() {
            let time = i64::try_from(since.as_secs()).ok().and_then(|time| Timestamp::from_second(time).ok());
            self.second = since.as_secs();
            self.time = time.unwrap_or_default().strftime("%Y-%m-%dT%H:%M:%S.").to_string();
        }
        self.text.push_str(&self.time);
        let mut digits = itoa::Buffer::new();
        // The leading digit keeps the zeros.
        self.text.push_str(&digits.format(1_000_000 + since.subsec_micros())[1..]);
        self.text.push('Z');
    }
}

struct Fields<'a> {
    text: &'a mut String,
    /// Objects by their names, each with its members so far.
    objects: Vec<(&'static str, String)>,
}

impl Fields<'_> {
    /// Writes a field's name, and returns the text that its value is added to.
    fn name(&mut self, field: &Field) -> &mut String {
        let (text, name) = match field.name().split_once('.') {
            None => (&mut *self.text, field.name()),
            Some((object, member)) => {
                let known = self.objects.iter().position(|(name, _)| *name == object);
                let at = known.unwrap_or_else(|| {
                    self.objects.push((object, String::new()));
                    self.objects.len() - 1
                });
                (&mut self.objects[at].1, member)
            }
        };
        text.push_str(",\"");
        text.push_str(name);
        text.push_str("\":");
        text
    }

    fn put(&mut self, field: &Field, value: &str) {
        self.name(field).push_str(value);
    }

    /// Adds the objects.
    fn close(self) {
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
        let text = self.name(field);
        text.push('"');
        Escaped(text).put(value);
        text.push('"');
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, if value { "true" } else { "false" });
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, itoa::Buffer::new().format(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, itoa::Buffer::new().format(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        match value.is_finite() {
            true => self.put(field, zmij::Buffer::new().format_finite(value)),
            false => self.put(field, "null"),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = self.name(field);
        text.push('"');
        // Text takes whatever is written into it.
        let _ = write!(Escaped(text), "{value:?}");
        text.push('"');
    }
}

/// Text inside the quotes of a JSON string.
struct Escaped<'a>(&'a mut String);

impl Escaped<'_> {
    fn put(&mut self, text: &str) {
        let mut rest = text;
        while let Some(at) = rest.bytes().position(|byte| byte < b' ' || byte == b'"' || byte == b'\\') {
            let (plain, from) = rest.split_at(at);
            let (special, after) = from.split_at(1);
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
        self.put(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use serde_json::{Value, json};

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Kept {
        fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(line);
            Ok(line.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn every_field_comes_back_as_it_was() {
        let text: String = (0..0x250).filter_map(char::from_u32).collect();
        let kept = Kept::default();
        let writer = kept.clone();
        let log = tracing_subscriber::fmt().event_format(JsonLine).with_writer(move || writer.clone());
        tracing::subscriber::with_default(log.finish(), || {
            tracing::warn!(
                text,
                shown = %text,
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
        let bytes = kept.0.lock().unwrap().clone();
        assert_eq!(bytes.iter().filter(|byte| **byte == b'\n').count(), 1);
        let mut line: Value = serde_json::from_slice(&bytes).unwrap();
        let time = line["timestamp"].take();
        let time = time.as_str().unwrap();
        assert!(time.len() == 27 && time.ends_with('Z') && time.parse::<Timestamp>().is_ok(), "{time}");
        assert_eq!(
            line,
            json!({"timestamp": null, "level": "WARN", "message": "a\tb", "text": text, "shown": text, "small": -7,
                "ms": 1.0, "none": null, "ok": true, "object": {"text": text, "number": 2}, "other": {"number": 1}})
        );
    }
}
