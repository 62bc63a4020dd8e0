//! A text as a set of features, and the similarity of two texts.
//!
//! The features are hashes. Of a long text only the smallest ones are kept: the smallest hashes of the union of two sets are a
//! uniform sample of it, so they estimate the same Jaccard index. Up to [`FEATURES_MAX`] features, the index is exact.
//!
//! Two alerts that differ only in a host name or an amount have almost the same characters, but are different messages. So each
//! number, or word with a digit, weighs as much as an eighth of the text.

use unicode_normalization::UnicodeNormalization;

/// Shorter texts are not compared: "OK" is not a duplicate of "OK". Counted after normalisation.
pub const CHARS_MIN: usize = 10;
/// Only this much of a text is compared.
pub const CHARS_MAX: usize = 4_096;
/// The most features that are kept of a text. The standard error of an estimated similarity of 0.9 is then 0.019.
pub(crate) const FEATURES_MAX: usize = 256;
/// The weight of a number is this part of the text.
const NUMBER_PART: usize = 8;

/// The features of a text, in ascending order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sketch {
    /// The smallest distinct hashes, ascending.
    features: Box<[u32]>,
    /// Whether there were more.
    is_sample: bool,
}

impl Sketch {
    /// The features of a text. `None` if it is too short to compare.
    pub fn of(text: &str, seed: u64) -> Option<Self> {
        let mut features = features(text, seed)?;
        features.sort_unstable();
        features.dedup();
        let is_sample = features.len() > FEATURES_MAX;
        features.truncate(FEATURES_MAX);
        Some(Self { features: features.into(), is_sample })
    }

    /// The Jaccard index of two texts: exact for short ones, estimated for long ones.
    pub fn similarity(&self, other: &Self) -> f64 {
        let (one, two) = (&*self.features, &*other.features);
        // Beyond what one of the samples covers, the union is not known.
        let limit = if self.is_sample || other.is_sample { FEATURES_MAX } else { usize::MAX };
        let (mut at, mut other_at, mut union, mut shared) = (0, 0, 0_u32, 0_u32);
        while at < one.len() && other_at < two.len() && (union as usize) < limit {
            let (a, b) = (one[at], two[other_at]);
            at += usize::from(a <= b);
            other_at += usize::from(b <= a);
            shared += u32::from(a == b);
            union += 1;
        }
        let rest = (one.len() - at) + (two.len() - other_at);
        let union = (union as usize).saturating_add(rest).min(limit);
        if union == 0 { 0.0 } else { f64::from(shared) / union as f64 }
    }

    pub(crate) fn features(&self) -> &[u32] {
        &self.features
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.features)
    }
}

/// All features, with duplicates.
fn features(text: &str, seed: u64) -> Option<Vec<u32>> {
    let chars = normalise(text);
    if chars.len() < CHARS_MIN {
        return None;
    }
    let mut features = Vec::with_capacity(2 * chars.len());
    for (at, first) in chars.iter().enumerate() {
        // A Chinese or Japanese character says as much as several letters.
        let size = if is_ideographic(*first) { 2 } else { 3 };
        if let Some(gram) = chars.get(at..at + size) {
            let packed = gram.iter().fold(0_u64, |packed, char| packed << 21 | u64::from(u32::from(*char)));
            features.push(hash(packed ^ seed));
        }
    }
    let numbers = numbers(&chars);
    if numbers.is_empty() {
        return Some(features);
    }
    let weight = (features.len() / numbers.len().max(NUMBER_PART)).max(1) as u64;
    for number in numbers {
        let token = number.iter().fold(seed, |token, char| mix(token ^ u64::from(u32::from(*char))));
        features.extend((0..weight).map(|copy| hash(token.wrapping_add(copy))));
    }
    Some(features)
}

/// NFKC, lower case, and single spaces.
fn normalise(text: &str) -> Vec<char> {
    let mut chars = Vec::with_capacity(text.len().min(CHARS_MAX));
    let mut push = |char: char| {
        if !char.is_whitespace() {
            chars.push(char);
        } else if chars.last().is_some_and(|last| *last != ' ') {
            chars.push(' ');
        }
    };
    // Normalisation of ASCII changes nothing.
    if text.is_ascii() {
        text.chars().take(CHARS_MAX).map(|char| char.to_ascii_lowercase()).for_each(&mut push);
    } else {
        text.nfkc().flat_map(char::to_lowercase).take(CHARS_MAX).for_each(&mut push);
    }
    if chars.last() == Some(&' ') {
        chars.pop();
    }
    chars
}

