//! The names of notices on disk.
//!
//! ```text
//! notice_20250118T120530Z_<16 hex>.json                      no channel has it yet
//! notice_20250118T120530Z_<16 hex>.sent-email+slack.json     e-mail and Slack have it, another channel does not
//! ```
//!
//! What is sent is in the name, because a rename is atomic and needs no space on a full disk.

use std::collections::BTreeSet;
use std::fmt;

const PREFIX: &str = "notice_";
const SUFFIX: &str = ".json";
const SENT: &str = ".sent-";

/// The name of a notice.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FileName {
    /// Its time and id: the order in which notices are sent.
    stem: String,
    /// The channels that have it.
    pub(super) sent: BTreeSet<String>,
}

impl FileName {
    pub(super) fn new(at: &str, id: &str) -> Self {
        let time: String = at.chars().filter(char::is_ascii_alphanumeric).collect();
        Self { stem: format!("{PREFIX}{time}_{id}"), sent: BTreeSet::new() }
    }

    /// `None` if it is not the name of a notice.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let stem = name.strip_suffix(SUFFIX).filter(|stem| stem.starts_with(PREFIX))?;
        let (stem, sent) = stem.split_once(SENT).unwrap_or((stem, ""));
        let sent = sent.split('+').filter(|channel| !channel.is_empty()).map(str::to_owned).collect();
        Some(Self { stem: stem.to_owned(), sent })
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.stem)?;
        for (index, channel) in self.sent.iter().enumerate() {
            write!(f, "{}{channel}", if index == 0 { SENT } else { "+" })?;
        }
        f.write_str(SUFFIX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_tells_which_channels_have_the_notice() {
        let mut name = FileName::new("2025-01-18T12:05:30Z", "0011223344556677");
        assert_eq!(name.to_string(), "notice_20250118T120530Z_0011223344556677.json");
        for (channel, expected) in [("slack", "sent-slack"), ("email", "sent-email+slack")] {
            name.sent.insert(channel.to_owned());
            assert_eq!(name.to_string(), format!("notice_20250118T120530Z_0011223344556677.{expected}.json"));
            assert_eq!(FileName::parse(&name.to_string()), Some(name.clone()));
        }
        for other in ["README", "notice_x.json.unreadable", "outage_x.json", ".half-notice_x.json"] {
            assert_eq!(FileName::parse(other), None, "{other}");
        }
    }
}
