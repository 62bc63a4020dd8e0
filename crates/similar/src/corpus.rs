//! A generated corpus of messages, and how well near duplicates are found in it.
//!
//! Each message is followed by variants. Some have the same meaning: edits, another order of its sentences, another width, a prefix. Others differ
//! in meaning but little in text: another host, amount, order number or name. The same seed gives the same corpus.

use std::sync::Arc;

use ichido_core::{ManualClock, Timestamp};

use crate::sketch::mix;
use crate::{Keep, Options, SimilarTexts};

/// The language of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// English.
    English,
    /// Japanese.
    Japanese,
}

/// How a variant came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// One letter is wrong.
    Typo,
    /// One word is replaced.
    Edit,
    /// The sentences are in another order.
    Reordered,
    /// Other width, case and spaces.
    Rewritten,
    /// A note that it was sent again.
    Resent,
    /// Another host.
    OtherHost,
    /// Another amount.
    OtherAmount,
    /// Another name.
    OtherName,
    /// Another message.
    Other,
}

impl Variant {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Typo,
        Self::Edit,
        Self::Reordered,
        Self::Rewritten,
        Self::Resent,
        Self::OtherHost,
        Self::OtherAmount,
        Self::OtherName,
        Self::Other,
    ];

    /// Whether it means the same as the message.
    pub fn is_duplicate(self) -> bool {
        match self {
            Self::Typo | Self::Edit | Self::Reordered | Self::Rewritten | Self::Resent => true,
            Self::OtherHost | Self::OtherAmount | Self::OtherName | Self::Other => false,
        }
    }
}

/// Random numbers from a seed.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts at a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        usize::try_from(mix(self.0) % limit as u64).unwrap_or_default()
    }

    fn of<'a>(&mut self, texts: &[&'a str]) -> &'a str {
        texts[self.below(texts.len())]
    }
}

/// A message in its parts.
#[derive(Clone, Debug)]
struct Message {
    language: Language,
    sentences: Vec<&'static str>,
    host: String,
    amount: String,
    name: &'static str,
}

const ENGLISH: [&str; 24] = [
    "The disk usage of {host} is above the limit and still growing.",
    "Please remove old files or extend the volume before tonight.",
    "The invoice over {amount} has been paid by {name}.",
    "The nightly backup of the billing database has failed on {host}.",
    "{name} asked for a refund of {amount} because the parcel arrived damaged.",
    "The deployment to {host} finished without errors, and traffic has been switched over.",
    "We are looking into slow responses of the checkout page.",
    "The certificate of {host} expires soon, please renew it.",
    "{name} has uploaded the minutes of the weekly meeting to the shared folder.",
    "An order worth {amount} is waiting for approval by {name}.",
    "Memory pressure on {host} caused two workers to be restarted.",
    "The customer reports that the export does not contain any rows.",
    "Response times are back to normal, and the incident is resolved.",
    "The payment provider declined a charge of {amount} for the account of {name}.",
    "Please review the attached contract and send your comments to {name}.",
    "The queue on {host} has not been processed since this morning.",
    "Our budget for the campaign has been increased to {amount} after the talk with {name}.",
    "The new version of the mobile app is available for testing.",
    "A password reset was requested for the account of {name}.",
    "The replica on {host} lags behind the primary database.",
    "The supplier confirmed the delivery of the spare parts for next week.",
    "{name} will be out of the office and can be reached by phone.",
    "The monthly report shows a revenue of {amount} in the northern region.",
    "Support for the old interface ends at the end of the year.",
];