/// The words with a digit: amounts, times, host names, ids.
fn numbers(chars: &[char]) -> Vec<&[char]> {
    let is_inside =
        |char: &char| char.is_ascii_alphanumeric() || matches!(char, '.' | ',' | ':' | '_' | '-' | '/');
    let words = chars.split(|char| !is_inside(char));
    let trimmed = words.map(|word| {
        let end = word.iter().rposition(char::is_ascii_alphanumeric).map_or(0, |last| last + 1);
        &word[..end]
    });
    trimmed.filter(|word| word.iter().any(char::is_ascii_digit)).collect()
}

fn is_ideographic(char: char) -> bool {
    // From CJK radicals to the end of the CJK and Hangul blocks, and the supplementary ideographs.
    matches!(u32::from(char), 0x2e80..=0xd7ff | 0xf900..=0xfaff | 0x2_0000..=0x3_ffff)
}

/// The finaliser of MurmurHash3, which is a bijection with good avalanche.
pub(crate) fn mix(mut bits: u64) -> u64 {
    bits ^= bits >> 33;
    bits = bits.wrapping_mul(0xff51_afd7_ed55_8ccd);
    bits ^= bits >> 33;
    bits = bits.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    bits ^ bits >> 33
}

fn hash(bits: u64) -> u32 {
    low_half(mix(bits.wrapping_add(0x9e37_79b9_7f4a_7c15)))
}

/// The low 32 bits.
pub(crate) fn low_half(bits: u64) -> u32 {
    u32::try_from(bits & u64::from(u32::MAX)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(one: &str, other: &str) -> f64 {
        Sketch::of(one, 7).unwrap().similarity(&Sketch::of(other, 7).unwrap())
    }

    #[test]
    fn width_case_and_spaces_do_not_count() {
        assert_eq!(score("Disk FULL on the  server", "disk full\non the server"), 1.0);
        assert_eq!(score("ﾊﾞｯｸｱｯﾌﾟが完了しました ＡＢＣ", "バックアップが完了しました ABC"), 1.0);
    }

    #[test]
    fn a_small_edit_is_similar_and_another_message_is_not() {
        let english = "The nightly backup of the billing database has failed, please check the storage quota";
        assert!(score(english, &english.replace("please check", "please chekc")) > 0.85);
        assert!(score(english, "A new colleague joins the support team on Monday, please say hello") < 0.3);
        let japanese =
            "請求データベースの夜間バックアップに失敗しました。ストレージの空き容量を確認してください。";
        assert!(score(japanese, &japanese.replace("ください", "下さい")) > 0.85);
        assert!(score(japanese, "来週の月曜日から新しいメンバーがサポートチームに加わります。") < 0.3);
    }

    #[test]
    fn another_number_is_another_message() {
        let alert =
            "The disk usage of web-01 is above the limit. Please remove old files or extend the volume soon.";
        assert!(score(alert, &alert.replace("web-01", "web-02")) < 0.85);
        let payment =
            "請求書の支払いが完了しました。金額は12,800円です。ご利用いただきありがとうございます。";
        assert!(score(payment, &payment.replace("12,800", "21,800")) < 0.85);
    }

    #[test]
    fn a_sample_estimates_what_the_whole_has() {
        let words = |from: usize| -> String {
            (from..from + 400).map(|number| format!("word{} ", mix(number as u64) % 100_000)).collect()
        };
        // 320 of 480 words are shared, and so are about two thirds of all features.
        let estimate = score(&words(0), &words(80));
        assert!((0.58..0.75).contains(&estimate), "{estimate}");
        assert_eq!(score(&words(0), &words(0)), 1.0);
    }

    #[test]
    fn short_texts_are_not_compared() {
        assert!(Sketch::of("  OK \n  thanks  ", 7).is_none());
        assert!(Sketch::of("了解しました", 7).is_none());
        assert!(Sketch::of("OK, thanks", 7).is_some());
    }

    #[test]
    fn seeds_separate_texts() {
        let text = "The nightly backup of the billing database";
        let (one, other) = (Sketch::of(text, 1).unwrap(), Sketch::of(text, 2).unwrap());
        assert!(one.similarity(&other) < 0.05);
    }
}
