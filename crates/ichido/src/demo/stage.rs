//! What every act plays on: the arguments, a directory, and this very program as other processes.

use std::path::Path;
use std::process::Stdio;

use tokio::process::Command;

use crate::args::DemoArgs;
use crate::exit::Failure;

pub(super) struct Stage<'a> {
    pub(super) args: &'a DemoArgs,
    pub(super) dir: &'a Path,
}

impl Stage<'_> {
    /// Tells people what happens.
    pub(super) fn say(&self, line: &str) {
        if !self.args.json {
            println!("· {line}");
        }
    }

    /// This program again, in the directory of the demo, without any settings; it ends with the demo.
    pub(super) fn myself(&self) -> Result<Command, Failure> {
        let program = std::env::current_exe()
            .map_err(|error| Failure::internal(format!("finding this program: {error}")))?;
        let mut command = Command::new(program);
        command.current_dir(self.dir).env_clear().stdin(Stdio::null()).kill_on_drop(true);
        Ok(command)
    }
}
