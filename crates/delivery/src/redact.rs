//! Takes secrets out of text that others wrote.
//!
//! A server may echo the token in its answer, whole or cut off where we stopped reading, as it is or escaped. What is
//! logged, stored or printed goes through here first.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

const STARS: &str = "***";
/// The longest text that is kept of an answer.
const TEXT_BYTES_MAX: usize = 2_048;
/// The beginning of a secret at the end of a text counts as the secret from so many bytes on.
const TELLING: usize = 4;

/// The spellings of the secrets.
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
    /// A mask for one more secret.
    pub fn add(&mut self, secret: &str) {
        if secret.is_empty() {
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

    /// Text without secrets, on one line, not too long.
    pub fn text(&self, text: &str) -> String {
        let mut clean =
            self.spellings.iter().fold(text.to_owned(), |text, secret| text.replace(secret, STARS));
        for secret in &self.spellings {
            let cut = (TELLING..secret.len()).rev().filter(|at| secret.is_char_boundary(*at));
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

    /// The beginning of an answer's body.
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
    fn a_secret_is_masked_in_every_spelling() {
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
    fn a_secret_that_was_cut_off_is_masked() {
        assert_eq!(redactor().text("Bearer s3cr/et"), "Bearer ***");
        assert_eq!(redactor().text("a cat"), "a cat");
    }

    #[test]
    fn text_is_one_line_and_bounded() {
        assert_eq!(redactor().text("a\nb\u{1b}[31m"), "a b [31m");
        assert!(redactor().text(&"é".repeat(5_000)).len() <= TEXT_BYTES_MAX + 4);
        assert!(!format!("{:?}", redactor()).contains("s3cr"));
    }
}
