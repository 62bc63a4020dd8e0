//! The complete sender against a model: random sequences of sends, crashes, disk errors, unusual responses, clock
//! changes and operator commands. Files are real; time, disk errors, the receiver and crashes are simulated.
//!
//! At any time, every accepted record was counted once by the receiver, or is in the spool or in failed. In the
//! end, when everything works again, all records are delivered, except those that the receiver rejects and those
//! that were damaged.

mod actions;
mod faults;
mod irregular_files;
mod outage;
mod overlapping;
mod rate_limited;
mod receiver;
mod retry_after;
mod world;

use proptest::prelude::*;

use actions::{Action, Scenario, actions, overlap};
use receiver::Dedup;
use world::World;

/// Per property; the six of them make 12,000 cases.
const CASES: u32 = 2_000;

fn play(scenario: Scenario, script: Vec<Action>) {
    let mut world = World::new(scenario);
    for action in script {
        world.play(&action);
        world.check(&action);
    }
    world.recover();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_or_counted_twice(bad in 0u8..64, overlap in overlap(), script in actions()) {
        play(Scenario { bad, overlap, ..Scenario::default() }, script);
    }

    #[test]
    fn nor_if_the_receiver_returns_a_result_for_each_record(bad in 0u8..64, overlap in overlap(), script in actions()) {
        play(Scenario { bad, by_record: true, overlap, ..Scenario::default() }, script);
    }

    #[test]
    fn nor_if_files_are_compressed_and_bodies_too_large(bad in 0u8..64, overlap in overlap(), script in actions()) {
        play(Scenario { bad, gzip: true, records_max: 2, overlap, ..Scenario::default() }, script);
    }

    #[test]
    fn nor_if_the_spool_is_small_and_the_resend_window_short(bad in 0u8..64, overlap in overlap(), script in actions()) {
        play(Scenario { bad, max_bytes: 1_500, window: true, overlap, ..Scenario::default() }, script);
    }

    #[test]
    fn nor_if_a_409_does_not_mention_the_batch(bad in 0u8..64, overlap in overlap(), script in actions()) {
        play(Scenario { bad, dedup: Dedup::BatchesBare, overlap, ..Scenario::default() }, script);
    }

    #[test]
    fn nor_if_a_duplicate_record_rejects_the_batch(bad in 0u8..64, known in 0u8..64, overlap in overlap(), script in actions()) {
        play(Scenario { bad, known, dedup: Dedup::RecordsBare, overlap, ..Scenario::default() }, script);
    }
}
