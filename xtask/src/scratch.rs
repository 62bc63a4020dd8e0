//! Temporary files that are removed whichever way we end.
//!
//! A drop does not run when a signal ends us. So each temporary path has a janitor: a shell in a process group of its
//! own (Ctrl-C does not reach it) that reads from a pipe which only we hold open. When we end, for whatever reason,
//! the kernel closes the pipe, and the janitor removes what is still there.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

use crate::process::run_quietly;

/// Waits for the end of its input. Servers need a moment to die, and may write until they do: hence the loop.
const JANITOR: &str = r#"
trap '' INT TERM HUP
read -r _
tries=0
while [ -e "$1" ] && [ "$tries" -lt 20 ]; do
    sleep 0.5
    rm -rf -- "$1"
    tries=$((tries + 1))
done
"#;

/// A path that is removed when this is dropped, or when this process is no more.
pub(crate) struct Temporary {
    path: PathBuf,
    janitor: Child,
}

impl Temporary {
    /// Takes charge of a path that is about to be created, or has just been.
    pub(crate) fn guard(path: PathBuf) -> Result<Self> {
        let janitor = Command::new("sh")
            .args(["-c", JANITOR, "janitor"])
            .arg(&path)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("cannot start sh")?;
        Ok(Self { path, janitor })
    }

    /// Makes a new directory under `parent`. Others may pass through it, but not list it: a server that runs as
    /// another user has its directory inside.
    pub(crate) fn directory(parent: &Path) -> Result<Self> {
        fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
        let made = run_quietly(Command::new("mktemp").args(["-d", "-p"]).arg(parent).arg("ichido-XXXXXXXX"))?;
        let directory = Self::guard(PathBuf::from(made.trim_end_matches('\n')))?;
        fs::set_permissions(&directory.path, fs::Permissions::from_mode(0o711))?;
        Ok(directory)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // What cannot be removed here is left to the janitor, which tries for a while.
        let _ = if self.path.is_dir() { fs::remove_dir_all(&self.path) } else { fs::remove_file(&self.path) };
        drop(self.janitor.stdin.take());
        let _ = self.janitor.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_directory_is_gone_with_its_contents() {
        let directory = Temporary::directory(&std::env::temp_dir()).unwrap();
        let path = directory.path().to_path_buf();
        fs::write(path.join("file"), "contents").unwrap();
        drop(directory);
        assert!(!path.exists());
    }

    #[test]
    fn the_janitor_removes_what_its_owner_could_not() {
        let mut directory = Temporary::directory(&std::env::temp_dir()).unwrap();
        drop(directory.janitor.stdin.take());
        directory.janitor.wait().unwrap();
        assert!(!directory.path().exists());
    }
}
