//! Removes secrets from text that comes from elsewhere.
//!
//! A server may echo the token: in full, cut off where we stopped reading, or escaped. Everything that is logged,
//! stored or printed is redacted first.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

const STARS: &str = "***";
/// The most that is kept of a text.
const TEXT_BYTES_MAX: usize = 2_048;
/// The shortest secret that can be redacted. The letters of a shorter one occur in every text, which would become
/// unreadable and show, by what is missing, what the secret is. So settings refuse shorter secrets.
pub(crate) const SECRET_BYTES_MIN: usize = 4;
/// At the end of a text, a prefix of a secret of at least this many bytes is redacted too.
const PREFIX_BYTES_MIN: usize = 4;

/// The secrets to redact, in all their spellings.
#[derive(Clone, Default)]
pub struct Redactor {
    spellings: Vec<String>,
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Redactor(***)")
    }
}

impl Redactor {
    /// Adds a secret, unless it is shorter than four bytes: such a secret cannot be redacted.
    pub fn add(&mut self, secret: &str) {
        if secret.len() < SECRET_BYTES_MIN {
            return;
        }
        let quoted = serde_json::Value::from(secret).to_string();
        let escaped = quoted.trim_matches('"').to_owned();
        let slashed = escaped.replace('/', "\\/");
        let percent = utf8_percent_encode(secret, NON_ALPHANUMERIC).to_string();
        for spelling in [secret.to_owned(), escaped, slashed, percent] {
            if !self.spellings.contains(&spelling) {
                self.spellings.push(spelling);
            }
        }
        self.spellings.sort_by_key(|spelling| std::cmp::Reverse(spelling.len()));
    }

    /// The text without secrets, on one line, truncated.
    pub fn text(&self, text: &str) -> String {
        let mut clean =
            self.spellings.iter().fold(text.to_owned(), |text, secret| text.replace(secret, STARS));
        for secret in &self.spellings {
            let cut = (PREFIX_BYTES_MIN..secret.len()).rev().filter(|at| secret.is_char_boundary(*at));
            for at in cut {
                if let Some(before) = clean.strip_suffix(&secret[..at]) {
                    clean = format!("{before}{STARS}");
                    break;
                }
            }
        }
        let mut line: String = clean.chars().map(|char| if char.is_control() { ' ' } else { char }).collect();
        if line.len() > TEXT_BYTES_MAX {
            let end = (0..=TEXT_BYTES_MAX).rev().find(|at| line.is_char_boundary(*at)).unwrap_or(0);
            line.truncate(end);
            line.push('…');
        }
        line.trim().to_owned()
    }

    /// The start of a response body, as text without secrets.
    pub fn bytes(&self, bytes: &[u8]) -> String {
        self.text(&String::from_utf8_lossy(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redactor() -> Redactor {
        let mut redactor = Redactor::default();
        redactor.add("s3cr/et\"token");
        redactor
    }

    #[test]
    fn secret_is_redacted_in_every_spelling() {
        for text in [
            "a s3cr/et\"token b",
            "{\"auth\":\"s3cr/et\\\"token\"}",
            "s3cr\\/et\\\"token",
            "x=s3cr%2Fet%22token&y",
        ] {
            let clean = redactor().text(text);
            assert!(clean.contains(STARS) && !clean.contains("s3cr"), "{clean}");
        }
    }

    #[test]
    fn short_secret_leaves_messages_readable() {
        let mut redactor = Redactor::default();
        for secret in ["", "t", "to", "tok"] {
            redactor.add(secret);
        }
        assert_eq!(redactor.text("invalid token"), "invalid token");
        redactor.add("toke");
        assert_eq!(redactor.text("invalid token"), "invalid ***n");
    }

    #[test]
    fn truncated_secret_is_redacted() {
        assert_eq!(redactor().text("Bearer s3cr/et"), "Bearer ***");
        assert_eq!(redactor().text("a cat"), "a cat");
    }

    #[test]
    fn text_is_bounded_and_on_one_line() {
        assert_eq!(redactor().text("a\nb\u{1b}[31m"), "a b [31m");
        assert!(redactor().text(&"é".repeat(5_000)).len() <= TEXT_BYTES_MAX + 4);
        assert!(!format!("{:?}", redactor()).contains("s3cr"));
    }
}
