//! What each metric means: the `# HELP` lines.

use metrics::{describe_counter, describe_gauge, describe_histogram};

const COUNTERS: &[(&str, &str)] = &[
    ("ichido_anomalies_total", "Unusual hours found in the history, by kind."),
    ("ichido_delivery_batches_total", "Batches whose delivery ended, by outcome."),
    ("ichido_delivery_failed_total", "Batches moved to the failed directory, by reason."),
    ("ichido_delivery_passes_total", "Passes over batches that ended, by origin and outcome."),
    ("ichido_delivery_rate_limited_total", "Responses with status 429 from the receiver."),
    ("ichido_delivery_retries_total", "Delivery attempts after the first one."),
    ("ichido_delivery_retry_success_total", "Batches that were delivered by a retry."),
    ("ichido_delivery_spool_saved_total", "Batches written to the spool after a failed attempt."),
    ("ichido_doubt_questions_total", "Questions to services about effects in doubt, by answer."),
    ("ichido_doubts_left_total", "Claims in doubt that their service did not settle, left to a person."),
    ("ichido_doubts_settled_total", "Claims in doubt that were settled by asking their service, by result."),
    ("ichido_errors_total", "Responses with a 5xx status, by port and status."),
    (
        "ichido_event_retries_total",
        "Events that their sender marked as retries, by route, reason and outcome.",
    ),
    ("ichido_events_checked_total", "Events checked through the claim API, by result."),
    ("ichido_events_degraded_total", "Events checked in the fallback ledger."),
    (
        "ichido_events_same_content_total",
        "Parts of the content of events that were seen in another event, by mode.",
    ),
    ("ichido_events_similar_total", "Events with a text that is similar to that of another event, by mode."),
    ("ichido_history_lost_total", "Decisions that are missing from the history."),
    ("ichido_history_skipped_total", "Decisions that were counted, but not kept one by one."),
    ("ichido_ledger_claims_total", "Claims, by result."),
    ("ichido_ledger_conflicts_total", "Keys that another instance used as well during an outage."),
    ("ichido_ledger_doubts_handed_over_total", "Claims in doubt that the fallback handed over."),
    ("ichido_ledger_errors_total", "Ledger calls that failed, by verb."),
    ("ichido_ledger_handovers_refused_total", "Keys that the ledger could not take over from the fallback."),
    ("ichido_ledger_lost_total", "Times that the ledger was found to have lost data."),
    ("ichido_ledger_marks_total", "Marks, by result."),
    ("ichido_ledger_outages_total", "Times that the fallback took over."),
    ("ichido_ledger_renewals_failed_total", "Lease renewals that failed."),
    ("ichido_ledger_retries_total", "Ledger calls that were retried."),
    ("ichido_ledger_stale_total", "Settlements with a token that was no longer current."),
    ("ichido_ledger_written_back_total", "Claims and marks that the fallback handed over."),
    ("ichido_log_lines_dropped_total", "Log lines dropped because standard error was not read, by kind."),
    ("ichido_meter_batches_total", "Batches that the meter received, by result."),
    ("ichido_meter_records_total", "Records that the meter received, by result."),
    ("ichido_notices_failures_total", "Messages with notices that a channel did not accept, by channel."),
    ("ichido_notices_sent_total", "Notices sent, by channel."),
    ("ichido_observed_requests_total", "Requests on routes in observe mode, by route and outcome."),
    ("ichido_reloads_total", "Reloads of the settings, by result."),
    ("ichido_requests_total", "Requests to the gateway, by route and outcome."),
    (
        "ichido_suspected_twice_total",
        "Effects that may have happened twice: a holder completed after a takeover.",
    ),
    ("ichido_telemetry_lost_total", "Spans and metric exports that did not reach the collector, by signal."),
    ("ichido_unrecorded_total", "Effects whose outcome could not be recorded."),
    ("process_cpu_seconds_total", "Processor time of the process, user and system."),
];

const GAUGES: &[(&str, &str)] = &[
    ("ichido_build_info", "1, with the version of this build."),
    ("ichido_delivery_failed_files", "Batches in the failed directory."),
    ("ichido_delivery_spool_files", "Batches in the spool."),
    ("ichido_inflight", "Keyed requests in progress."),
    ("ichido_journal_waiting", "Completions that wait for the ledger."),
    ("ichido_ledger_degraded", "1 while the fallback ledger answers."),
    ("ichido_ledger_lost", "1 since the ledger was found to have lost data."),
    ("ichido_ledger_owed", "Claims and marks in the fallback that wait for the ledger."),
    (
        "ichido_meter_budget_used_ratio",
        "Part of a monthly budget that is used, by tenant, app, unit and limit; 1 is all of it.",
    ),
    ("ichido_notices_waiting", "Notices that wait to be sent."),
    ("process_max_fds", "Limit on open file descriptors."),
    ("process_open_fds", "Open file descriptors."),
    ("process_resident_memory_bytes", "Resident memory."),
    ("process_start_time_seconds", "When the process started, in seconds since 1970."),
];

const HISTOGRAMS: &[(&str, &str)] = &[
    ("ichido_delivery_age_seconds", "Age of batches when they were delivered."),
    ("ichido_delivery_request_seconds", "Time of one delivery attempt."),
    ("ichido_events_check_seconds", "Time of one call of the event check."),
    ("ichido_ledger_seconds", "Time of one ledger call, by verb."),
    ("ichido_meter_group_batches", "Batches that the meter commits together."),
    ("ichido_meter_request_seconds", "Time of one request to the meter."),
    ("ichido_request_seconds", "Time of one keyed request, upstream included, by route."),
    ("ichido_upstream_seconds", "Time until the upstream's response headers."),
];

/// Describes all metrics to the recorder of the process.
pub(super) fn describe() {
    for (name, help) in COUNTERS {
        describe_counter!(*name, *help);
    }
    for (name, help) in GAUGES {
        describe_gauge!(*name, *help);
    }
    for (name, help) in HISTOGRAMS {
        describe_histogram!(*name, *help);
    }
}
