//! What an error of the server or the connection means to a ledger.
//!
//! An error that the server reports came before the script's first write, or from it: nothing was changed. A
//! connection that breaks says nothing of the script that was under way.

use redis::{ErrorKind, RedisError, ServerErrorKind, Value};

use crate::{Error, Kind};

/// What came of each command of a batch.
pub(super) type Answers = Vec<Result<Value, CallError>>;

/// A call that failed, and whether it may have reached the server.
#[derive(Clone, Debug)]
pub(super) struct CallError {
    pub(super) error: RedisError,
    pub(super) sent: bool,
}

impl CallError {
    /// No connection was to be had.
    pub(super) fn unsent(error: RedisError) -> Self {
        Self { error, sent: false }
    }

    /// Something came back, or the connection broke.
    pub(super) fn sent(error: RedisError) -> Self {
        Self { error, sent: true }
    }

    pub(super) fn is_unknown_script(&self) -> bool {
        self.error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
    }

    /// In the words of a ledger.
    pub(super) fn into_error(self, doing: &'static str) -> Error {
        let told = matches!(self.error.kind(), ErrorKind::Server(_) | ErrorKind::Extension);
        let never = told
            || self.error.is_connection_refusal()
            || matches!(
                self.error.kind(),
                ErrorKind::AuthenticationFailed
                    | ErrorKind::InvalidClientConfig
                    | ErrorKind::ClusterConnectionNotFound
            );
        let failure = Error::new(kind(&self.error), doing);
        let failure = failure.caused_by(self.error);
        if self.sent && !never { failure.with_unknown_effect() } else { failure }
    }
}

fn kind(error: &RedisError) -> Kind {
    let text = error.to_string();
    let code = error.code().unwrap_or_default();
    let refused = matches!(code, "NOAUTH" | "WRONGPASS" | "NOPERM");
    // A cluster's first connection reports why it failed in its text alone.
    if refused || error.kind() == ErrorKind::AuthenticationFailed || text.contains("authentication failed") {
        return Kind::Denied(denied(code));
    }
    // rustls says so; this does not mend itself.
    if text.contains("invalid peer certificate") {
        return Kind::Settings("TLS to Redis failed; ca_file= names an authority to trust".to_owned());
    }
    // Before Redis 7 an error within a script has the code ERR, and its own only in the text.
    if text.contains("WRONGTYPE") {
        return Kind::Schema(
            "a key with our prefix is not a string: it was written in another format, or is not ours: update this \
             ichido, remove it, or choose another prefix with ?prefix="
                .to_owned(),
        );
    }
    let kind = error.kind();
    let moved = [ServerErrorKind::Moved, ServerErrorKind::Ask, ServerErrorKind::TryAgain];
    if moved.into_iter().any(|moved| kind == ErrorKind::Server(moved)) {
        Kind::Contended
    } else if matches!(kind, ErrorKind::Parse | ErrorKind::UnexpectedReturnType) {
        Kind::Corrupt("the Redis server's answer makes no sense to this version".to_owned())
    } else if kind == ErrorKind::InvalidClientConfig {
        Kind::Settings("Redis cannot be used as the URL says".to_owned())
    } else {
        Kind::Unavailable
    }
}

fn denied(code: &str) -> String {
    match code {
        "NOPERM" => {
            "Redis refuses: the user lacks rights; ichido needs EVAL, EVALSHA, SCAN, INFO, TIME, and strings \
                     and keys under its prefix"
                .to_owned()
        }
        "NOAUTH" => "Redis refuses: it wants a password, and the URL has none".to_owned(),
        _ => "Redis refuses: the user name or password in the URL is wrong".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(line: &str) -> Error {
        let value = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
        CallError::sent(value.extract_error().unwrap_err()).into_error("asking")
    }

    #[test]
    fn a_key_of_another_type_is_no_outage_on_any_version_of_redis() {
        for line in [
            "WRONGTYPE Operation against a key holding the wrong kind of value script: 1f, on @user_script:4.",
            "ERR Error running script (call to f_1f): @user_script:4: WRONGTYPE Operation against a key holding",
        ] {
            let error = told(line);
            assert!(matches!(error.kind(), Kind::Schema(_)) && !error.is_outage(), "{error}");
        }
        assert!(
            told("ERR Error running script (call to f_1f): @user_script:4: -OOM command not allowed")
                .is_outage()
        );
    }
}
