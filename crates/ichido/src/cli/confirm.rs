//! Asks before something that cannot be undone.

use std::io::{BufRead, IsTerminal, Write};

use ichido_serve::Failure;

/// Asks on a terminal. Without one, nobody can answer, and the command needs --yes.
pub(super) fn confirm(question: &str, risk: &str) -> Result<(), Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::usage(format!("{risk}; use --yes to go on without being asked")));
    }
    let mut err = std::io::stderr().lock();
    let question = format!("{question} Then {risk}. [y/N] ");
    let asked = write!(err, "{}", ichido_serve::visible(&question)).and_then(|()| err.flush());
    let mut answer = String::new();
    let read = asked.and_then(|()| std::io::stdin().lock().read_line(&mut answer));
    match read.is_ok() && ["y", "yes"].contains(&answer.trim().to_lowercase().as_str()) {
        true => Ok(()),
        false => Err(Failure::usage("nothing was done")),
    }
}
