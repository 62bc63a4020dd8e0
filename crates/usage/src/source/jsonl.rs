//! Reads usage events from JSON Lines. An invalid line is reported with its number, and reading goes on.
//!
//! ```json
//! {"id":"m1","time":"2025-11-29T01:02:03Z","tenant":"t","provider":"openai","model":"gpt-4o","app_id":"a","app_name":"Help desk",
//!  "user_id":"u","user_type":"end_user","input_tokens":12,"output_tokens":30,"price":"0.0004200","currency":"USD"}
//! ```
//!
//! `time`, `provider`, `model`, `input_tokens`, `output_tokens` and `price` are required. `total_tokens` is checked
//! if it is present. An event without `requests` is one call, and a user without `user_type` is an `end_user`.

use std::io::{self, BufRead, Read};

use serde::Deserialize;
use serde_json::value::RawValue;
use thiserror::Error;

use crate::event::{App, CheckedEvent, Error, UsageEvent, User, UserKind, count, total};
use crate::money;

mod text;

use text::Text;

/// The most bytes a line may have.
pub const LINE_MAX_BYTES: usize = 1 << 20;
/// How much of an invalid line is shown.
const EXCERPT_MAX_BYTES: usize = 200;

/// A line that is not a usage event.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {reason}")]
pub struct InvalidLine {
    /// The line number, from 1.
    pub line: u64,
    /// Why the line is invalid.
    pub reason: String,
    /// The beginning of the line.
    pub text: String,
}

/// Reads events line by line.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    line: Vec<u8>,
    number: u64,
}

impl<R: BufRead> Reader<R> {
    /// Creates a reader.
    pub fn new(input: R) -> Self {
        Self { input, line: Vec::new(), number: 0 }
    }

    /// Returns the next event or invalid line, or `None` at the end.
    pub fn next_event(&mut self) -> io::Result<Option<Result<CheckedEvent<'_>, InvalidLine>>> {
        loop {
            self.line.clear();
            let limit = LINE_MAX_BYTES as u64 + 1;
            if self.input.by_ref().take(limit).read_until(b'\n', &mut self.line)? == 0 {
                return Ok(None);
            }
            self.number += 1;
            if self.line.len() > LINE_MAX_BYTES && self.line.last() != Some(&b'\n') {
                self.skip_line()?;
                let reason = format!("is longer than {LINE_MAX_BYTES} bytes");
                return Ok(Some(Err(invalid(self.number, &self.line, reason))));
            }
            if self.number == 1 && self.line.starts_with("\u{feff}".as_bytes()) {
                self.line.drain(..3);
            }
            if !self.line.trim_ascii().is_empty() {
                break;
            }
        }
        let line = self.line.trim_ascii();
        Ok(Some(read(line).map_err(|reason| invalid(self.number, line, reason))))
    }

    fn skip_line(&mut self) -> io::Result<()> {
        loop {
            let (used, ended) = match self.input.fill_buf()? {
                [] => return Ok(()),
                bytes => match bytes.iter().position(|byte| *byte == b'\n') {
                    Some(newline) => (newline + 1, true),
                    None => (bytes.len(), false),
                },
            };
            self.input.consume(used);
            if ended {
                return Ok(());
            }
        }
    }
}

fn invalid(line: u64, text: &[u8], reason: String) -> InvalidLine {
    InvalidLine {
        line,
        reason,
        text: String::from_utf8_lossy(&text[..text.len().min(EXCERPT_MAX_BYTES)]).into_owned(),
    }
}

fn read(line: &[u8]) -> Result<CheckedEvent<'_>, String> {
    // serde would read an array as the fields in order.
    if !line.starts_with(b"{") {
        return Err("must be a JSON object".to_owned());
    }
    let line: Line<'_> = match serde_json::from_slice(line) {
        Ok(line) => line,
        Err(error) => return Err(describe(line, &error)),
    };
    line.event().map_err(|error| error.to_string())
}

/// Describes a parse error. The invalid field is searched for only here, because doing so is slow.
fn describe(line: &[u8], error: &serde_json::Error) -> String {
    let message = |error: &serde_json::Error| {
        let text = error.to_string();
        match text.rfind(" at line ") {
            Some(end) => text[..end].to_owned(),
            None => text,
        }
    };
    if !error.is_data() {
        return format!("not JSON: {}", message(error));
    }
    let mut reader = serde_json::Deserializer::from_slice(line);
    match serde_path_to_error::deserialize::<_, Line<'_>>(&mut reader) {
        Err(found) if found.path().to_string() != "." => {
            format!("{}: {}", found.path(), message(found.inner()))
        }
        Err(_) | Ok(_) => message(error),
    }
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow, default)]
    id: Text<'a>,
    #[serde(borrow)]
    time: Text<'a>,
    #[serde(borrow, default)]
    tenant: Text<'a>,
    #[serde(borrow)]
    provider: Text<'a>,
    #[serde(borrow)]
    model: Text<'a>,
    #[serde(borrow, default)]
    app_id: Text<'a>,
    #[serde(borrow, default)]
    app_name: Text<'a>,
    #[serde(borrow, default)]
    app_mode: Text<'a>,
    #[serde(borrow, default)]
    user_id: Text<'a>,
    user_type: Option<UserKind>,
    input_tokens: i64,
    output_tokens: i64,
    total_tokens: Option<i64>,
    #[serde(borrow)]
    price: &'a RawValue,
    #[serde(borrow, default)]
    currency: Text<'a>,
    requests: Option<i64>,
    #[serde(default)]
    debugger: bool,
}

impl<'a> Line<'a> {
    fn event(self) -> Result<CheckedEvent<'a>, Error> {
        let time = self
            .time
            .0
            .parse()
            .map_err(|_| Error::other("time", "must be a timestamp such as 2025-11-29T12:00:00Z"))?;
        let input_tokens = count("input_tokens", self.input_tokens)?;
        let output_tokens = count("output_tokens", self.output_tokens)?;
        let total_tokens = match self.total_tokens {
            Some(total) => count("total_tokens", total)?,
            None => total(input_tokens, output_tokens)?,
        };
        let price = money::from_json(self.price)
            .and_then(money::price)
            .map_err(|error| Error::new("price", error))?;
        let kind = match self.user_id.0.is_empty() {
            true => UserKind::None,
            false => self.user_type.unwrap_or(UserKind::EndUser),
        };
        UsageEvent {
            id: self.id.0,
            time,
            tenant: self.tenant.0,
            provider: self.provider.0,
            model: self.model.0,
            app: App { id: self.app_id.0, name: self.app_name.0, mode: self.app_mode.0 },
            user: User { kind, id: self.user_id.0 },
            input_tokens,
            output_tokens,
            total_tokens,
            price,
            currency: self.currency.0,
            requests: count("requests", self.requests.unwrap_or(1))?,
            debugger: self.debugger,
        }
        .check()
    }
}

#[cfg(test)]
mod tests;
