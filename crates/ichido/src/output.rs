//! Output for people and scripts: lines, tables, JSON.
//!
//! The reader of standard output may go away early, as `head` does. The command then exits like a process that `SIGPIPE`
//! killed, but the stack is unwound first, silently, so that child processes are stopped and files released.
//!
//! Keys, tenants and error texts are untrusted. Everything that people read passes through [`visible`] or
//! [`visible_lines`], so that no text can move the cursor, reorder its surroundings or hide a part of itself. JSON for
//! scripts is not changed.

use std::any::Any;
use std::fmt::{self, Arguments, Write as _};
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::panic::resume_unwind;
use std::process::ExitCode;

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{Cell, Color, ContentArrangement};
use ichido_core::Timestamp;
use serde::Serialize;

use ichido_serve::{ExitClass, Failure, is_invisible, stderr, visible, visible_lines};

/// The exit code that a shell reports for a process killed by `SIGPIPE`.
const SIGPIPE_EXIT: u8 = 128 + 13;

/// Prints a line on standard output.
macro_rules! outln {
    ($($line:tt)*) => { $crate::output::out(format_args!($($line)*)) };
}

/// Prints a line on standard error.
macro_rules! errln {
    ($($line:tt)*) => { $crate::output::err(format_args!($($line)*)) };
}

pub(crate) fn out(line: Arguments<'_>) {
    let line = line.to_string();
    print(|out| writeln!(out, "{}", visible_lines(&line)));
}

pub(crate) fn err(line: Arguments<'_>) {
    stderr::write_line(&visible_lines(&line.to_string()));
}

/// Writes to standard output. If that fails, unwinds the stack to end the command.
pub(crate) fn print(write: impl FnOnce(&mut io::StdoutLock<'_>) -> io::Result<()>) {
    let mut out = io::stdout().lock();
    if let Err(error) = write(&mut out).and_then(|()| out.flush()) {
        drop(out);
        resume_unwind(Box::new(WriteFailed(error)));
    }
}

/// Writing to standard output failed.
struct WriteFailed(io::Error);

/// The exit code of a command whose stack was unwound. Panics with any other cause continue.
pub(crate) fn exit_code_after(panic: Box<dyn Any + Send>) -> ExitCode {
    match panic.downcast::<WriteFailed>() {
        Ok(failed) if failed.0.kind() == ErrorKind::BrokenPipe => ExitCode::from(SIGPIPE_EXIT),
        Ok(failed) => {
            errln!("ichido: cannot write to standard output: {}", failed.0);
            ExitClass::Internal.into()
        }
        Err(panic) => resume_unwind(panic),
    }
}

/// Whether text on this stream may have colours: somebody looks at it, and did not ask for none.
pub(crate) fn may_color(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty())
}

/// The colour of a word that is a state or a verdict. The same word has the same colour everywhere.
fn color(word: &str) -> Option<Color> {
    match word {
        "ok" | "done" | "delivered" | "accepted" | "met" => Some(Color::Green),
        "warning" | "running" | "spooled" | "waiting" | "no-data" => Some(Color::Yellow),
        "FAILED" | "failed" | "in-doubt" | "missed" => Some(Color::Red),
        _ => None,
    }
}

/// A state or a verdict in a line on standard output, padded to a width.
pub(crate) fn word(word: &str, width: usize) -> String {
    let padded = format!("{word:<width$}");
    match color(word).filter(|_| may_color(&io::stdout())) {
        Some(Color::Green) => format!("\u{1b}[32m{padded}\u{1b}[0m"),
        Some(Color::Yellow) => format!("\u{1b}[33m{padded}\u{1b}[0m"),
        Some(_) => format!("\u{1b}[31m{padded}\u{1b}[0m"),
        None => padded,
    }
}

/// A table. Each cell is one line.
pub(crate) struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

pub(crate) fn table(header: &[&str]) -> Table {
    Table { header: header.iter().map(|&name| name.to_owned()).collect(), rows: Vec::new() }
}

impl Table {
    pub(crate) fn add_row<C: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = C>) {
        self.rows.push(cells.into_iter().map(|cell| cell.as_ref().to_owned()).collect());
    }

    /// Prints the table, with colours at a terminal.
    pub(crate) fn print(&self) {
        let table = self.draw(may_color(&io::stdout()));
        print(|out| writeln!(out, "{table}"));
    }

    /// Prints the table. If it has no rows, prints what that means instead.
    pub(crate) fn print_or(&self, empty: &str) {
        match self.rows.is_empty() {
            true => outln!("{empty}"),
            false => self.print(),
        }
    }

    fn draw(&self, may_color: bool) -> comfy_table::Table {
        let mut table = comfy_table::Table::new();
        table.load_style(UTF8_BORDERS_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
        table.set_header(&self.header);
        table.add_rows(self.rows.iter().map(|row| {
            row.iter().map(|text| {
                let cell = Cell::new(visible(text));
                match color(text).filter(|_| may_color) {
                    Some(color) => cell.fg(color),
                    None => cell,
                }
            })
        }));
        table
    }
}

/// The table as a part of a longer text, without colours.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.draw(false).fmt(f)
    }
}

/// Prints JSON that people read as well: the same values, with `\u` escapes for invisible characters.
pub(crate) fn visible_json(value: &impl Serialize) -> Result<(), Failure> {
    let json = serde_json::to_string_pretty(value).map_err(json_failure)?;
    let mut units = [0; 2];
    let mut visible = String::with_capacity(json.len());
    for char in json.chars() {
        match char {
            // White space between values. Inside strings it is already escaped.
            '\n' | '\t' => visible.push(char),
            '\r' => {}
            char if is_invisible(char) => {
                for unit in char.encode_utf16(&mut units) {
                    let _ = write!(visible, "\\u{unit:04x}");
                }
            }
            char => visible.push(char),
        }
    }
    print(|out| writeln!(out, "{visible}"));
    Ok(())
}

pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    let mut failed = None;
    print(|out| {
        // Written in pieces: a list may be long.
        let mut out = io::BufWriter::with_capacity(1 << 16, out);
        match serde_json::to_writer_pretty(&mut out, value) {
            Err(error) if !error.is_io() => failed = Some(error),
            written => written?,
        }
        writeln!(out).and_then(|()| out.flush())
    });
    failed.map_or(Ok(()), |error| Err(json_failure(error)))
}

fn json_failure(error: serde_json::Error) -> Failure {
    Failure::internal(format!("cannot write JSON: {error}"))
}

/// A number with its noun: the singular for 1, the plural otherwise.
pub(crate) fn count(number: u64, singular: &str, plural: &str) -> String {
    format!("{number} {}", if number == 1 { singular } else { plural })
}

/// A time in UTC, to the second.
pub(crate) fn time(at: Timestamp) -> String {
    let at = i64::try_from(at.0).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    at.map_or_else(|| "?".to_owned(), |at| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_break_out_of_its_cell() {
        let mut table = table(&["key"]);
        table.add_row(["a\n│ forged │"]);
        let drawn = table.to_string();
        assert!(drawn.contains("a\\n│ forged │") && drawn.lines().count() == 5, "{drawn}");
    }
}
