//! What an error of the server or of the connection means for a ledger.
//!
//! If the server reports an error, it came before the script's first write, or from it: nothing was changed. If the
//! connection breaks, nothing is known about the script in progress.

use redis::{ErrorKind, RedisError, ServerErrorKind, Value};

use crate::{Error, Kind};

/// The results of the commands of a batch.
pub(super) type Answers = Vec<Result<Value, CallError>>;

/// A call that failed, and whether it may have reached the server.
#[derive(Clone, Debug)]
pub(super) struct CallError {
    pub(super) error: RedisError,
    pub(super) sent: bool,
}

impl CallError {
    /// No connection was available.
    pub(super) fn unsent(error: RedisError) -> Self {
        Self { error, sent: false }
    }

    /// The server replied, or the connection broke.
    pub(super) fn sent(error: RedisError) -> Self {
        Self { error, sent: true }
    }

    pub(super) fn is_unknown_script(&self) -> bool {
        self.error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
    }

    /// Converts the error into the ledger's.
    pub(super) fn into_error(self, doing: &'static str) -> Error {
        let is_server_error = matches!(self.error.kind(), ErrorKind::Server(_) | ErrorKind::Extension);
        let has_no_effect = is_server_error
            || self.error.is_connection_refusal()
            || matches!(
                self.error.kind(),
                ErrorKind::AuthenticationFailed
                    | ErrorKind::InvalidClientConfig
                    | ErrorKind::ClusterConnectionNotFound
            );
        let failure = Error::new(kind(&self.error), doing);
        let failure = failure.caused_by(self.error);
        if self.sent && !has_no_effect { failure.with_unknown_effect() } else { failure }
    }
}

fn kind(error: &RedisError) -> Kind {
    let text = error.to_string();
    let code = error.code().unwrap_or_default();
    let refused = matches!(code, "NOAUTH" | "WRONGPASS" | "NOPERM");
    // The first connection to a cluster reports the reason in its text only.
    if refused || error.kind() == ErrorKind::AuthenticationFailed || text.contains("authentication failed") {
        return Kind::Denied(denied(code));
    }
    // The text is from rustls; this error does not go away by itself.
    if text.contains("invalid peer certificate") {
        return Kind::Settings("TLS handshake with Redis failed; to trust another certificate authority, set ca_file= in the URL".to_owned());
    }
    // Before Redis 7, an error inside a script has the code ERR, and its own code only in the text.
    if text.contains("WRONGTYPE") {
        return Kind::Schema(
            "a key with the ledger's prefix is not a string: it was written in another format, or not by ichido; \
             update this ichido, delete the key, or choose another prefix with ?prefix="
                .to_owned(),
        );
    }
    let kind = error.kind();
    let moved = [ServerErrorKind::Moved, ServerErrorKind::Ask, ServerErrorKind::TryAgain];
    if moved.into_iter().any(|moved| kind == ErrorKind::Server(moved)) {
        Kind::Contended
    } else if matches!(kind, ErrorKind::Parse | ErrorKind::UnexpectedReturnType) {
        Kind::Corrupt("this version cannot parse the reply of the Redis server".to_owned())
    } else if kind == ErrorKind::InvalidClientConfig {
        Kind::Settings("Redis cannot be used with these settings; check the URL".to_owned())
    } else {
        Kind::Unavailable
    }
}

fn denied(code: &str) -> String {
    match code {
        "NOPERM" => {
            "Redis denied access: the user lacks permissions; ichido needs EVAL, EVALSHA, SCAN, INFO, TIME, and string \
                     commands on keys with its prefix"
                .to_owned()
        }
        "NOAUTH" => "Redis denied access: it requires a password, but the URL has none".to_owned(),
        _ => "Redis denied access: wrong user name or password in the URL".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server_error(line: &str) -> Error {
        let value = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
        CallError::sent(value.extract_error().unwrap_err()).into_error("asking")
    }

    #[test]
    fn key_of_another_type_is_not_an_outage_on_any_redis_version() {
        for line in [
            "WRONGTYPE Operation against a key holding the wrong kind of value script: 1f, on @user_script:4.",
            "ERR Error running script (call to f_1f): @user_script:4: WRONGTYPE Operation against a key holding",
        ] {
            let error = server_error(line);
            assert!(matches!(error.kind(), Kind::Schema(_)) && !error.is_outage(), "{error}");
        }
        assert!(
            server_error("ERR Error running script (call to f_1f): @user_script:4: -OOM command not allowed")
                .is_outage()
        );
    }
}
