//! The contract of a store: the same cases on every supported database, each a real server or file.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "what is unexpected fails the test")]

mod cases;
mod concurrency;
mod databases;
mod disconnects;
mod statements;
mod support;

/// Runs every case on every database.
macro_rules! on_every_database {
    ($($case:ident),+ $(,)?) => {
        mod sqlite {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $case() {
                    crate::cases::$case(crate::support::Database::sqlite()).await;
                }
            )+
        }
        mod postgres {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $case() {
                    crate::cases::$case(crate::support::Database::postgres()).await;
                }
            )+
        }
        mod pooled {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $case() {
                    crate::cases::$case(crate::support::Database::pooled()).await;
                }
            )+
        }
    };
}

on_every_database!(
    repeated_batch_is_counted_once,
    repeated_record_within_a_batch_is_counted_once,
    different_content_under_the_same_id_is_a_conflict_and_the_first_stays,
    invalid_record_does_not_affect_the_others,
    tenants_are_isolated,
    sums_are_exact_and_currencies_are_not_mixed,
    usage_is_grouped_as_requested,
    records_are_paged_in_byte_order,
    receipt_has_the_first_and_the_last_response,
    record_is_found_by_its_id,
    later_export_replaces_and_older_one_does_not,
    unchanged_record_moves_its_export_time_forward,
    without_an_export_time_the_larger_count_stays,
    first_wins_even_after_upserts,
    model_and_day_have_one_record,
    counts_survive_reopening,
    database_keeps_its_grain,
    concurrent_batches_are_counted_once,
    concurrent_upserts_converge,
    repeated_records_are_counted_by_month_and_app,
    statement_says_what_was_counted_later_and_what_was_replaced,
    budget_notice_is_remembered_once,
    erased_user_keeps_the_sums_and_is_not_counted_again,
);
