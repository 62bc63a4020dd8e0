//! A line of the log as one JSON object.
//!
//! The subscriber's own format goes through a serializer that checks and copies each piece; for a line per request that
//! took longer than answering a repeat.

use std::cell::RefCell;
use std::fmt::{self, Debug, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::registry::LookupSpan;

/// Writes the time, the level and the fields of an event.
pub(super) struct JsonLine;

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
        writer.write_str("{\"timestamp\":\"")?;
        put_time(&mut writer)?;
        writer.write_str("\",\"level\":\"")?;
        writer.write_str(event.metadata().level().as_str())?;
        writer.write_char('"')?;
        let mut fields = Fields { writer, written: Ok(()) };
        event.record(&mut fields);
        fields.written?;
        fields.writer.write_str("}\n")
    }
}

thread_local! {
    /// The second of the last line, and its text: most lines are of the same second as the one before.
    static SECOND: RefCell<(u64, String)> = const { RefCell::new((0, String::new())) };
}

/// The present, in UTC, to the microsecond.
#[allow(clippy::disallowed_methods, reason = "no decision hangs on it")]
fn put_time(writer: &mut Writer<'_>) -> fmt::Result {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    SECOND.with_borrow_mut(|(second, text)| {
        if *second != since.as_secs() || text.is_empty() {
            let time = i64::try_from(since.as_secs()).ok().and_then(|time| Timestamp::from_second(time).ok());
            let time = time.unwrap_or_default();
            (*second, *text) = (since.as_secs(), time.strftime("%Y-%m-%dT%H:%M:%S").to_string());
        }
        writer.write_str(text)
    })?;
    write!(writer, ".{:06}Z", since.subsec_micros())
}

struct Fields<'a> {
    writer: Writer<'a>,
    written: fmt::Result,
}

impl Fields<'_> {
    fn put(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        self.written = self.written.and_then(|()| {
            self.name(field, "\":")?;
            self.writer.write_fmt(value)
        });
    }

    fn put_text(&mut self, field: &Field, write: impl FnOnce(&mut Escaped<'_, '_>) -> fmt::Result) {
        self.written = self.written.and_then(|()| {
            self.name(field, "\":\"")?;
            write(&mut Escaped(&mut self.writer))?;
            self.writer.write_str("\"")
        });
    }

    fn name(&mut self, field: &Field, then: &str) -> fmt::Result {
        self.writer.write_str(",\"")?;
        self.writer.write_str(field.name())?;
        self.writer.write_str(then)
    }
}

impl Visit for Fields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put_text(field, |text| text.write_str(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.written = self.written.and_then(|()| {
            self.name(field, "\":")?;
            self.writer.write_str(if value { "true" } else { "false" })
        });
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, format_args!("{value}"));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, format_args!("{value}"));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        match value.is_finite() {
            true => self.put(field, format_args!("{value:?}")),
            false => self.put(field, format_args!("null")),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.put_text(field, |text| write!(text, "{value:?}"));
    }
}

/// Text inside the quotes of a JSON string.
struct Escaped<'a, 'b>(&'a mut Writer<'b>);

impl Write for Escaped<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.bytes().position(|byte| byte < b' ' || byte == b'"' || byte == b'\\') {
            let (plain, from) = rest.split_at(at);
            let (special, after) = from.split_at(1);
            self.0.write_str(plain)?;
            match special {
                "\"" => self.0.write_str("\\\"")?,
                "\\" => self.0.write_str("\\\\")?,
                "\n" => self.0.write_str("\\n")?,
                other => write!(self.0, "\\u{:04x}", other.as_bytes()[0])?,
            }
            rest = after;
        }
        self.0.write_str(rest)
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
                "ms": 1.0, "none": null, "ok": true})
        );
    }
}
