//! The bearer token, from the environment or from a file that is reread when it changes.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ichido_settings::Invalid;
use secrecy::{ExposeSecret, SecretString};

use crate::invalid::invalid;
use crate::redact::{Redactor, SECRET_BYTES_MIN};

/// Where the token comes from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A fixed value.
    Value(SecretString),
    /// A file that contains only the token.
    File(PathBuf),
}

/// The current token.
#[derive(Debug)]
pub struct Token {
    source: Source,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    version: Version,
    secret: SecretString,
    redactor: Redactor,
    changes: u64,
}

/// Identifies a version of the file: inode, size, and modification time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version(u64, u64, i64, i64);

impl Token {
    /// Reads the token for the first time.
    pub fn open(source: Source) -> Result<Self, Invalid> {
        let (version, secret) = read(&source)?;
        let mut redactor = Redactor::default();
        redactor.add(secret.expose_secret());
        Ok(Self { source, state: Mutex::new(State { version, secret, redactor, changes: 0 }) })
    }

    /// The token, reread if its file has changed. While the file is being replaced, the last token stays in use.
    pub fn current(&self) -> SecretString {
        self.refresh();
        self.state().secret.clone()
    }

    /// How often the token has changed. Without sending anything, it shows whether to probe a held lane.
    pub fn changes(&self) -> u64 {
        self.refresh();
        self.state().changes
    }

    /// Redacts every token that was ever in use.
    pub fn redactor(&self) -> Redactor {
        self.state().redactor.clone()
    }

    fn refresh(&self) {
        let Source::File(path) = &self.source else { return };
        let mut state = self.state();
        if fs::metadata(path).is_ok_and(|metadata| version(&metadata) == state.version) {
            return;
        }
        match read(&self.source) {
            Ok((version, secret)) => {
                state.version = version;
                if secret.expose_secret() != state.secret.expose_secret() {
                    state.redactor.add(secret.expose_secret());
                    state.secret = secret;
                    state.changes += 1;
                }
            }
            Err(error) => tracing::warn!(%error, "cannot reread the token; using the last one"),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(source: &Source) -> Result<(Version, SecretString), Invalid> {
    match source {
        Source::Value(secret) => {
            check(secret.expose_secret(), "token", "")?;
            Ok((Version(0, 0, 0, 0), secret.clone()))
        }
        Source::File(path) => {
            let fail = |error: std::io::Error| {
                invalid("token_file", format!("cannot read {}: {error}", path.display()))
            };
            // Read the metadata before the content, so that a change in between is noticed next time.
            let version = version(&fs::metadata(path).map_err(fail)?);
            let text = SecretString::from(fs::read_to_string(path).map_err(fail)?);
            let token = text.expose_secret().trim();
            check(token, "token_file", "the file ")?;
            Ok((version, SecretString::from(token)))
        }
    }
}

fn version(metadata: &fs::Metadata) -> Version {
    Version(metadata.ino(), metadata.size(), metadata.mtime(), metadata.mtime_nsec())
}

/// Checks that the token can follow `Bearer ` in a header, and can be redacted from what receivers answer.
fn check(token: &str, setting: &str, what: &str) -> Result<(), Invalid> {
    match token {
        "" => Err(invalid(setting, format!("{what}is empty"))),
        _ if !token.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Err(invalid(setting, format!("{what}must consist of visible ASCII characters, without spaces")))
        }
        _ if token.len() < SECRET_BYTES_MIN => Err(invalid(
            setting,
            format!(
                "{what}must have at least {SECRET_BYTES_MIN} characters, so that it can be hidden in logs"
            ),
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_file_is_reread_when_it_changes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        fs::write(&path, "old-token\n").unwrap();
        let token = Token::open(Source::File(path.clone())).unwrap();
        assert_eq!(token.current().expose_secret(), "old-token");
        assert_eq!(token.changes(), 0);
        fs::write(dir.path().join("next"), "new-token-9\n").unwrap();
        fs::rename(dir.path().join("next"), &path).unwrap();
        assert_eq!(token.current().expose_secret(), "new-token-9");
        assert_eq!(token.changes(), 1);
        // The old token is still redacted.
        assert_eq!(token.redactor().text("old-token new-token-9"), "*** ***");
        fs::remove_file(&path).unwrap();
        assert_eq!(token.current().expose_secret(), "new-token-9");
    }

    #[test]
    fn invalid_token_is_refused_and_not_echoed() {
        for bad in ["", "two words", "ümlaut", "line\nbreak", "Zq7"] {
            let error = Token::open(Source::Value(SecretString::from(bad))).unwrap_err().to_string();
            assert!(error.contains("delivery.token"), "{error}");
            assert!(bad.is_empty() || !error.contains(bad), "{error}");
        }
    }
}
