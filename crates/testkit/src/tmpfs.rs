//! A small file system for tests of full and read-only disks.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A mounted tmpfs. It is unmounted when this is dropped.
#[derive(Debug)]
pub struct Tmpfs(PathBuf);

impl Tmpfs {
    /// Mounts a file system with these options, such as `size=24m`. `None`, with a message, if this process may not mount.
    #[expect(clippy::print_stderr, reason = "a skipped test must say so")]
    pub fn mount(path: &Path, options: &str) -> Option<Self> {
        std::fs::create_dir_all(path).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(path).output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(Self(path.to_owned()));
        }
        eprintln!("SKIPPED: mounting a tmpfs requires root");
        None
    }

    /// Changes its options.
    pub fn remount(&self, options: &str) {
        let options = format!("remount,{options}");
        assert!(Command::new("mount").args(["-o", &options]).arg(&self.0).status().unwrap().success());
    }

    /// Writes a file until the file system is full, and returns its path.
    pub fn fill(&self) -> PathBuf {
        let path = self.0.join("ballast");
        let mut ballast = std::fs::File::create(&path).unwrap();
        while ballast.write_all(&[1; 512]).is_ok() {}
        path
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(&self.0).status());
    }
}
