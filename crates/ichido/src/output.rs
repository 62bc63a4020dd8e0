//! What people and scripts read: lines, tables, JSON, times.
//!
//! A reader of standard output may go before the end, as `head` does. Then the command ends as `SIGPIPE` would end it, but
//! in good order: the stack is unwound without a word, so that processes are ended and files let go.

use std::any::Any;
use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::panic::resume_unwind;
use std::process::ExitCode;

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{ContentArrangement, Table};
use ichido_core::Timestamp;
use serde::Serialize;

use crate::exit::{Code, Failure};

/// What a shell calls the end by `SIGPIPE`.
const CLOSED_PIPE: u8 = 128 + 13;

/// Prints a line on standard output.
macro_rules! outln {
    ($($line:tt)*) => { $crate::output::out(format_args!($($line)*)) };
}

/// Prints a line on standard error, if anybody reads it.
macro_rules! errln {
    ($($line:tt)*) => { $crate::output::err(format_args!($($line)*)) };
}

pub(crate) fn out(line: Arguments<'_>) {
    print(|out| writeln!(out, "{line}"));
}

pub(crate) fn err(line: Arguments<'_>) {
    // There is no other place to say that this one is gone.
    let _ = writeln!(io::stderr(), "{line}");
}

/// Writes to standard output, and gives up what the command does if that fails.
pub(crate) fn print(write: impl FnOnce(&mut io::StdoutLock<'_>) -> io::Result<()>) {
    let mut out = io::stdout().lock();
    if let Err(error) = write(&mut out).and_then(|()| out.flush()) {
        drop(out);
        resume_unwind(Box::new(Unread(error)));
    }
}

/// Standard output took no more.
struct Unread(io::Error);

/// How a command ends whose stack was unwound.
pub(crate) fn unread(panic: Box<dyn Any + Send>) -> ExitCode {
    match panic.downcast::<Unread>() {
        Ok(unread) if unread.0.kind() == ErrorKind::BrokenPipe => ExitCode::from(CLOSED_PIPE),
        Ok(unread) => {
            errln!("ichido: writing to standard output: {}", unread.0);
            Code::Internal.into()
        }
        Err(panic) => resume_unwind(panic),
    }
}

pub(crate) fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(header.iter().copied());
    table
}

pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    let mut unwritable = None;
    print(|out| {
        // Not as one text: a list may be long.
        let mut out = io::BufWriter::with_capacity(1 << 16, out);
        match serde_json::to_writer_pretty(&mut out, value) {
            Err(error) if !error.is_io() => unwritable = Some(error),
            written => written?,
        }
        writeln!(out).and_then(|()| out.flush())
    });
    unwritable.map_or(Ok(()), |error| Err(Failure::internal(format!("writing JSON: {error}"))))
}

/// A number with its word, for one or for any other number.
pub(crate) fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// A moment in UTC, to the second.
pub(crate) fn time(at: Timestamp) -> String {
    let at = i64::try_from(at.0).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    at.map_or_else(|| "?".to_owned(), |at| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}
