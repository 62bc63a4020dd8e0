//! The bearer token: from the environment, or from a file that is read again when it changes.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use secrecy::{ExposeSecret, SecretString};

use crate::redact::Redactor;

/// Where the token comes from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A value that stays the same.
    Value(SecretString),
    /// A file whose first line is the token.
    File(PathBuf),
}

/// A token that cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

/// The token of today.
#[derive(Debug)]
pub struct Token {
    source: Source,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    seen: Seen,
    secret: SecretString,
    redactor: Redactor,
    changes: u64,
}

/// What tells whether a file is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen(u64, u64, i64, i64);

impl Token {
    /// Reads the token for the first time.
    pub fn open(source: Source) -> Result<Self, Error> {
        let (seen, secret) = read(&source)?;
        let mut redactor = Redactor::default();
        redactor.add(secret.expose_secret());
        Ok(Self { source, state: Mutex::new(State { seen, secret, redactor, changes: 0 }) })
    }

    /// The token, read again if its file has changed. A file that is being replaced leaves the last one in force.
    pub fn current(&self) -> SecretString {
        self.refresh();
        self.state().secret.clone()
    }

    /// How often it has changed. Says, without sending anything, whether a held lane is worth another look.
    pub fn changes(&self) -> u64 {
        self.refresh();
        self.state().changes
    }

    /// What hides every token that was ever in use.
    pub fn redactor(&self) -> Redactor {
        self.state().redactor.clone()
    }

    fn refresh(&self) {
        let Source::File(path) = &self.source else { return };
        let mut state = self.state();
        if fs::metadata(path).is_ok_and(|metadata| seen(&metadata) == state.seen) {
            return;
        }
        match read(&self.source) {
            Ok((seen, secret)) => {
                state.seen = seen;
                if secret.expose_secret() != state.secret.expose_secret() {
                    state.redactor.add(secret.expose_secret());
                    state.secret = secret;
                    state.changes += 1;
                }
            }
            Err(error) => tracing::warn!(%error, "the token stays the last one that could be read"),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(source: &Source) -> Result<(Seen, SecretString), Error> {
    match source {
        Source::Value(secret) => {
            check(secret.expose_secret(), "EXTERNAL_API_TOKEN")?;
            Ok((Seen(0, 0, 0, 0), secret.clone()))
        }
        Source::File(path) => {
            let fail = |error: std::io::Error| {
                Error(format!("EXTERNAL_API_TOKEN_FILE: reading {}: {error}", path.display()))
            };
            // The state before the content: a change in between is seen next time.
            let seen = seen(&fs::metadata(path).map_err(fail)?);
            let text = SecretString::from(fs::read_to_string(path).map_err(fail)?);
            let token = text.expose_secret().trim();
            check(token, "the file in EXTERNAL_API_TOKEN_FILE")?;
            Ok((seen, SecretString::from(token)))
        }
    }
}

fn seen(metadata: &fs::Metadata) -> Seen {
    Seen(metadata.ino(), metadata.size(), metadata.mtime(), metadata.mtime_nsec())
}

/// What may stand in a header after `Bearer `.
fn check(token: &str, what: &str) -> Result<(), Error> {
    match token {
        "" => Err(Error(format!("{what} is empty"))),
        _ if !token.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Err(Error(format!("{what} must be one word of visible ASCII characters")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_file_is_read_again_when_it_changes() {
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
        // The old one stays masked as well.
        assert_eq!(token.redactor().text("old-token new-token-9"), "*** ***");
        fs::remove_file(&path).unwrap();
        assert_eq!(token.current().expose_secret(), "new-token-9");
    }

    #[test]
    fn a_token_that_cannot_be_sent_is_refused_without_being_told() {
        for bad in ["", "two words", "ümlaut", "line\nbreak"] {
            let error = Token::open(Source::Value(SecretString::from(bad))).unwrap_err().to_string();
            assert!(error.contains("EXTERNAL_API_TOKEN"), "{error}");
            assert!(bad.is_empty() || !error.contains(bad), "{error}");
        }
    }
}
