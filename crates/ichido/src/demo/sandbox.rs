//! What every scenario runs in: the demo's arguments, its directory, and this program as child processes.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use tokio::process::Child;

use crate::args::DemoArgs;
use ichido_serve::Failure;

pub(super) struct Sandbox<'a> {
    pub(super) args: &'a DemoArgs,
    pub(super) dir: &'a Path,
}

impl Sandbox<'_> {
    /// Prints the title of a scenario and what it does.
    pub(super) fn introduce(&self, title: &str, text: &str) {
        if !self.args.json {
            outln!("\n{title}\n  {text}");
        }
    }

    /// Prints what just happened.
    pub(super) fn say(&self, line: &str) {
        if !self.args.json {
            outln!("  · {line}");
        }
    }

    /// A command that runs this program in the demo's directory, without the user's settings.
    ///
    /// The child has its own process group: Ctrl-C reaches only the demo, which then stops its children in order.
    pub(super) fn ichido(&self) -> Result<Command, Failure> {
        let program = std::env::current_exe()
            .map_err(|error| Failure::internal(format!("cannot find the path of this program: {error}")))?;
        let mut command = Command::new(program);
        command.current_dir(self.dir).env_clear().stdin(Stdio::null()).process_group(0);
        Ok(command)
    }
}

/// Starts a child that is killed when its handle is dropped.
pub(super) fn spawn(command: Command, name: &str) -> Result<Child, Failure> {
    let child = tokio::process::Command::from(command).kill_on_drop(true).spawn();
    child.map_err(|error| Failure::internal(format!("cannot start {name}: {error}")))
}
