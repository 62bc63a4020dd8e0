//! One entry, and its line.

use std::fmt;

use ichido_core::to_hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The hash in front of the first entry.
pub(super) const NO_HASH: &str = "0000000000000000000000000000000000000000000000000000000000000000";
/// What separates the hash of a line from what it covers.
const HASH_FIELD: &str = ",\"hash\":\"";
const LINE_END: &str = "\"}\n";

/// One entry. Its line adds the hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its number: 1, 2, 3…
    pub seq: u64,
    /// When it was written, as RFC 3339 in UTC.
    pub time: String,
    /// Which part of an action it records.
    pub step: Step,
    /// The number of the intent that this is the result of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<u64>,
    /// Who acted.
    #[serde(flatten)]
    pub actor: Actor,
    /// What they did.
    #[serde(flatten)]
    pub action: Action,
    /// How it ended.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Bytes in front of this entry that are none: a process stopped while it wrote them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub torn: Option<Torn>,
    /// The hash of the entry before.
    pub prev: String,
}

/// Bytes that are no entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Torn {
    /// How many there are, with the line break that ends them.
    pub bytes: u64,
    /// Their hash.
    pub sha256: String,
}

/// Which part of an action an entry records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Step {
    /// It is about to be carried out.
    Intent,
    /// It ended.
    Result,
    /// It is recorded in one entry.
    Event,
}

/// Who acts, and from where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    /// The name of the token, of the proxy's user, or of the user of the operating system.
    pub who: String,
    /// What the name is.
    pub via: Via,
    /// The address of the client, or `cli`.
    pub from: String,
    /// The person behind a command under sudo, as the environment says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sudo_user: Option<String>,
}

/// How an actor is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Via {
    /// Sent the token of this name.
    Token,
    /// Signed in to the console with the token of this name.
    Session,
    /// An authenticating proxy vouches for the name.
    Proxy,
    /// Nobody in particular: the port requires no token.
    Open,
    /// A user of the operating system, on the command line.
    Cli,
    /// The process itself.
    Process,
}

/// What an actor does, and to what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    /// The name of the action.
    pub action: String,
    /// The index of a claim or an event. The key itself may be a secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<String>,
    /// The directory of batches, or of a backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// The keys of batches, or the starts of them. None: all in the directory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub batches: Vec<String>,
    /// Why, in the words of the actor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The state before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
}

/// How an action ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// `applied`, or why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// The state after, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Records that a sweep or a compaction removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<u64>,
    /// Batches that arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrived: Option<u64>,
}

impl Action {
    /// An action without a target.
    pub fn named(action: &str) -> Self {
        Self { action: action.to_owned(), ..Self::default() }
    }
}

impl Outcome {
    /// An outcome that is only a result.
    pub fn of(result: &str) -> Self {
        Self { result: Some(result.to_owned()), ..Self::default() }
    }
}

impl Actor {
    /// The user who runs this command. The name comes from the user database, not from the environment.
    pub fn command_line() -> Self {
        let uid = rustix::process::getuid().as_raw();
        let who = user_name(&std::fs::read_to_string("/etc/passwd").unwrap_or_default(), uid);
        let sudo_user = std::env::var("SUDO_USER").ok().filter(|user| is_name(user));
        Self {
            who: who.unwrap_or_else(|| format!("uid {uid}")),
            via: Via::Cli,
            from: "cli".to_owned(),
            sudo_user,
        }
    }

    /// This process, for what nobody asked it to do.
    pub fn process() -> Self {
        let from = format!("pid {}", std::process::id());
        Self { who: "ichido".to_owned(), via: Via::Process, from, sudo_user: None }
    }
}

fn user_name(passwd: &str, uid: u32) -> Option<String> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid) && is_name(name)).then(|| name.to_owned())
    })
}

/// The longest name of a user.
const NAME_BYTES_MAX: usize = 128;

/// Whether a text can be the name of a user: not empty, not long, and every character visible.
pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= NAME_BYTES_MAX && !text.chars().any(ichido_serve::is_invisible)
}

impl Entry {
    /// The line of the entry, and its hash.
    pub(super) fn encode(&self) -> Result<(String, String), serde_json::Error> {
        let mut line = serde_json::to_string(self)?;
        line.truncate(line.len() - 1);
        let hash = sha256(line.as_bytes());
        line.extend([HASH_FIELD, &hash, LINE_END]);
        Ok((line, hash))
    }

    /// Reads a line, with its line break. `None` if it is not exactly as it was written.
    pub(super) fn decode(line: &[u8]) -> Option<(Self, String)> {
        let text = std::str::from_utf8(line).ok()?;
        let (covered, hash) = text.strip_suffix(LINE_END)?.rsplit_once(HASH_FIELD)?;
        if sha256(covered.as_bytes()) != hash {
            return None;
        }
        let entry = serde_json::from_str(&format!("{covered}}}")).ok()?;
        Some((entry, hash.to_owned()))
    }

    /// The end of a line with this hash.
    pub(super) fn line_end(hash: &str) -> String {
        format!("{HASH_FIELD}{hash}{LINE_END}")
    }
}

pub(super) fn sha256(bytes: &[u8]) -> String {
    to_hex(&Sha256::digest(bytes))
}

impl fmt::Display for Via {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Via::Token => "token",
            Via::Session => "session",
            Via::Proxy => "proxy",
            Via::Open => "open",
            Via::Cli => "cli",
            Via::Process => "process",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn os_user_is_found_by_number() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\nbroken\n";
        assert_eq!(user_name(passwd, 1000).as_deref(), Some("alice"));
        assert_eq!(user_name(passwd, 0).as_deref(), Some("root"));
        assert_eq!(user_name(passwd, 7), None);
    }

    #[test]
    fn names_are_short_and_visible() {
        assert!(is_name("alice@example.com") && is_name("山田 太郎"));
        for bad in ["", "a\nb", "a\u{202e}b", &"x".repeat(129)] {
            assert!(!is_name(bad), "{bad:?}");
        }
    }
}
