//! DynamoDB specifics, on two real servers: dynoxide and Amazon's DynamoDB Local.

mod claims;
mod faults;
mod marks;
mod schema;
mod support;

/// Runs each test on both servers.
macro_rules! on_both_servers {
    ($($module:ident :: $test:ident,)+) => {
        mod dynoxide {
            $(#[tokio::test]
            async fn $test() {
                super::$module::$test(super::support::Server::of("ICHIDO_TEST_DYNAMODB_URL")).await;
            })+
        }
        mod amazons_local {
            $(#[tokio::test]
            async fn $test() {
                super::$module::$test(super::support::Server::of("ICHIDO_TEST_DYNAMODB_LOCAL_URL")).await;
            })+
        }
    };
}

on_both_servers! {
    marks::marks_are_shared_with_other_consumers,
    marks::foreign_items_of_other_types_are_read,
    marks::expired_mark_is_new_again_before_the_server_removes_it,
    marks::mark_that_looks_like_a_claim_does_not_collide,
    marks::large_batch_is_answered_in_order,
    claims::lapse_is_watched_on_the_claimants_steady_clock,
    claims::renewal_restarts_the_watch,
    claims::takeover_waits_for_the_requested_silence,
    claims::operators_use_the_wall_clock,
    claims::ttl_is_set_on_completed_items_only,
    claims::large_outcome_leaves_a_tombstone,
    claims::item_of_another_format_is_refused,
    claims::one_of_many_claimants_wins,
    claims::sweep_continues_where_it_stopped,
    claims::list_returns_claims_only,
    faults::lost_reply_makes_no_duplicate_of_a_mark,
    faults::lost_reply_makes_no_duplicate_of_a_claim,
    faults::lost_reply_of_a_takeover_and_a_completion,
    faults::throttling_is_distinguished_from_outages,
    faults::refused_connection_has_no_effect,
    faults::item_gone_when_read_back_is_contended,
    faults::failed_read_changed_nothing,
    faults::https_endpoint_uses_tls,
    faults::responses_are_not_echoed,
    schema::init_creates_the_shared_table_and_is_idempotent,
    schema::wrong_key_is_named,
    schema::missing_table_is_an_outage_for_callers,
    schema::replicas_need_confirmation,
    schema::time_to_live_that_is_off_or_hidden_is_a_warning,
}
