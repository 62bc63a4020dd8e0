//! What the problems of the admin port mean, by the code at the end of their `type`, and what to do about them.

use super::language::Language;

/// Code, English, Japanese.
const ALL: [(&str, &str, &str); 33] = [
    (
        "invalid",
        "The request is invalid, or a value is outside its limits. Nothing was done. Correct the field that the problem names.",
        "リクエストの形式が正しくないか、値が制限を超えています。何も実行されていません。エラーに示されたフィールドを修正してください。",
    ),
    (
        "token-refused",
        "A valid token is required. Send it as Authorization: Bearer.",
        "有効なトークンが必要です。Authorization: Bearer で送信してください。",
    ),
    (
        "read-only",
        "A read-only token cannot use the API. Use a token with full access.",
        "閲覧専用のトークンでは API を利用できません。変更できるトークンを使ってください。",
    ),
    (
        "foreign-host",
        "On loopback, the Host header must be an IP address or localhost. Call the port by its address.",
        "ループバックでは、Host ヘッダーは IP アドレスまたは localhost でなければなりません。アドレスを指定して呼び出してください。",
    ),
    (
        "foreign-origin",
        "Pages of other origins may not call this port. Call it from a program, or from the console.",
        "ほかのオリジンのページからこのポートを呼び出すことはできません。プログラムまたはコンソールから呼び出してください。",
    ),
    (
        "other-process",
        "This process does not hold the ledger that the command expected. Run the command again: it looks for the holder.",
        "このプロセスは、コマンドが想定した台帳を保持していません。コマンドを再実行すると、保持しているプロセスを探し直します。",
    ),
    (
        "body-late",
        "The body took too long to arrive. Nothing was done. Send the request again.",
        "リクエストボディの受信に時間がかかりすぎました。何も実行されていません。もう一度送信してください。",
    ),
    (
        "body-broken",
        "The body is incomplete. Nothing was done. Send the request again.",
        "リクエストボディが不完全です。何も実行されていません。もう一度送信してください。",
    ),
    (
        "body-too-large",
        "The body is larger than 32 MiB, or 1 MiB for an operator's request. Send less at once.",
        "リクエストボディが 32 MiB（運用担当者の操作では 1 MiB）を超えています。分割して送信してください。",
    ),
    (
        "in-flight",
        "Another caller holds the claim and is still running. Retry after the time in Retry-After.",
        "ほかの呼び出し元が claim を保持し、処理を実行しています。Retry-After の時間が経過してからリトライしてください。",
    ),
    (
        "in-doubt",
        "Nobody knows whether the effect happened. Its holder can still complete the claim; otherwise an operator resolves it.",
        "処理が実行されたかどうか確定していません（結果未確定）。保持者が完了を報告するか、運用担当者が解決するまで、再実行されません。",
    ),
    (
        "key-reused",
        "The key was used for another request. Use a new key for a new request.",
        "このキーは別のリクエストで使用済みです。新しいリクエストには新しいキーを使ってください。",
    ),
    (
        "stale-token",
        "The token no longer holds the claim. The problem says what became of it; do not run the effect again.",
        "このトークンでは、もう claim を保持していません。claim の現在の状態はエラーに示されています。処理を再実行しないでください。",
    ),
    (
        "no-such-claim",
        "There is no such claim. Check key, tenant and route: the claim may have expired.",
        "該当する claim はありません。キー、テナント、ルートを確認してください。期限が切れた可能性もあります。",
    ),
    (
        "no-such-event",
        "There is no such event. Check the key: the event may have expired.",
        "該当するイベントはありません。キーを確認してください。期限が切れた可能性もあります。",
    ),
    (
        "several-claims",
        "Several claims have this key. Select one with tenant and route.",
        "このキーの claim が複数あります。テナントとルートを指定してください。",
    ),
    (
        "claim-running",
        "The lease of the claim is valid. Release it with force only if its holder is gone and the effect did not happen.",
        "claim のリースはまだ有効です。保持者が停止していて、処理が実行されていない場合にのみ、force を指定して解放してください。",
    ),
    (
        "claim-not-completed",
        "Only a completed claim can be forgotten. Resolve or release this one.",
        "取り消せるのは完了した claim だけです。この claim は解決または解放してください。",
    ),
    (
        "claim-changed",
        "The claim has changed since it was shown, so nothing was done. Look at it again.",
        "表示後に claim の状態が変わったため、何も実行されていません。最新の状態を確認してください。",
    ),
    (
        "left-as-it-is",
        "The state of the claim does not allow this, so nothing was done. The problem names the state.",
        "claim の状態がこの操作に対応していないため、何も実行されていません。現在の状態はエラーに示されています。",
    ),
    (
        "cannot-ask",
        "The service cannot be asked, or its answer does not settle the claim. Resolve the claim by hand.",
        "サービスに問い合わせできないか、その回答では claim を解決できません。手動で解決してください。",
    ),
    (
        "outside-limits",
        "A value is outside its limits. Nothing was done. The problem names the limit.",
        "値が制限を超えています。何も実行されていません。制限はエラーに示されています。",
    ),
    (
        "unusable-value",
        "A value cannot be used. Nothing was done. The problem names the value.",
        "使用できない値が指定されています。何も実行されていません。該当する値はエラーに示されています。",
    ),
    (
        "unsupported",
        "The ledger does not support this. Use the tools of the database server.",
        "この台帳は対応していない操作です。データベースサーバーのツールを使ってください。",
    ),
    (
        "ledger-unavailable",
        "The ledger is not available. Nothing was done. Retry later, and check the ledger.",
        "台帳を利用できません。何も実行されていません。台帳を確認し、時間をおいてリトライしてください。",
    ),
    (
        "ledger-failed",
        "The ledger failed. What was asked may have happened: check before you repeat it. The log says why.",
        "台帳で異常が発生しました。操作が実行された可能性があるため、再実行する前に確認してください。原因はログに記録されています。",
    ),
    (
        "audit-unavailable",
        "The audit log cannot be written, so nothing was done. Check its directory.",
        "監査ログに書き込めないため、何も実行されていません。監査ログのディレクトリを確認してください。",
    ),
    (
        "audit-incomplete",
        "The action was carried out, but its result is missing from the audit log. Do not repeat it.",
        "操作は実行されましたが、その結果を監査ログに記録できませんでした。再実行しないでください。",
    ),
    (
        "history-unavailable",
        "Nothing is recorded (history.dir is off), or a history file cannot be read.",
        "履歴が記録されていない（history.dir が off）か、履歴ファイルを読み込めません。",
    ),
    (
        "overloaded",
        "All connections of the admin port are in use. Retry later.",
        "管理ポートの接続数が上限に達しています。時間をおいてリトライしてください。",
    ),
    (
        "internal",
        "The request was interrupted. Nothing was changed. Try again; the log says why.",
        "リクエストが中断されました。何も変更されていません。もう一度実行してください。原因はログに記録されています。",
    ),
    (
        "no-such-page",
        "There is nothing at this address. Check the path.",
        "この URL には何もありません。パスを確認してください。",
    ),
    (
        "no-such-method",
        "This address does not support the method. Check the API's description.",
        "この URL はこのメソッドに対応していません。API の説明を確認してください。",
    ),
];

