//! Every word of the console, in English and in Japanese, side by side.

use ichido_core::Holder;
use ichido_ledger::StateName;

macro_rules! translations {
    ($($name:ident: $en:literal, $ja:literal;)+) => {
        /// The words of one language.
        #[derive(Debug)]
        pub(super) struct Translations {
            $(pub(super) $name: &'static str,)+
        }

        pub(super) static EN: Translations = Translations { $($name: $en,)+ };
        pub(super) static JA: Translations = Translations { $($name: $ja,)+ };
    };
}

translations! {
    // The frame
    skip: "Skip to content", "本文へ移動";
    main_navigation: "Main", "メイン";
    overview: "Overview", "概要";
    claims: "Claims", "claim";
    delivery: "Delivery", "配送";
    sign_in: "Sign in", "サインイン";
    sign_out: "Sign out", "サインアウト";
    times_are_utc: "times are UTC", "時刻は UTC です";
    read_only: "You may look, but not change anything.", "閲覧のみ可能です。変更はできません。";
    to_overview: "To the overview", "概要へ戻る";
    refused: "That did not work", "実行できませんでした";
    not_understood: "The request was not understood.", "リクエストを解釈できませんでした。";
    form_is_old: "This form is out of date. Go back, load the page again, and try once more.",
        "フォームの有効期限が切れています。前のページに戻り、再読み込みしてからやり直してください。";
    pages: "Pages", "ページ送り";
    first_page: "First page", "最初のページ";
    next_page: "Next page", "次のページ";
    cancel: "Cancel", "キャンセル";
    are_you_sure: "Are you sure?", "実行してよろしいですか？";
    comma: ", ", "、";
    bytes: "bytes", "バイト";
    time: "Time", "時刻";
    now: "now", "現在";
    nothing: "nothing", "なし";

    // Sign-in
    token: "Token", "トークン";
    token_hint: "The value of ICHIDO_ADMIN_TOKEN, or of ICHIDO_ADMIN_READ_TOKEN to look only.",
        "ICHIDO_ADMIN_TOKEN の値。閲覧のみの場合は ICHIDO_ADMIN_READ_TOKEN の値。";
    wrong_token: "This token is not the right one.", "トークンが正しくありません。";

    // Overview
    live: "Live", "ライブ更新中";
    not_live: "Not connected. What you see here is out of date.", "接続が切れています。表示は最新ではありません。";
    paused: "Paused", "一時停止中";
    pause: "Pause", "一時停止";
    go_on: "Go on", "再開";
    since_start: "Since this process began", "プロセス起動以降";
    over_time: "Over time", "時間の推移";
    requests: "Requests", "リクエスト";
    requests_hint: "asked with a key", "キー付きの要求";
    effects: "Effects", "実行";
    effects_hint: "allowed to run, once each", "1 回だけ実行を許可";
    replays: "Replays", "リプレイ";
    replays_hint: "repeats, answered from memory", "再送に保存済みの応答を返却";
    conflicts: "Conflicts", "競合";
    conflicts_hint: "still running, or a key used twice", "処理中の再送・キーの使い回し";
    refusals: "Refused", "拒否";
    refusals_hint: "nothing ran: no key, a bad key, or too large", "未実行（キーなし・不正なキー・サイズ超過）";
    errors: "Errors", "エラー";
    errors_hint: "answers such as 502 and 503", "502 や 503 などの応答";
    unprotected: "Unprotected", "保護なし";
    unprotected_hint: "passed on without a key or a route", "キーまたは経路がなく、そのまま転送";
    duplicate_rate: "Duplicate rate", "重複検出率";
    duplicate_rate_hint: "replays among all that were answered", "応答に占めるリプレイの割合";
    in_doubt: "In doubt", "不明";
    in_doubt_hint: "someone must find out", "人による確認が必要";
    not_counted: "not counted on this ledger", "この台帳では集計しません";
    fallback: "Fallback", "フォールバック";
    fallback_hint: "answers while the ledger is out", "台帳の停止中に代わって応答";
    fallback_answers: "answering", "応答中";
    fallback_stands_by: "standing by", "待機中";
    fallback_none: "none", "なし";
    suspected_twice: "Perhaps twice", "二重実行の疑い";
    suspected_twice_hint: "effects that a takeover may have repeated", "引き継ぎにより重複した可能性";
    spool: "Spool", "スプール";
    spool_hint: "batches that wait", "再送待ちのバッチ";
    failed: "Failed", "送信失敗";
    failed_hint: "batches that need a person", "手動対応が必要なバッチ";
    per_second: "Per second", "毎秒の件数";
    what_waits: "What waits", "待機中の件数";
    a_quarter_ago: "15 min ago", "15 分前";
    values_as_table: "Values as a table", "表で表示";
    ledger: "Ledger", "台帳";
    health: "Health", "稼働状況";
    health_good: "Everything works.", "すべて正常に動作しています。";
    health_checking: "Checking…", "確認中…";
    health_bad: "Something is wrong:", "異常があります:";
    answers: "Answers", "応答";
    no_recent_errors: "no errors in the last minute", "直近 1 分間にエラーなし";
    recent_errors: "{} errors in the last minute", "直近 1 分間にエラー {} 件";
    works: "works", "正常";
    does_not_work: "does not work", "異常";
    part_ledger: "Ledger", "台帳";
    part_delivery: "Delivery", "配送";
    part_journal: "Completion journal", "完了ジャーナル";
    part_upstream: "Upstream", "アップストリーム";
    backend: "Backend", "バックエンド";
    reach: "Who sees the same claims", "共有範囲";
    survives: "Survives", "耐障害性";
    expiry: "Expiry", "有効期限の判定";
    listing: "Listing", "一覧の取得方法";
    clock_of_leases: "Clock of leases", "リースの時計";
    outcomes_up_to: "Outcomes up to", "保存できる結果の上限";
    last_runs: "Last runs", "最近の配送処理";
    last_runs_caption: "Passes over the spool, the latest first", "スプールの処理（新しい順）";
    no_runs: "Nothing has run yet.", "まだ実行されていません。";
    began: "Began", "開始";
    wanted_by: "By", "起動元";
    by_schedule: "schedule", "スケジュール";
    by_operator: "operator", "運用者";
    tried: "Tried", "試行";
    arrived: "Arrived", "到達";
    to_spool: "To spool", "スプールへ";
    to_failed: "To failed", "失敗へ";
    took: "Took", "所要時間";

    // Claims
    claims_caption: "Claims", "claim の一覧";
    key: "Key", "キー";
    key_begins: "Key begins with", "キー（前方一致）";
    state: "State", "状態";
    any_state: "any", "すべて";
    state_running: "running", "実行中";
    state_in_doubt: "in doubt", "不明";
    state_done: "done", "完了";
    search: "Search", "検索";
    search_on: "Search on", "続きを検索";
    none_yet: "Nothing found so far. There is more to search.", "ここまでは見つかっていません。続きを検索できます。";
    no_claims: "There is no such claim.", "該当する claim はありません。";
    local: "not in the ledger yet", "台帳に未反映";
    local_only: "The ledger is unavailable. These are only the claims that this process granted in its place.",
        "台帳を利用できません。このプロセスが代わりに取得を認めた claim だけを表示しています。";
    keys_in_conflict: "Keys that another instance had as well", "ほかのインスタンスと競合したキー";
    conflict_times: "Times", "回数";
    found_at: "Found", "検出日時";
    route: "Route", "経路";
    attempt: "Attempt", "試行回数";
    claimed_at: "Claimed", "取得日時";
    since_or_until: "Since / until", "状態の日時";
    claim: "Claim", "claim の詳細";
    to_claims: "To the claims", "claim の一覧へ";
    no_such_claim: "There is no such claim any more.", "この claim はもう存在しません。";
    not_now: "The claim is no longer in a state that this can change. Look at it again.",
        "claim の状態が変わったため、この操作は実行できません。もう一度確認してください。";
    tenant: "Tenant", "テナント";
    holder: "Renewed by", "リースの更新者";
    holder_process: "this process", "このプロセス";
    holder_remote: "its caller", "呼び出し元";
    renewed_at: "Last renewed", "最終更新";
    times: "times", "回";
    lease_until: "Lease until", "リース期限";
    doubt_since: "In doubt since", "不明になった日時";
    doubt_reason: "Why", "理由";
    completed_at: "Completed", "完了日時";
    forgotten_at: "Forgotten", "削除予定日時";
    lease: "Lease", "リース";
    retention: "Retention", "保持期間";
    fingerprint: "Fingerprint", "フィンガープリント";
    index: "Index", "インデックス";
    metadata: "Metadata", "メタデータ";
    no_metadata: "None was given.", "メタデータはありません。";
    outcome: "Outcome", "結果";
    answer_not_kept: "The answer was not kept", "応答は保存されていません";
    body_masked: "Hidden. Set console.bodies = \"shown\" to see stored answers here.",
        "非表示です。保存済みの応答を表示するには console.bodies = \"shown\" を設定してください。";
    your_word: "Your word", "運用者の判断";
    find_out_first: "Nobody knows whether the effect happened. Find out where it would have happened, then say so here.",
        "処理が実行されたかどうか不明です。実行先のシステムで確認してから、結果を登録してください。";
    say_done: "It happened", "実行された";
    say_done_means: "The claim becomes done. Repeats are answered, and the effect does not run again.",
        "claim は完了になります。再送には応答を返し、処理は再実行されません。";
    say_absent: "It did not happen", "実行されていない";
    say_absent_means: "The key becomes free. The next repeat runs the effect.",
        "キーは解放されます。次の再送で処理が実行されます。";
    say_release: "Give the key back", "キーを解放する";
    say_release_means: "The lease is still good: only do this if its holder is gone and the effect did not happen. The next repeat runs it.",
        "リースはまだ有効です。保持者が停止しており、処理が実行されていないことを確認した場合にのみ行ってください。次の再送で処理が実行されます。";
    said_done: "The claim is done.", "claim を完了にしました。";
    said_absent: "The key is free again.", "キーを解放しました。";
    outcome_for_repeats: "What repeats are answered (optional)", "再送への応答（任意）";
    outcome_for_repeats_hint: "JSON or text, kept as it is. Left empty, repeats learn that the answer was not kept.",
        "JSON またはテキスト。そのまま保存されます。空の場合、再送には「応答は保存されていない」と返します。";

    // Delivery
    delivers_not: "This process delivers nothing.", "このプロセスは配送を行いません。";
    lane_is_held: "Nothing is sent until someone acts:", "対応が必要なため送信を停止しています:";
    places: "Places", "保存場所";
    spool_empty: "Nothing waits.", "再送待ちのバッチはありません。";
    failed_empty: "Nothing has failed.", "送信に失敗したバッチはありません。";
    spool_caption: "Batches that wait, oldest first", "再送待ちのバッチ（古い順）";
    failed_caption: "Batches that need a person, oldest first", "手動対応が必要なバッチ（古い順）";
    list_is_cut: "Only the oldest 10,000 are listed here.", "ここには古い順に 10,000 件まで表示します。";
    batch: "Batch", "バッチ";
    batches: "batches.", "件のバッチ。";
    batch_key: "Batch key", "バッチの冪等キー";
    file: "File", "ファイル";
    first_attempt: "First attempt", "初回試行";
    passes: "Passes", "再送回数";
    not_before: "Not before", "再送可能日時";
    last_error: "Last error", "最後のエラー";
    action: "Action", "操作";
    resend: "Send again", "再送";
    resend_all: "Send all again", "すべて再送";
    resend_spool_means: "Each is tried now, also what is not due yet. What does not arrive stays in the spool.",
        "再送可能日時前のものも含め、今すぐ再送します。届かなかったものはスプールに残ります。";
    resend_failed_means: "Each is tried again, with all its passes before it. What does not arrive goes back to the spool, or to failed.",
        "再送回数をリセットして再送します。届かなかったものはスプールまたは送信失敗に戻ります。";
    to_delivery: "To the delivery", "配送へ戻る";
    no_such_batch: "This batch is not here any more: it was sent or moved.", "このバッチはここにはありません。送信または移動されました。";
    records: "Records", "レコード";
    records_masked: "Hidden. Set console.bodies = \"shown\" to see records here.",
        "非表示です。レコードを表示するには console.bodies = \"shown\" を設定してください。";
    history: "History", "履歴";
    history_caption: "What happened, the latest first", "履歴（新しい順）";
    no_history: "Nothing has happened yet.", "履歴はありません。";
    what: "What", "内容";
    details: "Details", "詳細";
    notices: "Notices", "通知";
    notices_caption: "Notices that wait, oldest first", "送信待ちの通知（古い順）";
    notices_waiting: "waiting", "送信待ち";
    notices_sent: "sent since this process began", "起動以降に送信済み";
    notice_failed: "moved to failed", "送信失敗へ移動";
    notice_expired: "waited too long", "保持期間を超過";
    notice_held: "sending is held", "送信停止";
    notice_full: "the spool is full", "スプールの容量不足";
    notice_broken: "pieces of input are no records", "レコードでない入力";
    notice_recovered: "recovered", "復旧";
    channel_log: "log", "ログ";
    channel_email: "e-mail", "メール";
    said_arrived: "Everything arrived.", "すべて到達しました。";
    said_not_arrived: "Not everything arrived; see the last runs.", "到達しなかったものがあります。最近の配送処理を確認してください。";
    said_nothing_sent: "There was nothing to send.", "再送するものはありませんでした。";
    said_under_way: "Sending goes on; the result will be among the last runs.", "再送を続けています。結果は最近の配送処理に表示されます。";
    said_busy: "Too many orders wait already. Try again later.", "再送の要求が混み合っています。しばらくしてからやり直してください。";

    // Usage
    usage: "Usage", "利用量";
    no_usage: "Nothing was counted in these days.", "この期間の利用量はありません。";
    from_day: "From", "開始日";
    to_day: "To", "終了日";
    sums_of: "Sums of", "集計単位";
    show: "Show", "表示";
    cost: "Cost", "コスト";
    cost_hint: "as the senders said", "送信元が報告した額";
    tokens: "Tokens", "トークン数";
    tokens_hint: "prompts and answers", "入力と出力の合計";
    tokens_in: "Tokens in", "入力トークン";
    tokens_out: "Tokens out", "出力トークン";
    tokens_by_day: "Tokens by day and model", "日別・モデル別のトークン数";
    calls: "Calls", "呼び出し回数";
    calls_hint: "of models", "モデルの呼び出し";
    records_hint: "counted, each once", "1 回ずつ計上";
    repeated: "Duplicates refused", "重複として拒否";
    repeated_hint: "since this process began", "プロセス起動以降";
    day: "Day", "日付";
    model: "Model", "モデル";
    other_models: "others", "その他";
    by_day_caption: "By day and model, the latest first", "日別・モデル別（新しい順）";
    top_apps: "Top apps", "上位のアプリ";
    top_users: "Top users", "上位のユーザー";
    app: "App", "アプリ";
    user: "User", "ユーザー";
    all_together: "(not told apart)", "（区別なし）";
    csv: "Download as CSV", "CSV をダウンロード";
    part_meter: "Meter", "メーター";

    // What a ledger promises
    reach_process: "this process", "このプロセス";
    reach_host: "this machine", "このマシン";
    reach_primary: "everyone who reaches the primary server", "プライマリサーバーに接続できる全員";
    reach_region: "everyone in the region", "リージョン内の全員";
    survives_kill: "a killed process", "プロセスの強制終了";
    survives_power: "power loss", "電源断";
    survives_host: "the loss of a machine", "マシンの喪失";
    survives_failover: "a failover", "フェイルオーバー";
    expiry_exact: "exact", "正確";
    expiry_lazy: "by the asker's clock; removed later", "問い合わせ側の時計で判定、削除は後から";
    listing_indexed: "by an index", "インデックス";
    listing_scan: "by a scan", "全件スキャン";
    clock_own: "the process's own", "プロセス自身";
    clock_server: "the server's", "サーバー";
    clock_watched: "watched for a full lease", "リース 1 回分を監視";
}

impl Translations {
    pub(super) fn state_of(&self, state: StateName) -> &'static str {
        match state {
            StateName::Running => self.state_running,
            StateName::InDoubt => self.state_in_doubt,
            StateName::Done => self.state_done,
        }
    }

    pub(super) fn holder_of(&self, holder: Holder) -> &'static str {
        match holder {
            Holder::Process => self.holder_process,
            Holder::Remote => self.holder_remote,
        }
    }

    /// A part whose health is asked.
    pub(super) fn component(&self, name: &'static str) -> &'static str {
        match name {
            "ledger" => self.part_ledger,
            "delivery" => self.part_delivery,
            "completion journal" => self.part_journal,
            "upstream" => self.part_upstream,
            "meter" => self.part_meter,
            other => other,
        }
    }

    /// A channel that takes notices.
    pub(super) fn channel<'a>(&self, name: &'a str) -> &'a str {
        match name {
            "slack" => "Slack",
            "email" => self.channel_email,
            "log" => self.channel_log,
            other => other,
        }
    }

    /// What is told once after an action.
    pub(super) fn action_result(&self, code: &str) -> Option<&'static str> {
        match code {
            "done" => Some(self.said_done),
            "absent" | "release" => Some(self.said_absent),
            "arrived" => Some(self.said_arrived),
            "not-arrived" => Some(self.said_not_arrived),
            "nothing-sent" => Some(self.said_nothing_sent),
            "under-way" => Some(self.said_under_way),
            "busy" => Some(self.said_busy),
            _ => None,
        }
    }

    /// A word of a ledger's capabilities.
    pub(super) fn promise(&self, word: &str) -> String {
        let known = match word {
            "process" => self.reach_process,
            "host" => self.reach_host,
            "single primary" => self.reach_primary,
            "region" => self.reach_region,
            "process kill" => self.survives_kill,
            "power loss" => self.survives_power,
            "host loss" => self.survives_host,
            "failover" => self.survives_failover,
            "exact" => self.expiry_exact,
            "lazy" => self.expiry_lazy,
            "indexed" => self.listing_indexed,
            "scan" => self.listing_scan,
            "own" => self.clock_own,
            "server" => self.clock_server,
            "watched" => self.clock_watched,
            other => other,
        };
        known.to_owned()
    }
}
