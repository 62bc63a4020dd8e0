//! The whole sender against a model: random sequences of sends, crashes, errors of the disk, odd answers, jumps of the
//! clock and commands of an operator. Files are real; time, the disk's refusals, the receiver and the process's death
//! are told to happen.
//!
//! What was accepted has been counted by the receiver, once, or lies in the spool or in failed; always. In the end,
//! when everything works again, all of it has arrived but what the receiver refuses and what was damaged on purpose.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::wildcard_enum_match_arm,
    reason = "what is unexpected fails the test"
)]

mod actions;
mod faults;
mod irregular_files;
mod outage;
mod rate_limited;
mod receiver;
mod retry_after;
mod world;

use proptest::prelude::*;

use actions::{Move, Rules, moves};
use receiver::Knows;
use world::World;

/// The six of them are 12,000 cases.
const CASES: u32 = 2_000;

fn play(rules: Rules, script: Vec<Move>) {
    let mut world = World::new(rules);
    for step in script {
        world.play(&step);
        world.check(&step);
    }
    world.heal();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_or_counted_twice(bad in 0u8..64, script in moves()) {
        play(Rules { bad, ..Rules::default() }, script);
    }

    #[test]
    fn nor_where_the_receiver_speaks_of_each_record(bad in 0u8..64, script in moves()) {
        play(Rules { bad, by_record: true, ..Rules::default() }, script);
    }

    #[test]
    fn nor_where_files_are_packed_and_bodies_are_too_large(bad in 0u8..64, script in moves()) {
        play(Rules { bad, gzip: true, most_records: 2, ..Rules::default() }, script);
    }

    #[test]
    fn nor_where_room_is_scarce_and_hours_are_few(bad in 0u8..64, script in moves()) {
        play(Rules { bad, max_bytes: 1_500, window: true, ..Rules::default() }, script);
    }

    #[test]
    fn nor_where_a_409_does_not_say_that_it_means_the_batch(bad in 0u8..64, script in moves()) {
        play(Rules { bad, knows: Knows::BatchesBare, ..Rules::default() }, script);
    }

    #[test]
    fn nor_where_one_known_record_refuses_the_batch(bad in 0u8..64, known in 0u8..64, script in moves()) {
        play(Rules { bad, known, knows: Knows::RecordsBare, ..Rules::default() }, script);
    }
}
