//! The language of a page: from the cookie of the switch, or what the browser prefers, or English.

use http::{HeaderMap, header};

use super::translations::{EN, JA, Translations};
use crate::browser::cookie;

/// The cookie that stores the choice.
pub(super) const COOKIE: &str = "ichido-lang";

/// A language of the console.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    En,
    Ja,
}

impl Language {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        cookie(headers, COOKIE).and_then(Self::parse).unwrap_or_else(|| Self::preferred(headers))
    }

    pub(super) fn parse(tag: &str) -> Option<Self> {
        match tag.split('-').next()?.to_ascii_lowercase().as_str() {
            "en" => Some(Self::En),
            "ja" => Some(Self::Ja),
            _ => None,
        }
    }

    fn preferred(headers: &HeaderMap) -> Self {
        let text =
            headers.get(header::ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let mut best = (Self::En, 0.0);
        for range in text.split(',') {
            let mut parts = range.split(';');
            let Some(lang) = parts.next().and_then(|tag| Self::parse(tag.trim())) else { continue };
            let weight = parts.find_map(|part| part.trim().strip_prefix("q=")?.parse().ok()).unwrap_or(1.0);
            if weight > best.1 {
                best = (lang, weight);
            }
        }
        best.0
    }

    /// The value of the `lang` attribute.
    pub(super) fn tag(self) -> &'static str {
        match self {
            Self::En => "en",
            Self::Ja => "ja",
        }
    }

    /// The language's own name for itself.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::En => "English",
            Self::Ja => "日本語",
        }
    }

    pub(super) fn other(self) -> Self {
        match self {
            Self::En => Self::Ja,
            Self::Ja => Self::En,
        }
    }

    pub(super) fn translations(self) -> &'static Translations {
        match self {
            Self::En => &EN,
            Self::Ja => &JA,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn language_switch_wins_over_the_browser() {
        let of = |accepted: &str, cookies: &str| {
            let fields = [(header::ACCEPT_LANGUAGE, accepted), (header::COOKIE, cookies)];
            Language::of(&fields.into_iter().map(|(name, value)| (name, value.parse().unwrap())).collect())
        };
        assert_eq!(of("", ""), Language::En);
        assert_eq!(of("ja,en-US;q=0.9,en;q=0.8", ""), Language::Ja);
        assert_eq!(of("fr, en-GB;q=0.5, ja-JP;q=0.7", ""), Language::Ja);
        assert_eq!(of("ja;q=0", ""), Language::En);
        assert_eq!(of("ja", "ichido-lang=en"), Language::En);
        assert_eq!(of("en", "a=b; ichido-lang=ja"), Language::Ja);
        assert_eq!(of("ja", "ichido-lang=<script>"), Language::Ja);
    }
}