const JAPANESE: [&str; 24] = [
    "{host}のディスク使用率が上限を超え、増え続けています。",
    "今夜までに不要なファイルを削除するか、ボリュームを拡張してください。",
    "{name}様より{amount}の請求書のお支払いが完了しました。",
    "{host}で請求データベースの夜間バックアップに失敗しました。",
    "商品が破損していたため、{name}様が{amount}の返金を希望されています。",
    "{host}へのデプロイが正常に完了し、トラフィックを切り替えました。",
    "決済ページの応答が遅い件について調査しています。",
    "{host}の証明書の有効期限が近づいています。更新をお願いします。",
    "{name}さんが定例会議の議事録を共有フォルダにアップロードしました。",
    "{amount}の注文が{name}さんの承認を待っています。",
    "{host}のメモリ不足によりワーカーが二つ再起動されました。",
    "お客様より、エクスポートしたファイルにデータが含まれないとの連絡がありました。",
    "応答時間は正常に戻り、障害は解消しました。",
    "決済代行会社が{name}様の口座への{amount}の請求を拒否しました。",
    "添付の契約書をご確認のうえ、{name}さんまでご意見をお送りください。",
    "{host}のキューが今朝から処理されていません。",
    "{name}さんとの打ち合わせの結果、キャンペーンの予算を{amount}に増額しました。",
    "モバイルアプリの新しいバージョンをテストできるようになりました。",
    "{name}様のアカウントでパスワードの再設定が要求されました。",
    "{host}のレプリカがプライマリより遅れています。",
    "仕入先から、交換部品を来週納品するとの連絡がありました。",
    "{name}さんは外出中ですが、電話で連絡が取れます。",
    "月次レポートによると、北部地域の売上は{amount}でした。",
    "旧インターフェースのサポートは年末で終了します。",
];

const HOSTS: [&str; 8] = ["web", "db", "cache", "queue", "batch", "mail", "search", "proxy"];
const ENGLISH_NAMES: [&str; 8] = [
    "Alice Moore",
    "Robert King",
    "Maria Lopez",
    "John Carter",
    "Emma Wilson",
    "David Chen",
    "Laura Becker",
    "Peter Novak",
];
const JAPANESE_NAMES: [&str; 8] = ["佐藤", "鈴木", "高橋", "田中", "伊藤", "渡辺", "山本", "中村"];

impl Message {
    fn new(language: Language, random: &mut Random) -> Self {
        let (templates, names) = match language {
            Language::English => (&ENGLISH, &ENGLISH_NAMES),
            Language::Japanese => (&JAPANESE, &JAPANESE_NAMES),
        };
        let mut sentences = Vec::new();
        let count = 1 + random.below(5);
        while sentences.len() < count {
            let sentence = random.of(templates);
            if !sentences.contains(&sentence) {
                sentences.push(sentence);
            }
        }
        let name = random.of(names);
        Self { language, sentences, host: host(random), amount: amount(language, random), name }
    }

    fn text(&self) -> String {
        let space = match self.language {
            Language::English => " ",
            Language::Japanese => "",
        };
        let text = self.sentences.join(space);
        text.replace("{host}", &self.host).replace("{amount}", &self.amount).replace("{name}", self.name)
    }

    /// A variant. `None` if this message does not have what would differ.
    fn variant(&self, variant: Variant, random: &mut Random) -> Option<String> {
        let has = |part: &str| self.sentences.iter().any(|sentence| sentence.contains(part));
        let text = self.text();
        let changed = match variant {
            Variant::Typo => typo(&text, random),
            Variant::Edit => self.edit(&text),
            Variant::Reordered => {
                let mut sentences = self.sentences.clone();
                sentences.rotate_left(1);
                Self { sentences, ..self.clone() }.text()
            }
            Variant::Rewritten => match self.language {
                Language::English => text.to_uppercase().replace(' ', "  "),
                Language::Japanese => text.chars().map(full_width).collect(),
            },
            Variant::Resent => match self.language {
                Language::English => format!("[resent] {text}"),
                Language::Japanese => format!("【再送】{text}"),
            },
            Variant::OtherHost => Self { host: has("{host}").then(|| host(random))?, ..self.clone() }.text(),
            Variant::OtherAmount => {
                Self { amount: has("{amount}").then(|| amount(self.language, random))?, ..self.clone() }
                    .text()
            }
            Variant::OtherName => {
                let names = match self.language {
                    Language::English => &ENGLISH_NAMES,
                    Language::Japanese => &JAPANESE_NAMES,
                };
                Self { name: has("{name}").then(|| random.of(names))?, ..self.clone() }.text()
            }
            Variant::Other => Self::new(self.language, random).text(),
        };
        (changed != text).then_some(changed)
    }

    fn edit(&self, text: &str) -> String {
        let pairs: &[(&str, &str)] = match self.language {
            Language::English => &[
                ("please", "kindly"),
                ("Please", "Kindly"),
                ("has been", "was"),
                ("The", "Our"),
                (" and ", " or "),
            ],
            Language::Japanese => &[
                ("しました", "いたしました"),
                ("ください", "下さい"),
                ("います", "おります"),
                ("でした", "となりました"),
            ],
        };
        let found = pairs.iter().find(|(from, _)| text.contains(from));
        found.map_or_else(|| text.to_owned(), |(from, to)| text.replacen(from, to, 1))
    }
}

