//! `ichido completions` and `ichido man`: files that a package installs, generated from the arguments.

use std::io::Write;
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Args;
use crate::output;
use ichido_serve::Failure;

pub(super) fn completions(shell: Shell) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "ichido", &mut text);
    output::print(|out| out.write_all(&text));
    Ok(())
}

pub(super) fn pages(dir: &Path) -> Result<(), Failure> {
    let written = std::fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(Args::command(), dir));
    written.map_err(|error| Failure::usage(format!("{}: {error}", dir.display())))
}
