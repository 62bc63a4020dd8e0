//! The words of an HTML statement, in English and Japanese.

use ichido_export::DifferenceKind;

use crate::args::StatementLanguage;

macro_rules! texts {
    ($($name:ident: $en:literal, $ja:literal;)+) => {
        #[derive(Debug)]
        pub(super) struct Texts { $(pub(super) $name: &'static str,)+ }
        const EN: Texts = Texts { $($name: $en,)+ };
        const JA: Texts = Texts { $($name: $ja,)+ };
    };
}

texts! {
    lang: "en", "ja";
    title: "Usage statement", "使用量明細書";
    tenant: "Tenant", "テナント";
    app: "App", "アプリ";
    all_apps: "all apps", "すべてのアプリ";
    created_at: "Made at", "作成日時";
    month_open: "The month is not over: more usage may be counted.", "対象月はまだ終わっていません。使用量は今後増えることがあります。";
    totals: "Totals", "合計";
    totals_hint: "Sums of different currencies or aggregation methods are never added together.",
        "通貨または集計方法が異なる金額は合算しません。";
    rows: "By app, user and model", "アプリ・ユーザー・モデル別";
    nothing: "Nothing was counted in this month.", "この月に計上された使用量はありません。";
    user: "User", "ユーザー";
    model: "Model", "モデル";
    covers: "Aggregation", "集計方法";
    records: "Records", "レコード数";
    calls: "Calls", "呼び出し回数";
    tokens_in: "Input tokens", "入力トークン数";
    tokens_out: "Output tokens", "出力トークン数";
    tokens: "Tokens", "トークン数";
    cost: "Cost", "コスト";
    changes: "Changes since the last statement", "前回の明細書からの変更";
    first: "This is the first statement of the month.", "この月の最初の明細書です。";
    no_changes: "Nothing has changed since the statement of {}.", "{} の明細書から変更はありません。";
    since: "Last statement: {}, ", "前回の明細書：{}、";
    counted_later: "Counted later", "追加計上";
    replaced: "Replaced", "差し替え";
    difference: "Difference", "差額";
    deviation: "Difference", "差異の内容";
    repeats: "Records that arrived again", "重複して届いたレコード";
    duplicates: "Duplicates refused", "重複のため拒否";
    conflicts: "Refused, with other content than counted", "計上済みと内容が異なるため拒否";
    stale: "Refused, older than counted", "計上済みより古いため拒否";
    replaced_records: "Replaced older totals", "古い合計を差し替え";
    repeats_since: "Counted since {}.", "{} 以降の件数です。";
    reconciliation: "Reconciliation", "突合";
    not_reconciled: "No reconciliation was run here for this month.", "この月の突合は、ここでは実行されていません。";
    reconciled_at: "Last run", "最終実行";
    periods: "Periods compared", "突合した期間数";
    differences: "Differences", "差異";
    receiver_silent: "The receiver did not say what it counted.", "受信側から計上結果を取得できませんでした。";
    period: "Period", "期間";
    record: "Record", "レコード";
    budgets: "Budgets", "予算";
    used: "Used", "実績";
    limit: "Budget", "予算";
    part: "Share used", "消化率";
    unit_tokens: "tokens", "トークン";
    digest: "Digest", "ダイジェスト";
    digest_hint: "The digest covers tenant, month, app and the rows. To verify a statement, keep it in JSON and run:",
        "ダイジェストは、テナント、対象月、アプリ、明細行から計算しています。検証するには、JSON 形式の明細書を保存し、次のコマンドを実行してください。";
}

/// How the sides of a reconciliation differ.
pub(super) fn difference(kind: DifferenceKind, language: StatementLanguage) -> &'static str {
    match language {
        StatementLanguage::En => kind.describe(),
        StatementLanguage::Ja => match kind {
            DifferenceKind::NotSent => "データ元にあるが、未送信",
            DifferenceKind::Changed => "送信後にデータ元で変更",
            DifferenceKind::GoneFromSource => "送信済みだが、データ元に存在しない",
            DifferenceKind::Waiting => "スプールで再送待ち",
            DifferenceKind::Failed => "送信失敗",
            DifferenceKind::NotCounted => "送信済みだが、受信側で未計上",
            DifferenceKind::CountedOtherwise => "送信した値と異なる値で計上",
            DifferenceKind::CountedUnsent => "受信側で計上済みだが、ここからは未送信",
        },
    }
}

pub(super) fn texts(language: StatementLanguage) -> &'static Texts {
    match language {
        StatementLanguage::En => &EN,
        StatementLanguage::Ja => &JA,
    }
}
