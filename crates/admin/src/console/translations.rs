//! All texts of the console, in English and Japanese, side by side.

use std::fmt::Display;

use ichido_core::Holder;
use ichido_history::anomalies::Kind;
use ichido_ledger::StateName;

macro_rules! translations {
    ($($name:ident: $en:literal, $ja:literal;)+) => {
        /// The texts of one language.
        #[derive(Debug)]
        pub(super) struct Translations {
            $(pub(super) $name: &'static str,)+
        }

        pub(super) static EN: Translations = Translations { $($name: $en,)+ };
        pub(super) static JA: Translations = Translations { $($name: $ja,)+ };
    };
}

translations! {
    // Page layout
    skip: "Skip to content", "本文へ移動";
    main_navigation: "Main", "メイン";
    overview: "Overview", "概要";
    claims: "Claims", "claim";
    events: "Events", "イベント";
    delivery: "Delivery", "送信";
    sign_in: "Sign in", "サインイン";
    sign_out: "Sign out", "サインアウト";
    signed_in_as: "Signed in as", "サインイン中のユーザー";
    times_are_utc: "times are UTC", "時刻は UTC です";
    read_only: "You have read-only access.", "閲覧専用でサインインしています。変更はできません。";
    back_to_overview: "Back to overview", "概要に戻る";
    error_title: "This did not work", "実行できませんでした";
    invalid_request: "The request is invalid.", "リクエストの形式が正しくありません。";
    form_expired: "This form has expired. Go back, reload the page and try again.",
        "フォームの有効期限が切れています。前のページに戻り、再読み込みしてからやり直してください。";
    pages: "Pages", "ページ送り";
    first_page: "First page", "最初のページ";
    next_page: "Next page", "次のページ";
    cancel: "Cancel", "キャンセル";
    are_you_sure: "Are you sure?", "実行してよろしいですか？";
    comma: ", ", "、";
    colon: ": ", "：";
    parentheses: " ({})", "（{}）";
    bytes: "bytes", "バイト";
    time: "Time", "時刻";
    now: "now", "現在";
    nothing: "nothing", "なし";

    // Trace
    trace: "Trace", "追跡";
    trace_label: "Record, batch, key, request ID or hash", "レコード・バッチ・キー・リクエスト ID・ハッシュ";
    trace_placeholder: "Trace an ID", "ID を追跡";
    trace_hint: "Enter the ID of a record, the key of a batch, a claim or an event, a request ID, or a hash from the log (at most 1,024 characters).",
        "レコードの ID、バッチ・claim・イベントのキー、リクエスト ID、ログに出力されたハッシュのいずれかを入力してください（1,024 文字まで）。";
    trace_timeline: "What happened", "経過";
    trace_nothing: "Nothing was found. Check the ID, and see below what was searched and what was not.",
        "見つかりませんでした。ID に誤りがないか確認し、下の表で調べた範囲を確認してください。";
    trace_omitted: "Later entries that are not shown: {}", "以降の {} 件は表示していません。";
    looked_into: "Looked into", "調べた場所";
    not_looked_into: "Not looked into, or only in part", "調べられなかった場所・範囲";
    trace_place: "Place", "場所";
    trace_what: "What happened", "できごと";
    trace_searched: "Searched", "調べた範囲";
    trace_found: "Found", "該当件数";
    trace_why: "Why", "理由";
    place_export: "Export", "エクスポート";
    place_receipts: "Receipts", "送信記録";
    place_in_flight: "In flight", "送信中";
    place_meter: "Meter", "メーター";
    place_ledger: "Ledger", "台帳";
    place_audit: "Audit log", "監査ログ";
    traced_sent: "recorded as sent", "送信済みとして記録";
    traced_batched: "put into a batch", "バッチに格納";
    traced_request: "request", "リクエスト";
    traced_delivered: "delivered", "送信成功";
    traced_spooled: "kept in the spool", "スプールに保存";
    traced_failed: "moved to failed", "送信失敗へ移動";
    traced_split: "batch split", "バッチを分割";
    traced_accepted: "accepted by an operator", "運用担当者が送信済みと判断";
    traced_in_flight: "being sent", "送信中";
    traced_in_spool: "waiting in the spool", "スプールで待機中";
    traced_in_failed: "waiting in failed", "送信失敗で対応待ち";
    traced_counted: "counted", "計上";
    traced_received: "batch received", "バッチを受信";
    traced_received_again: "batch received again", "バッチを再受信";
    traced_claimed: "claimed", "claim を取得";
    traced_marked: "first seen", "初回受信";

    // Success criteria
    slo: "Success criteria", "成功基準";
    slo_criterion: "Criterion", "基準";
    slo_verdict: "Result", "判定";
    slo_value: "Measured", "実績";
    slo_target: "Target", "目標";
    slo_met: "met", "達成";
    slo_missed: "missed", "未達";
    slo_no_data: "no data", "データなし";
    slo_empty: "Nothing was sent in this month. Choose another month, or send a batch.",
        "この月に送信されたバッチはありません。ほかの月を選ぶか、バッチを送信してから確認してください。";
    slo_send_success: "Deliveries that succeed", "データ送信成功率";
    slo_retry_success: "Retries that succeed", "リトライ成功率";
    slo_resend_success: "Resends from the spool that succeed", "スプール再送成功率";
    slo_latency: "Delivery time, 95th percentile", "送信レイテンシ（P95）";
    slo_spool_age: "Time in the spool, 95th percentile", "スプール滞留時間（P95）";
    slo_failed: "Share moved to failed", "送信失敗への移動率";
    slo_interventions: "Manual interventions", "手動介入";
    slo_more: "Further batches: {}", "ほかに {} 件あります。";
    slo_notes: "Notes", "注記";

    // Sign-in
    token: "Token", "トークン";
    token_hint: "Your token of ICHIDO_ADMIN_TOKENS, or the value of ICHIDO_ADMIN_TOKEN, or of ICHIDO_ADMIN_READ_TOKEN for read-only access.",
        "ICHIDO_ADMIN_TOKENS に設定された自分のトークン、または ICHIDO_ADMIN_TOKEN の値を入力してください。閲覧専用の場合は ICHIDO_ADMIN_READ_TOKEN の値を入力してください。";
    sign_in_at_proxy: "Open this page through the proxy that signs you in.",
        "サインインを行うプロキシ経由でこのページを開いてください。";
    audit_unavailable: "The audit log cannot be written, so nothing was done.",
        "監査ログに書き込めないため、何も実行されませんでした。";
    wrong_token: "This token is not valid.", "トークンが正しくありません。";

    // Overview
    live: "Live", "ライブ更新中";
    not_live: "Not connected. This page is out of date.", "接続が切れています。表示内容は最新ではありません。";
    paused: "Paused", "一時停止中";
    pause: "Pause", "一時停止";
    resume: "Resume", "再開";
    since_start: "Since this process started", "プロセス起動以降";
    over_time: "Over time", "推移";
    requests: "Requests", "リクエスト";
    requests_hint: "with a key", "キー付きのもの";
    effects: "Effects", "実行";
    effects_hint: "allowed to run, once each", "1 回だけ実行を許可した処理";
    replays: "Replays", "リプレイ";
    replays_hint: "duplicates answered with the stored response", "重複に保存済みのレスポンスを返した件数";
    conflicts: "Conflicts", "競合";
    conflicts_hint: "still running, or key reused", "処理中の重複、またはキーの使い回し";
    refused_requests: "Refused", "拒否";
    refused_requests_hint: "nothing ran: no key, invalid key, or too large", "未実行（キーなし・不正なキー・サイズ超過）";
    errors: "Errors", "エラー";
    errors_hint: "responses such as 502 and 503", "502 や 503 などのレスポンス";
    unprotected: "Unprotected", "保護なし";
    unprotected_hint: "forwarded without a key or a matching route", "キーなし、または対象外のルートのため、そのまま転送";
    duplicate_rate: "Duplicate rate", "重複検出率";
    duplicate_rate_hint: "replays among all answered requests", "レスポンス全体に占めるリプレイの割合";
    in_doubt: "In doubt", "結果未確定";
    in_doubt_hint: "needs an operator", "運用担当者の確認が必要";
    not_counted: "not counted for this ledger", "この台帳では集計しません";
    fallback: "Fallback", "フォールバック";
    fallback_hint: "answers while the ledger is unreachable", "台帳に接続できない間、代わりに応答";
    fallback_active: "active", "動作中";
    fallback_standby: "standby", "待機中";
    fallback_none: "none", "なし";
    suspected_twice: "Possibly run twice", "二重実行の疑い";
    suspected_twice_hint: "effects that a takeover may have repeated", "引き継ぎにより二重に実行された可能性がある処理";
    spool: "Spool", "スプール";
    spool_hint: "batches waiting to be sent", "送信待ちのバッチ";
    failed: "Failed", "送信失敗";
    failed_hint: "batches that need an operator", "運用担当者の対応が必要なバッチ";
    per_second: "Per second", "1 秒あたりの件数";
    waiting: "Waiting", "待機中の件数";
    fifteen_minutes_ago: "15 min ago", "15 分前";
    values_as_table: "Show as table", "表で表示";
    ledger: "Ledger", "台帳";
    health: "Health", "稼働状況";
    health_good: "Everything is working.", "すべて正常に動作しています。";
    health_checking: "Checking…", "確認中…";
    health_bad: "Problems with: {}", "異常が発生しています：{}";
    responses: "Responses", "レスポンス";
    no_recent_errors: "no errors in the last minute", "直近 1 分間にエラーなし";
    recent_errors: "{} errors in the last minute", "直近 1 分間にエラー {} 件";
    component_ok: "OK", "正常";
    component_failing: "failing", "異常";
    component_ledger: "Ledger", "台帳";
    component_delivery: "Delivery", "送信";
    component_journal: "Completion journal", "完了ジャーナル";
    component_upstream: "Upstream", "アップストリーム";
    backend: "Backend", "バックエンド";
    reach: "Shared by", "共有範囲";
    survives: "Survives", "耐障害性";
    expiry: "Expiry", "期限の判定";
    listing: "Listing", "一覧の取得方法";
    lease_clock: "Lease clock", "リースの判定に使う時計";
    largest_outcome: "Largest outcome", "保存できる結果の最大サイズ";
    recent_passes: "Recent passes", "最近の再送処理";
    recent_passes_caption: "Passes over the spool, latest first", "スプールの再送処理（新しい順）";
    no_passes: "No passes yet. RESEND_CRON says when the spool is sent.", "まだ実行されていません。スプールを再送する時刻は RESEND_CRON で設定します。";
    started: "Started", "開始";
    trigger: "Trigger", "起動元";
    by_schedule: "schedule", "スケジュール";
    by_operator: "operator", "運用担当者";
    attempted: "Attempted", "送信試行";
    delivered: "Delivered", "送信成功";
    to_spool: "To spool", "スプールへ";
    to_failed: "To failed", "送信失敗へ";
    duration: "Duration", "所要時間";

    // Claims
    claims_caption: "Claims", "claim の一覧";
    key: "Key", "キー";
    key_prefix: "Key starts with", "キー（前方一致）";
    state: "State", "状態";
    any_state: "any", "すべて";
    state_running: "running", "実行中";
    state_in_doubt: "in doubt", "結果未確定";
    state_done: "done", "完了";
    search: "Search", "検索";
    continue_search: "Continue search", "続きを検索";
    none_found_yet: "Nothing found so far. The search can continue.", "ここまでは見つかっていません。続きを検索できます。";
    no_claims: "No claims yet. A request with a key, or a call to POST /v1/claims, creates the first one.", "claim はまだありません。キー付きのリクエストを受けるか、POST /v1/claims を呼び出すと、ここに表示されます。";
    no_match: "Nothing matches. Change the search.", "該当するものはありません。検索条件を変えてください。";
    not_handed_over: "not in the ledger yet", "台帳に未反映";
    local_only: "The ledger is unavailable. This list shows only claims that this process granted during the outage.",
        "台帳を利用できません。この間にこのプロセスが許可した claim だけを表示しています。";
    keys_in_conflict: "Keys that another instance used as well", "ほかのインスタンスでも使われたキー";
    conflict_count: "Count", "回数";
    number_of_claims: "Count", "件数";
    found_at: "Detected", "検出日時";
    route: "Route", "ルート";
    attempt: "Attempt", "試行回数";
    claimed_at: "Claimed", "取得日時";
    since_or_until: "Since / until", "状態の日時";
    claim: "Claim", "claim の詳細";
    back_to_claims: "Back to claims", "claim の一覧に戻る";
    no_such_claim: "This claim no longer exists.", "この claim はすでに存在しません。";
    state_changed: "The state of the claim has changed, so this action is no longer possible. Check the claim again.",
        "claim の状態が変わったため、この操作は実行できません。最新の状態を確認してください。";
    tenant: "Tenant", "テナント";
    holder: "Renewed by", "リースの更新者";
    holder_process: "this process", "このプロセス";
    holder_remote: "its caller", "呼び出し元";
    renewed_at: "Last renewed", "最終更新";
    times: "{} times", "{} 回";
    lease_until: "Lease ends", "リース期限";
    doubt_since: "In doubt since", "結果未確定になった日時";
    doubt_reason: "Reason", "理由";
    completed_at: "Completed", "完了日時";
    expires_at: "Expires", "有効期限";
    lease: "Lease", "リース";
    retention: "Retention", "保持期間";
    fingerprint: "Fingerprint", "フィンガープリント";
    index: "Index", "インデックス";
    metadata: "Metadata", "メタデータ";
    no_metadata: "No metadata.", "メタデータはありません。";
    seconds: "{} s", "{} 秒";
    outcome: "Outcome", "結果";
    response_not_kept: "The response was not kept", "レスポンスは保存されていません";
    body_masked: "Hidden. To show stored responses, set console.bodies = \"shown\".",
        "非表示です。保存済みのレスポンスを表示するには console.bodies = \"shown\" を設定してください。";
    resolve_heading: "Resolve this claim", "この claim を解決する";
    check_first: "Nobody knows whether the effect happened. Check the system where it runs, then choose the result here.",
        "処理が実行されたかどうか確定していません。実行先のシステムを確認してから、結果を選択してください。";
    action_done: "It happened", "実行された";
    action_done_means: "The claim becomes done. Duplicates get the stored response, and the effect does not run again.",
        "claim は完了になります。重複したリクエストには保存済みのレスポンスを返し、処理は再実行されません。";
    action_absent: "It did not happen", "実行されていない";
    action_absent_means: "The key is released. The next request with this key runs the effect.",
        "キーは解放されます。このキーの次のリクエストで処理が実行されます。";
    action_release: "Release the key", "キーを解放する";
    action_release_means: "The lease is still valid. Do this only if its holder is gone and the effect did not happen. The next request with this key runs it.",
        "リースはまだ有効です。保持者が停止していて、処理が実行されていないことを確認した場合にのみ解放してください。このキーの次のリクエストで処理が実行されます。";
    run_again_heading: "If it must run again", "もう一度実行する場合";
    action_forget: "Forget this claim", "この claim を取り消す";
    action_forget_means: "Do this only if the effect did not happen although the claim is done. The stored response is removed, and the next request with this key runs the effect.",
        "claim は完了しているのに処理が実際には実行されていない場合にのみ、取り消してください。保存済みのレスポンスは削除され、このキーの次のリクエストで処理が実行されます。";
    forget_reason: "Reason (for the audit log)", "理由（監査ログに記録）";
    result_forgotten: "The claim was forgotten.", "claim を取り消しました。";
    result_done: "The claim is done.", "claim を完了にしました。";
    result_released: "The key was released.", "キーを解放しました。";
    ask_service: "Ask the service", "サービスに問い合わせる";
    ask_service_hint: "ichido asks the service with a read-only request whether the effect happened. Nothing changes until you confirm.",
        "処理が実行されたかどうかを、読み取り専用のリクエストでサービスに問い合わせます。確認するまで何も変更されません。";
    service_answer: "The service says", "サービスの回答";
    service_status: "Status of its response", "レスポンスのステータス";
    service_says_done: "It happened.", "実行されました。";
    service_says_absent: "It did not happen.", "実行されていません。";
    service_says_nothing: "This answer decides nothing.", "この回答からは判断できません。";
    ask_too_early: "Too early: the effect may still happen. Ask again in {} s.", "まだ判断できません。処理がこれから実行される可能性があります。{} 秒後にもう一度問い合わせてください。";
    control_not_found: "Careful: the service does not find a completed request of this route either, so its answer may mean nothing.",
        "注意：このルートの完了済みリクエストについて問い合わせても見つからないため、この回答は信頼できない可能性があります。";
    control_nothing: "Careful: no completed request of this route shows that the question works.",
        "注意：このルートには、問い合わせが正しく機能することを確かめるための完了済みリクエストがありません。";
    nothing_follows: "Nothing follows from this.", "この回答だけでは claim を変更できません。";
    back_to_claim: "Back to the claim", "claim に戻る";
    triage: "Claims in doubt", "結果未確定の claim";
    triage_link: "Claims in doubt, oldest first, with counts", "結果未確定の claim を古い順に件数付きで表示";
    triage_intro: "Nobody knows whether these effects happened. The oldest come first.",
        "処理が実行されたかどうか確定していない claim を、古いものから表示します。";
    no_doubts: "No claims in doubt. There is nothing to do.", "結果未確定の claim はありません。対応は不要です。";
    doubt_groups: "By route and reason", "ルートと理由ごとの件数";
    doubts_caption: "Oldest first", "古い順";
    oldest: "Oldest", "最も古いもの";
    older_than_minutes: "In doubt for at least (minutes)", "経過時間（分以上）";
    not_all_read: "Not all claims in doubt were read. Limit: {}", "件数が多いため、{} 件までを調べました。";
    resolve_all_heading: "Resolve all claims on this page", "このページの claim をまとめて解決する";
    resolve_all_hint: "Check the system where they run first. Each claim gets its own entry in the audit log.",
        "先に実行先のシステムを確認してください。監査ログには claim ごとに記録されます。";
    claims_will_be_resolved: "{} claims will be resolved:", "次の {} 件の claim を解決します。";
    claims_resolved: "{} claims were resolved.", "{} 件の claim を解決しました。";
    claims_not_resolved: "These were not resolved, because they have changed since.", "次の claim は、表示後に状態が変わったため、解決していません。";
    duplicate_response: "Response for duplicates (optional)", "重複したリクエストへのレスポンス（任意）";
    duplicate_response_hint: "JSON or text, stored as it is. If it is empty, duplicates learn that the response was not kept.",
        "JSON またはテキストを入力してください。入力したとおりに保存されます。空欄の場合、重複したリクエストには、レスポンスが保存されていないことを返します。";

    // Events
    events_caption: "Events", "イベントの一覧";
    no_events: "No events yet. A webhook on a route for events, or a call to POST /v1/events/check, marks the first one.", "イベントはまだありません。イベント用のルートで Webhook を受信するか、POST /v1/events/check を呼び出すと、ここに表示されます。";
    events_local_only: "The ledger is unavailable. This list shows only events that this process marked during the outage.",
        "台帳を利用できません。この間にこのプロセスが記録したイベントだけを表示しています。";
    first_seen: "First seen", "初回受信日時";
    instance: "Instance", "インスタンス";
    event_details: "Event", "イベントの詳細";
    back_to_events: "Back to events", "イベントの一覧に戻る";
    no_such_event: "This event is not marked: it expired, or was forgotten.",
        "このイベントの記録はありません。期限が切れたか、取り消されました。";
    event_changed: "The event was marked again in the meantime. Check it again.",
        "このイベントは表示後に再び記録されました。最新の状態を確認してください。";
    forget_event: "Forget this event", "このイベントの記録を取り消す";
    forget_event_means: "If this event is delivered again, it is processed again. If several instances share the ledger, this holds for all of them.",
        "このイベントが再び配信されると、もう一度処理されます。台帳を共有しているすべてのインスタンスに影響します。";
    forget_event_reason: "Reason (optional, for the audit log)", "理由（任意、監査ログに記録）";
    result_event_forgotten: "The event was forgotten. If it is delivered again, it is processed again.",
        "イベントの記録を取り消しました。再び配信されると、もう一度処理されます。";

    // History
    period: "Period", "期間";
    last_7_days: "7 days", "7 日間";
    last_30_days: "30 days", "30 日間";
    history_off: "Nothing is recorded, because history.dir is \"off\". To record decisions, set it to a directory.", "history.dir が \"off\" のため、履歴は記録されていません。記録するには、ディレクトリを設定してください。";
    nothing_recorded: "Nothing was recorded in this period. Requests with a key and events appear here.", "この期間の記録はありません。キー付きのリクエストやイベントを受けると、ここに表示されます。";
    find_in_history: "Key, hash or request ID", "キー・ハッシュ・リクエスト ID";
    show_timeline: "Show timeline", "経過を表示";
    received: "Received", "受信";
    received_hint: "requests with a key, and events", "キー付きのリクエストとイベント";
    repeats: "Repeats", "重複";
    repeats_hint: "with a key that was known", "既知のキーを持つもの";
    repeat_rate_hint: "repeats among everything received", "受信全体に占める重複の割合";
    doubts_hint: "claims, and requests that met one", "結果未確定になった claim と、それに該当したリクエスト";
    without_ledger: "Degraded", "縮退";
    without_ledger_hint: "decided by the fallback, or failed", "フォールバックによる判定、または失敗";
    received_by_hour: "Received by hour and day (UTC)", "日別・時間帯別の受信件数（UTC）";
    repeats_by_source: "Repeats by source", "発生元別の重複";
    no_repeats: "No repeats in this period.", "この期間に重複はありません。";
    source: "Source", "発生元";
    latency_mean: "Mean latency of the ledger", "台帳の平均応答時間";
    latency_slowest: "Slowest answer of the ledger", "台帳の最大応答時間";
    degraded_periods: "Degraded periods", "縮退期間";
    never_degraded: "The ledger was always available.", "台帳は常に利用できました。";
    from_time: "From", "開始";
    to_time: "Until", "終了";
    by_fallback: "By the fallback", "フォールバックによる判定";
    ledger_unavailable: "Ledger unavailable", "台帳の利用不可";
    timeline: "Timeline", "キーの経過";
    decisions: "Decisions, oldest first", "判定（古い順）";
    decision_head: "Decision", "判定";
    newest_only: "Only the latest 500 are listed. Recorded in all: {}", "新しいものから 500 件を表示しています（全 {} 件）。";
    nothing_found: "Nothing was recorded about this. The history keeps recent decisions only. The search box at the top looks into everything else.",
        "該当する記録はありません。履歴に残るのは最近の判定だけです。ほかの記録は、ページ上部の検索欄から追跡できます。";
    first_not_recorded: "before the recorded decisions, or on another instance", "記録の範囲より前、または別のインスタンス";
    resolved: "Operator", "運用担当者の操作";
    request_id: "Request ID", "リクエスト ID";
    latency: "Latency", "応答時間";
    back_to_history: "Back to history", "履歴に戻る";
    at_least: "at least", "少なくとも";
    unknown: "unknown", "不明";
    decided_new: "new", "新規";
    decided_duplicate: "duplicate", "重複";
    decided_granted: "allowed to run", "実行を許可";
    decided_replayed: "stored response returned", "保存済みのレスポンスを返却";
    decided_in_flight: "still running", "処理中";
    decided_in_doubt: "refused: in doubt", "拒否（結果未確定）";
    decided_key_reused: "refused: key used for another request", "拒否（別のリクエストで使用済みのキー）";
    decided_caller_changed: "refused: key of another caller", "拒否（別の呼び出し元のキー）";
    decided_unavailable: "ledger unavailable", "台帳を利用できず失敗";
    decided_stale: "too late: settled already", "拒否（すでに確定済み）";
    decided_renewed: "lease renewed", "リースを更新";
    decided_completed: "completed", "完了";
    decided_released: "released: nothing happened", "解放（未実行）";
    decided_declared: "in doubt", "結果未確定";
    decided_done: "resolved: it happened", "解決（実行された）";
    decided_absent: "resolved: it did not happen", "解決（実行されていない）";
    decided_freed: "released by an operator", "運用担当者が解放";
    decided_forgotten: "forgotten by an operator", "運用担当者が取り消し";
    decided_erased: "erased by an operator", "運用担当者が消去";

    // What needs attention
    attention: "Needs attention", "対応が必要な項目";
    attention_none: "Nothing needs attention.", "対応が必要な項目はありません。";
    attention_in_doubt: "Claims in doubt: {}. Find out whether each effect happened, and resolve it.", "結果未確定の claim が {} 件あります。処理が実行されたかどうかを確認し、解決してください。";
    attention_failed: "Batches in failed: {}. Read the last error, then resend or accept them.", "送信に失敗したバッチが {} 件あります。最後のエラーを確認し、再送するか、送信済みとして扱ってください。";
    attention_twice: "Effects that may have happened twice: {}. Find them in the log, and check the system where they run.", "二重に実行された可能性のある処理が {} 件あります。ログで該当する処理を特定し、実行先のシステムを確認してください。";
    attention_anomalies: "Anomalies in the last 7 days: {}.", "直近 7 日間に {} 件の異常を検知しました。";

    // System
    system: "System", "システム";
    version: "Version", "バージョン";
    process: "Process", "プロセス";
    problem_type: "Problem type", "エラーの種類";
    page_not_found: "There is no such page", "ページが見つかりません";
    page_not_found_hint: "The address may be misspelled, or this process does not have that component.", "URL が間違っているか、このプロセスでは該当する機能が動作していません。";

    // Anomalies
    anomalies: "Anomalies of the last 7 days", "直近 7 日間の異常検知";
    looking_for_anomalies: "ichido is still reading the history. Reload the page in a moment.", "履歴を読み込んでいます。しばらくしてからページを再読み込みしてください。";
    no_anomalies: "Nothing unusual was found. There is nothing to do.", "通常と異なる動きは見つかっていません。対応は不要です。";
    all_anomalies: "All anomalies", "すべての異常検知";
    show_hours: "Show in the history", "履歴で確認";
    hours_to_judge: "A source is judged after a week. Hours recorded so far: {}", "判定には 1 週間分の記録が必要です（記録済み：{} 時間）。";
    anomaly_volume: "volume", "件数";
    anomaly_duplicates: "duplicates", "重複";
    anomaly_silence: "silence", "途絶";
    anomaly_in_doubt: "in doubt", "結果未確定";
    anomaly_instance: "instance", "インスタンス";
    hour_from: "The hour from {}", "{} からの 1 時間";
    only: "Only:", "表示対象：";
    show_everything: "Show everything", "すべて表示";

    // Delivery
    no_delivery: "This process does not deliver. Start ichido run with a [delivery] section.", "このプロセスは送信を行いません。[delivery] を設定して ichido run を起動してください。";
    lane_is_held: "Sending is on hold until an operator acts: {}", "送信を停止しています。運用担当者の対応が必要です：{}";
    directories: "Directories", "保存場所";
    spool_empty: "The spool is empty. There is nothing to do.", "送信待ちのバッチはありません。対応は不要です。";
    failed_empty: "There are no failed batches. There is nothing to do.", "送信に失敗したバッチはありません。対応は不要です。";
    spool_caption: "Waiting batches, oldest first", "送信待ちのバッチ（古い順）";
    failed_caption: "Failed batches, oldest first", "送信に失敗したバッチ（古い順）";
    list_truncated: "Only the oldest 10,000 are listed.", "古い順に 10,000 件まで表示しています。";
    batch: "Batch", "バッチ";
    batches: "Batches", "バッチ数";
    batch_key: "Batch key", "バッチの冪等キー";
    trace_batch: "Trace this batch", "このバッチを追跡";
    file: "File", "ファイル";
    first_attempt: "First attempt", "初回試行";
    passes: "Passes", "再送回数";
    not_before: "Next attempt", "次回の送信予定";
    last_error: "Last error", "最後のエラー";
    action: "Action", "操作";
    resend: "Resend", "再送";
    resend_all: "Resend all", "すべて再送";
    resend_spool_means: "All of them are sent now, even if they are not due yet. Batches that cannot be delivered stay in the spool.",
        "送信予定日時より前のものも含めて、今すぐ送信します。送信できなかったものはスプールに残ります。";
    resend_failed_means: "All of them are sent again, with a new set of retries. Batches that cannot be delivered go back to the spool or to failed.",
        "再送回数をリセットして再送します。送信できなかったものは、スプールまたは送信失敗に戻ります。";
    back_to_delivery: "Back to delivery", "送信に戻る";
    no_such_batch: "This batch is no longer here: it was sent or moved.", "このバッチはすでに送信されたか、移動されたため、ここにはありません。";
    records: "Records", "レコード";
    records_masked: "Hidden. To show records, set console.bodies = \"shown\".",
        "非表示です。レコードを表示するには console.bodies = \"shown\" を設定してください。";
    history: "History", "履歴";
    history_caption: "Events, latest first", "履歴（新しい順）";
    no_history: "No attempts are recorded in this file. The trace looks into the other records.", "このファイルに試行の記録はありません。ほかの記録は追跡で確認できます。";
    event: "Event", "内容";
    details: "Details", "詳細";
    notices: "Notices", "通知";
    notices_caption: "Waiting notices, oldest first", "送信待ちの通知（古い順）";
    notices_waiting: "waiting", "送信待ち";
    notices_sent: "sent since this process started", "起動以降に送信済み";
    notice_failed: "moved to failed", "送信失敗へ移動";
    notice_expired: "retention exceeded", "保持期間を超過";
    notice_held: "sending on hold", "送信停止";
    notice_full: "spool full", "スプールの容量超過";
    notice_invalid_input: "invalid input", "不正な入力";
    notice_anomaly: "anomaly", "異常検知";
    notice_budget: "budget", "予算";
    notice_recovered: "recovered", "復旧";
    channel_log: "log", "ログ";
    channel_email: "email", "メール";
    channel_webhook: "webhook", "Webhook";
    channel_command: "command", "コマンド";
    result_delivered: "Everything was delivered.", "すべて送信しました。";
    result_not_delivered: "Not everything was delivered. See the recent passes.", "送信できなかったものがあります。「最近の再送処理」を確認してください。";
    result_nothing_sent: "There was nothing to send.", "再送するバッチはありませんでした。";
    result_running: "Sending continues. The result will appear under recent passes.",
        "再送を続けています。結果は「最近の再送処理」に表示されます。";
    result_busy: "Too many requests are waiting. Try again later.", "再送の要求が混み合っています。しばらくしてから、もう一度実行してください。";

    // Usage
    usage: "Usage", "使用量";
    no_usage: "No usage in this period. Choose other days, or send records to the meter.", "この期間の使用量はありません。期間を変えるか、メーターにレコードを送信してから確認してください。";
    from_day: "From", "開始日";
    to_day: "To", "終了日";
    aggregation: "Aggregation", "集計方法";
    show: "Show", "表示";
    cost: "Cost", "コスト";
    cost_hint: "as reported by the senders", "送信元が報告した金額";
    tokens: "Tokens", "トークン数";
    tokens_hint: "input and output", "入力と出力の合計";
    tokens_in: "Input tokens", "入力トークン数";
    tokens_out: "Output tokens", "出力トークン数";
    tokens_by_day: "Tokens by day and model", "日別・モデル別のトークン数";
    calls: "Calls", "呼び出し回数";
    calls_hint: "to models", "モデルの呼び出し";
    records_hint: "each counted once", "1 件につき 1 回だけ計上";
    duplicates_ignored: "Duplicates ignored", "重複（計上対象外）";
    duplicates_ignored_hint: "since this process started", "プロセス起動以降";
    day: "Day", "日付";
    model: "Model", "モデル";
    other: "other", "その他";
    by_day_caption: "By day and model, latest first", "日別・モデル別（新しい順）";
    top_apps: "Top apps", "上位のアプリ";
    top_users: "Top users", "上位のユーザー";
    app: "App", "アプリ";
    user: "User", "ユーザー";
    not_specified: "(not specified)", "（指定なし）";
    budgets: "Budgets", "予算";
    budget_used: "Used", "実績";
    budget_limit: "Budget", "予算";
    budget_part: "Share used", "消化率";
    budget_tokens: "tokens", "トークン";
    all_apps: "(all apps)", "（すべてのアプリ）";
    csv: "Download CSV", "CSV をダウンロード";
    component_meter: "Meter", "メーター";

    // Guarantees of a ledger
    reach_process: "this process", "このプロセス";
    reach_host: "this host", "このホスト";
    reach_primary: "everyone who can reach the primary server", "プライマリサーバーに接続できるすべてのプロセス";
    reach_region: "everyone in the region", "リージョン内のすべてのプロセス";
    survives_kill: "a process crash", "プロセスの異常終了";
    survives_power: "power loss", "電源断";
    survives_host: "the loss of a host", "ホストの喪失";
    survives_failover: "a failover", "フェイルオーバー";
    expiry_exact: "exact", "正確";
    expiry_lazy: "by the reader's clock; removed later", "問い合わせ側の時計で判定（削除は後から）";
    listing_indexed: "with an index", "インデックスを使用";
    listing_scan: "with a full scan", "全件スキャン";
    clock_own: "of the process", "プロセスの時計";
    clock_server: "of the server", "サーバーの時計";
    clock_watched: "observed for a full lease", "リース 1 回分の間、変化がないことを確認";
}

/// A text with its placeholder filled.
pub(super) fn fill(text: &str, value: impl Display) -> String {
    text.replacen("{}", &value.to_string(), 1)
}

impl Translations {
    /// A remark in the parentheses of the language.
    pub(super) fn in_parentheses(&self, text: impl Display) -> String {
        fill(self.parentheses, text)
    }

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

    /// A decision of the ledger. One that a newer version recorded is shown as it is.
    pub(super) fn decision<'a>(&self, result: &'a str) -> &'a str {
        match result {
            "new" => self.decided_new,
            "duplicate" => self.decided_duplicate,
            "granted" => self.decided_granted,
            "replayed" => self.decided_replayed,
            "in-flight" => self.decided_in_flight,
            "in-doubt" => self.decided_in_doubt,
            "key-reused" => self.decided_key_reused,
            "caller-changed" => self.decided_caller_changed,
            "unavailable" => self.decided_unavailable,
            "stale" => self.decided_stale,
            "renewed" => self.decided_renewed,
            "completed" => self.decided_completed,
            "released" => self.decided_released,
            "declared-in-doubt" => self.decided_declared,
            "resolved-as-done" => self.decided_done,
            "resolved-as-absent" => self.decided_absent,
            "released-by-operator" => self.decided_freed,
            "forgotten" => self.decided_forgotten,
            "erased" => self.decided_erased,
            other => other,
        }
    }

    /// The name of a kind of anomaly.
    pub(super) fn anomaly(&self, kind: Kind) -> &'static str {
        match kind {
            Kind::Volume => self.anomaly_volume,
            Kind::Duplicates => self.anomaly_duplicates,
            Kind::Silence => self.anomaly_silence,
            Kind::InDoubt => self.anomaly_in_doubt,
            Kind::Instance => self.anomaly_instance,
        }
    }

    /// The name of a period of the history.
    pub(super) fn days(&self, days: usize) -> &'static str {
        if days == 7 { self.last_7_days } else { self.last_30_days }
    }

    /// The name of a component whose health is checked.
    pub(super) fn component(&self, name: &'static str) -> &'static str {
        match name {
            "ledger" => self.component_ledger,
            "delivery" => self.component_delivery,
            "completion journal" => self.component_journal,
            "upstream" => self.component_upstream,
            "meter" => self.component_meter,
            other => other,
        }
    }

    /// The name of a notice channel.
    pub(super) fn channel<'a>(&self, name: &'a str) -> &'a str {
        match name {
            "slack" => "Slack",
            "email" => self.channel_email,
            "webhook" => self.channel_webhook,
            "command" => self.channel_command,
            "log" => self.channel_log,
            other => other,
        }
    }

    /// The message about an action, shown once.
    pub(super) fn action_result(&self, code: &str) -> Option<&'static str> {
        match code {
            "done" => Some(self.result_done),
            "absent" | "release" => Some(self.result_released),
            "forget" => Some(self.result_forgotten),
            "forget-event" => Some(self.result_event_forgotten),
            "arrived" => Some(self.result_delivered),
            "not-arrived" => Some(self.result_not_delivered),
            "nothing-sent" => Some(self.result_nothing_sent),
            "under-way" => Some(self.result_running),
            "busy" => Some(self.result_busy),
            _ => None,
        }
    }

    /// The text for a capability of a ledger.
    pub(super) fn capability(&self, label: &str) -> String {
        let known = match label {
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
