//! Escapes text from outside, so that it is safe to print.
//!
//! Keys, tenants and error texts come from strangers. Escaping prevents a text from moving the cursor, reordering the text
//! next to it, or hiding a part of itself.

use std::borrow::Cow;

use unicode_properties::{GeneralCategory, UnicodeGeneralCategory};

/// Escapes control and format characters and makes the text one line: `\n`, `\u{1b}`, `\u{202e}`.
pub fn visible(text: &str) -> Cow<'_, str> {
    escaped(text, |_| false)
}

/// Like [`visible`], but keeps line breaks and tabs.
pub fn visible_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |char| matches!(char, '\n' | '\t'))
}

/// Like [`visible_lines`], but also keeps ESC, which colours log lines. Escape the values before they are logged.
pub fn visible_log(text: &str) -> Cow<'_, str> {
    escaped(text, |char| matches!(char, '\n' | '\t' | '\u{1b}'))
}

fn escaped(text: &str, keep: impl Fn(char) -> bool) -> Cow<'_, str> {
    let needs_escape = |char: char| is_invisible(char) && !keep(char);
    if !text.contains(needs_escape) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for char in text.chars() {
        match needs_escape(char) {
            true => escaped.extend(char.escape_default()),
            false => escaped.push(char),
        }
    }
    Cow::Owned(escaped)
}

/// Whether a character has no glyph of its own: it controls its surroundings, or has no width.
pub fn is_invisible(char: char) -> bool {
    if char.is_ascii() {
        return char.is_ascii_control();
    }
    let category = char.general_category();
    let is_ignorable = matches!(
        char,
        '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{2800}'
            | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{ffa0}' | '\u{e0000}'..='\u{e0fff}'
    );
    is_ignorable
        || matches!(
            category,
            GeneralCategory::Control
                | GeneralCategory::Format
                | GeneralCategory::LineSeparator
                | GeneralCategory::ParagraphSeparator
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invisible_characters_are_escaped() {
        let escaped = |text: &str| visible(text).into_owned();
        assert_eq!(escaped("a\u{1b}[2Jb\u{7f}\u{9b}c"), "a\\u{1b}[2Jb\\u{7f}\\u{9b}c");
        assert_eq!(escaped("a\nb\r\tc\0"), "a\\nb\\r\\tc\\u{0}");
        assert_eq!(
            escaped("\u{202e}x\u{2066}\u{200b}\u{feff}\u{2028}"),
            "\\u{202e}x\\u{2066}\\u{200b}\\u{feff}\\u{2028}"
        );
        assert_eq!(escaped("\u{3164}\u{e0041}"), "\\u{3164}\\u{e0041}");
        assert_eq!(visible_lines("a\n\tb\u{1b}"), "a\n\tb\\u{1b}");
        for text in ["", "order-17", "注文 一度　é ß 👍 \\ │"] {
            assert!(matches!(visible(text), Cow::Borrowed(same) if same == text), "{text:?}");
        }
    }
}
