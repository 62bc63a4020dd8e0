//! The contract of a store: the same cases on every database, real ones.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "what is unexpected fails the test")]

mod cases;
mod concurrency;
mod databases;
mod disconnects;
#[path = "../../../ledger/tests/support/pgbouncer.rs"]
mod pgbouncer;
mod support;

/// Every case on every database.
macro_rules! on_every_database {
    ($($case:ident),+ $(,)?) => {
        mod sqlite {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $case() {
                    crate::cases::$case(crate::support::Place::sqlite()).await;
                }
            )+
        }
        mod postgres {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $case() {
                    crate::cases::$case(crate::support::Place::postgres()).await;
                }
            )+
        }
        mod pooled {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $case() {
                    crate::cases::$case(crate::support::Place::pooled()).await;
                }
            )+
        }
    };
}

on_every_database!(
    the_same_data_twice_is_counted_once,
    a_record_twice_in_one_batch_is_counted_once,
    other_content_under_the_same_id_is_a_conflict_and_the_first_stays,
    an_invalid_record_does_not_hide_the_others,
    tenants_do_not_see_each_other,
    sums_are_exact_and_currencies_are_not_mixed,
    usage_is_grouped_by_what_was_asked,
    records_come_in_pages,
    receipts_tell_the_first_and_the_last_answer,
    a_later_export_replaces_and_an_older_one_does_not,
    an_unchanged_record_moves_its_time_forward,
    without_a_time_the_larger_count_stays,
    the_first_wins_also_after_upserts,
    one_record_for_each_model_and_day,
    what_was_counted_is_there_after_opening_again,
    a_database_keeps_to_its_grain,
    the_same_batches_at_once_are_counted_once,
    upserts_at_once_end_alike,
);