fn host(random: &mut Random) -> String {
    format!("{}-{:02}", random.of(&HOSTS), 1 + random.below(60))
}

fn amount(language: Language, random: &mut Random) -> String {
    let (thousands, rest) = (1 + random.below(98), 100 + random.below(900));
    match language {
        Language::English => format!("${thousands},{rest}.{:02}", random.below(100)),
        Language::Japanese => format!("{thousands},{rest}円"),
    }
}

/// Drops one character that is not part of a number.
fn typo(text: &str, random: &mut Random) -> String {
    let chars: Vec<char> = text.chars().collect();
    let letters: Vec<usize> =
        chars.iter().enumerate().filter(|(_, char)| char.is_alphabetic()).map(|(at, _)| at).collect();
    let dropped = letters[random.below(letters.len())];
    chars.iter().enumerate().filter(|(at, _)| *at != dropped).map(|(_, char)| char).collect()
}

fn full_width(char: char) -> char {
    match char {
        '!'..='~' => char::from_u32(u32::from(char) + 0xfee0).unwrap_or(char),
        other => other,
    }
}

/// Messages for an index that is already full, all different.
pub fn background(language: Language, random: &mut Random) -> String {
    format!("{} {}", Message::new(language, random).text(), Message::new(language, random).text())
}

/// What was found in a corpus at a threshold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Duplicates that were found.
    pub found: usize,
    /// Duplicates that were not.
    pub missed: usize,
    /// Other messages that were taken for duplicates.
    pub false_alarms: usize,
    /// Other messages that were not.
    pub told_apart: usize,
}

impl Findings {
    /// How many of the reported messages were duplicates.
    pub fn precision(&self) -> f64 {
        ratio(self.found, self.found + self.false_alarms)
    }

    /// How many of the duplicates were reported.
    pub fn recall(&self) -> f64 {
        ratio(self.found, self.found + self.missed)
    }
}

fn ratio(part: usize, whole: usize) -> f64 {
    if whole == 0 { 1.0 } else { part as f64 / whole as f64 }
}

/// Checks the variants of `messages` messages against an index that has only seen the message itself.
pub fn evaluate(
    language: Language,
    threshold: f64,
    messages: usize,
    seed: u64,
    mut each: impl FnMut(Variant, bool),
) -> Findings {
    let mut random = Random::new(seed);
    let mut findings = Findings::default();
    let clock = Arc::new(ManualClock::at(Timestamp(1)));
    for number in 0..messages {
        let options = Options { threshold, ..Options::default() };
        let texts = Arc::new(SimilarTexts::new(options, clock.clone(), number as u64));
        let message = Message::new(language, &mut random);
        if let Some(remembered) = texts.check("", "message", &message.text(), Keep::Always).remembered {
            remembered.confirm();
        }
        for variant in Variant::ALL {
            let Some(text) = message.variant(variant, &mut random) else { continue };
            let is_found = texts.check("", "variant", &text, Keep::IfDifferent).similar.is_some();
            each(variant, is_found);
            match (variant.is_duplicate(), is_found) {
                (true, true) => findings.found += 1,
                (true, false) => findings.missed += 1,
                (false, true) => findings.false_alarms += 1,
                (false, false) => findings.told_apart += 1,
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_duplicates_are_found_and_other_messages_told_apart() {
        for language in [Language::English, Language::Japanese] {
            for (threshold, precision, recall) in [(0.7, 0.74, 0.98), (0.8, 0.85, 0.97), (0.9, 0.86, 0.87)] {
                let mut other_numbers = 0;
                let findings = evaluate(language, threshold, 400, 1, |variant, is_found| {
                    let is_number = matches!(variant, Variant::OtherHost | Variant::OtherAmount);
                    other_numbers += usize::from(is_number && is_found);
                });
                assert!(threshold < 0.8 || other_numbers == 0, "{language:?} {threshold} {other_numbers}");
                assert!(findings.precision() >= precision, "{language:?} {threshold} {findings:?}");
                assert!(findings.recall() >= recall, "{language:?} {threshold} {findings:?}");
                assert_eq!(findings, evaluate(language, threshold, 400, 1, |_, _| {}), "the corpus is fixed");
            }
        }
    }
}