/// What a problem means.
pub(super) fn describe(code: &str, language: Language) -> Option<&'static str> {
    let (_, english, japanese) = ALL.iter().find(|(known, ..)| *known == code)?;
    Some(match language {
        Language::En => english,
        Language::Ja => japanese,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    /// The codes in the sources of this crate: the first text after the status of a problem, or a constant for it.
    fn codes_in(dir: &Path, codes: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                codes_in(&path, codes);
                continue;
            }
            let source = std::fs::read_to_string(&path).unwrap();
            let refusals = source.split("\nconst ").skip(1).filter(|_| path.ends_with("operator/refusal.rs"));
            for part in source.split("Problem::new(").skip(1).chain(refusals) {
                let text = part.split(';').next().unwrap().split('"').nth(1).unwrap_or_default();
                let is_code = |char: char| char.is_ascii_lowercase() || char == '-';
                if !text.is_empty() && text.chars().all(is_code) {
                    codes.insert(text.to_owned());
                }
            }
        }
    }

    #[test]
    fn every_problem_is_described_in_both_languages() {
        let mut codes =
            BTreeSet::from(["in-flight", "in-doubt", "key-reused", "stale-token"].map(String::from));
        codes_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut codes);
        assert!(codes.contains("foreign-host") && codes.contains("claim-changed"), "{codes:?}");
        for code in &codes {
            let texts = [Language::En, Language::Ja].map(|language| describe(code, language));
            let [Some(english), Some(japanese)] = texts else { panic!("{code} is not described") };
            assert!(english.is_ascii() && !japanese.is_ascii(), "{code}");
        }
        assert_eq!(describe("no-such-problem", Language::Ja), None);
    }
}
