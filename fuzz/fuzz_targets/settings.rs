//! Fuzzes the settings of the sender: no values may panic, and no error message may contain a value.
#![no_main]

use std::collections::HashMap;

use ichido_delivery::notice;
use ichido_delivery::settings::{Identity, Settings};
use libfuzzer_sys::fuzz_target;

/// Every variable that is read. A byte selects one by its position.
const NAMES: [&str; 27] = [
    "EXTERNAL_API_ENDPOINT",
    "EXTERNAL_API_TOKEN",
    "EXTERNAL_API_TOKEN_FILE",
    "EXTERNAL_API_TIMEOUT_MS",
    "EXTERNAL_API_USER_AGENT",
    "EXTERNAL_API_CA_FILE",
    "EXTERNAL_API_CONFLICT",
    "EXTERNAL_API_ENVELOPE",
    "EXTERNAL_API_TENANT_ID",
    "EXTERNAL_API_GZIP",
    "EXTERNAL_API_ALLOW_HTTP_LOOPBACK",
    "MAX_RETRIES",
    "MAX_SPOOL_RETRIES",
    "RETRY_BACKOFF_MS",
    "RETRY_JITTER",
    "BATCH_SIZE",
    "DATA_DIR",
    "SEND_RATE_PER_SECOND",
    "RESEND_CRON",
    "RESEND_WINDOW",
    "SPOOL_GZIP",
    "SPOOL_MAX_BYTES",
    "SPOOL_RETENTION_DAYS",
    "SLACK_WEBHOOK_URL",
    "SMTP_URL",
    "NOTIFY_EMAIL_TO",
    "NOTIFY_EMAIL_FROM",
];

fuzz_target!(|text: &str| {
    // Each line is a setting; its first byte selects the variable.
    let values: HashMap<&str, String> = text
        .lines()
        .filter_map(|line| {
            let first = *line.as_bytes().first()?;
            Some((NAMES[usize::from(first) % NAMES.len()], line.get(1..)?.to_owned()))
        })
        .collect();
    let get = |name: &str| Ok(values.get(name).cloned());
    let errors = [
        Settings::read(&get, &Identity::default()).err().map(|error| error.to_string()),
        notice::Settings::read(&get, text.len() % 2 == 0).err().map(|error| error.to_string()),
    ];
    for error in errors.into_iter().flatten() {
        assert!(!error.contains('\n'));
        // Numbers may appear in messages; anything longer may be a secret.
        let is_echoed = |value: &&String| value.len() > 20 && error.contains(value.as_str());
        assert!(!values.values().any(|value| is_echoed(&value)), "{error}");
    }
});
