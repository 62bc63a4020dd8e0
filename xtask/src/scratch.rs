//! Temporary files that are removed however this process exits.
//!
//! If a signal terminates the process, drops do not run. So each temporary path has a janitor: a shell in its own
//! process group, which Ctrl-C does not reach. It reads from a pipe that only this process holds open. When this
//! process exits, for whatever reason, the kernel closes the pipe, and the janitor removes the path.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

use crate::process::run_quietly;

/// Waits for the end of its input. It retries the removal, because servers may still write until they exit.
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

/// A path that is removed when this is dropped, or when the process exits.
pub(crate) struct Temporary {
    path: PathBuf,
    janitor: Child,
}

impl Temporary {
    /// Takes ownership of a path that has just been created, or is about to be.
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

    /// Creates a new directory under `parent`. Other users may traverse but not list it, because a server that runs as
    /// another user has its directory inside.
    pub(crate) fn directory(parent: &Path) -> Result<Self> {
        fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
        let created =
            run_quietly(Command::new("mktemp").args(["-d", "-p"]).arg(parent).arg("ichido-XXXXXXXX"))?;
        let directory = Self::guard(PathBuf::from(created.trim_end_matches('\n')))?;
        fs::set_permissions(&directory.path, fs::Permissions::from_mode(0o711))?;
        Ok(directory)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // If this fails, the janitor retries for a while.
        let _ = if self.path.is_dir() { fs::remove_dir_all(&self.path) } else { fs::remove_file(&self.path) };
        drop(self.janitor.stdin.take());
        let _ = self.janitor.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drop_removes_a_directory_and_its_contents() {
        let directory = Temporary::directory(&std::env::temp_dir()).unwrap();
        let path = directory.path().to_path_buf();
        fs::write(path.join("file"), "contents").unwrap();
        drop(directory);
        assert!(!path.exists());
    }

    #[test]
    fn janitor_removes_a_directory_that_was_not_dropped() {
        let mut directory = Temporary::directory(&std::env::temp_dir()).unwrap();
        drop(directory.janitor.stdin.take());
        directory.janitor.wait().unwrap();
        assert!(!directory.path().exists());
    }
}
