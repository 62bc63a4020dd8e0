//! JSON Lines: a usage event per line. A line that is none is handed out with its number, and the next is read.
//!
//! ```json
//! {"id":"m1","time":"2025-11-29T01:02:03Z","tenant":"t","provider":"openai","model":"gpt-4o","app_id":"a","app_name":"Help desk",
//!  "user_id":"u","user_type":"end_user","input_tokens":12,"output_tokens":30,"price":"0.0004200","currency":"USD"}
//! ```
//!
//! `time`, `provider`, `model`, `input_tokens`, `output_tokens` and `price` must be there. `total_tokens` is checked if it is. Without
//! `requests` an event is one call; a user without `user_type` is an `end_user`.

use std::io::{self, BufRead, Read};

use serde::Deserialize;
use serde_json::value::RawValue;
use thiserror::Error;

use crate::event::{App, CheckedEvent, Error, UsageEvent, User, UserKind, count, total};
use crate::money;

mod text;

use text::Text;

/// The longest line, in bytes.
pub const LONGEST_LINE: usize = 1 << 20;
/// How much of a broken line is shown.
const SHOWN: usize = 200;

/// A line that is no usage event.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {reason}")]
pub struct Broken {
    /// Which line, counted from 1.
    pub line: u64,
    /// What is wrong with it.
    pub reason: String,
    /// How it begins.
    pub text: String,
}

/// Reads events from lines, one at a time.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    line: Vec<u8>,
    number: u64,
}

impl<R: BufRead> Reader<R> {
    /// Reads from here on.
    pub fn new(input: R) -> Self {
        Self { input, line: Vec::new(), number: 0 }
    }

    /// The next event, or the next line that is none; nothing at the end.
    pub fn next_event(&mut self) -> io::Result<Option<Result<CheckedEvent<'_>, Broken>>> {
        loop {
            self.line.clear();
            let limit = LONGEST_LINE as u64 + 1;
            if self.input.by_ref().take(limit).read_until(b'\n', &mut self.line)? == 0 {
                return Ok(None);
            }
            self.number += 1;
            if self.line.len() > LONGEST_LINE && self.line.last() != Some(&b'\n') {
                self.skip_line()?;
                let reason = format!("is longer than {LONGEST_LINE} bytes");
                return Ok(Some(Err(broken(self.number, &self.line, reason))));
            }
            if self.number == 1 && self.line.starts_with("\u{feff}".as_bytes()) {
                self.line.drain(..3);
            }
            if !self.line.trim_ascii().is_empty() {
                break;
            }
        }
        let line = self.line.trim_ascii();
        Ok(Some(read(line).map_err(|reason| broken(self.number, line, reason))))
    }

    fn skip_line(&mut self) -> io::Result<()> {
        loop {
            let (used, ended) = match self.input.fill_buf()? {
                [] => return Ok(()),
                bytes => match bytes.iter().position(|byte| *byte == b'\n') {
                    Some(place) => (place + 1, true),
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

fn broken(line: u64, text: &[u8], reason: String) -> Broken {
    Broken { line, reason, text: String::from_utf8_lossy(&text[..text.len().min(SHOWN)]).into_owned() }
}

fn read(line: &[u8]) -> Result<CheckedEvent<'_>, String> {
    // A list would be taken for the fields in their order.
    if !line.starts_with(b"{") {
        return Err("must be a JSON object".to_owned());
    }
    let line: Line<'_> = match serde_json::from_slice(line) {
        Ok(line) => line,
        Err(error) => return Err(why(line, &error)),
    };
    line.event().map_err(|error| error.to_string())
}

/// The name of a wrong field is looked for only when there is one.
fn why(line: &[u8], error: &serde_json::Error) -> String {
    let said = |error: &serde_json::Error| {
        let text = error.to_string();
        match text.rfind(" at line ") {
            Some(place) => text[..place].to_owned(),
            None => text,
        }
    };
    if !error.is_data() {
        return format!("not JSON: {}", said(error));
    }
    let mut reader = serde_json::Deserializer::from_slice(line);
    match serde_path_to_error::deserialize::<_, Line<'_>>(&mut reader) {
        Err(found) if found.path().to_string() != "." => format!("{}: {}", found.path(), said(found.inner())),
        Err(_) | Ok(_) => said(error),
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
            .map_err(|_| Error::other("time", "must be a moment as 2025-11-29T12:00:00Z"))?;
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
