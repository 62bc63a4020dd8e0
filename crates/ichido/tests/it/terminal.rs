//! Commands at a pseudo-terminal.

use std::process::{Command, Stdio};

/// Runs a command in a pseudo-terminal, copies its output, and presses Ctrl-C once the output contains the first argument.
const TERMINAL: &str = r"
import os, pty, sys
pid, terminal = pty.fork()
if pid == 0:
    os.execvp(sys.argv[2], sys.argv[2:])
shown, waiting = b'', True
while True:
    try:
        shown += os.read(terminal, 4096)
    except OSError:
        break
    if waiting and sys.argv[1].encode() in shown:
        os.write(terminal, b'\x03')
        waiting = False
sys.stdout.buffer.write(shown)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
";

/// A text that no command prints.
pub(crate) const NEVER: &str = "\u{1}";

/// The same command at a terminal, where Ctrl-C is pressed once it has printed `interrupt_at`.
pub(crate) fn at_terminal(command: &Command, interrupt_at: &str) -> Command {
    let mut terminal = Command::new("python3");
    terminal.args(["-c", TERMINAL, interrupt_at]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => terminal.env(name, value),
            None => terminal.env_remove(name),
        };
    }
    terminal.env("TERM", "xterm").env_remove("NO_COLOR").stdin(Stdio::null());
    if let Some(dir) = command.get_current_dir() {
        terminal.current_dir(dir);
    }
    terminal
}
