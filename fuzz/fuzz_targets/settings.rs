//! Fuzzes the settings of the sender: no values may panic, and no error message may contain a value.
#![no_main]

use std::collections::HashMap;

use ichido_delivery::notice;
use ichido_delivery::settings::{Identity, Raw};
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
    "SEND_CONCURRENCY",
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
    let complaints = match Raw::from_variables(|name| values.get(name).map(Into::into)) {
        Err(invalid) => [Some(invalid), None],
        Ok(raw) => [raw.check(&Identity::default()).err(), notice::Settings::check(&raw).err()],
    };
    for complaint in complaints.into_iter().flatten().map(|invalid| invalid.to_string()) {
        assert!(!complaint.contains('\n'));
        // Numbers are repeated; whatever is longer may be a secret.
        let is_told = |value: &&String| value.len() > 20 && complaint.contains(value.as_str());
        assert!(!values.values().any(|value| is_told(&value)), "{complaint}");
    }
});
