//! What happens when a record meets one that is counted already.
//!
//! Pure: what is kept and what comes go in, the meeting's end comes out. Stores make reading, deciding and writing one step.
//!
//! Under a profile that upserts, records have an order that does not depend on when they arrive: the later export is the newer one;
//! of two exports that tell the same time, or none, the one that counted more. So a batch that lay in a spool for a week cannot
//! overwrite newer totals, and whatever order batches arrive in, the same one stays.

use ichido_usage::Profile;
use rust_decimal::Decimal;

/// What is known of a record when it meets another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its id.
    pub event_id: String,
    /// A hash of what it says.
    pub digest: [u8; 32],
    /// When it was exported, in milliseconds since the epoch, if its batch says so.
    pub exported_at: Option<i64>,
    /// How many calls.
    pub request_count: i64,
    /// How many tokens.
    pub total_tokens: i64,
    /// What it cost.
    pub cost: Decimal,
}

/// How a meeting ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meeting {
    /// The same again.
    Same,
    /// The same again, from a later export: what lies between the two is older than what is kept.
    SameLater,
    /// Other content, and the first stays.
    Conflict,
    /// Other content, and what is kept is newer.
    Stale,
    /// Other content, and newer than what is kept.
    Newer,
    /// Another record of the same model and day, which would be overwritten.
    Foreign,
}

/// What happens when `comes` meets `kept`, which has its place.
pub fn meet(profile: Profile, kept: &Kept, comes: &Kept) -> Meeting {
    if kept.event_id != comes.event_id {
        return Meeting::Foreign;
    }
    match (kept.digest == comes.digest, profile.upserts()) {
        (true, true) if comes.exported_at > kept.exported_at => Meeting::SameLater,
        (true, _) => Meeting::Same,
        (false, false) => Meeting::Conflict,
        (false, true) if rank(comes) > rank(kept) => Meeting::Newer,
        (false, true) => Meeting::Stale,
    }
}

/// What is greater is newer. No time at all is before every time.
fn rank(record: &Kept) -> (Option<i64>, i64, i64, Decimal, [u8; 32]) {
    (record.exported_at, record.request_count, record.total_tokens, record.cost, record.digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(exported_at: Option<i64>, requests: i64) -> Kept {
        let digest = [u8::try_from(requests).unwrap(); 32];
        let cost = Decimal::from(requests);
        Kept {
            event_id: "e".to_owned(),
            digest,
            exported_at,
            request_count: requests,
            total_tokens: 10,
            cost,
        }
    }

    #[test]
    fn the_first_wins_whatever_comes() {
        let meets = |kept, comes| meet(Profile::FirstWins, &kept, &comes);
        assert_eq!(meets(record(Some(1), 1), record(Some(2), 1)), Meeting::Same);
        assert_eq!(meets(record(Some(1), 1), record(Some(2), 2)), Meeting::Conflict);
    }

    #[test]
    fn the_later_export_is_newer_and_without_a_time_the_larger_count() {
        let meets = |kept, comes| meet(Profile::UpsertByEventId, &kept, &comes);
        assert_eq!(meets(record(Some(1), 9), record(Some(2), 1)), Meeting::Newer);
        assert_eq!(meets(record(Some(2), 1), record(Some(1), 9)), Meeting::Stale);
        assert_eq!(meets(record(Some(1), 1), record(Some(1), 2)), Meeting::Newer);
        assert_eq!(meets(record(None, 1), record(None, 2)), Meeting::Newer);
        assert_eq!(meets(record(None, 2), record(None, 1)), Meeting::Stale);
        assert_eq!(meets(record(Some(1), 1), record(None, 9)), Meeting::Stale);
        assert_eq!(meets(record(None, 9), record(Some(1), 1)), Meeting::Newer);
        assert_eq!(meets(record(Some(1), 1), record(Some(2), 1)), Meeting::SameLater);
        assert_eq!(meets(record(Some(2), 1), record(Some(1), 1)), Meeting::Same);
    }

    #[test]
    fn whatever_order_exports_arrive_in_the_same_one_stays() {
        let exports =
            [record(None, 3), record(Some(5), 1), record(Some(5), 2), record(Some(7), 1), record(Some(6), 9)];
        let stays = |order: &[usize]| {
            let mut kept = exports[order[0]].clone();
            for place in &order[1..] {
                match meet(Profile::UpsertByEventId, &kept, &exports[*place]) {
                    Meeting::Newer => kept = exports[*place].clone(),
                    Meeting::SameLater => kept.exported_at = exports[*place].exported_at,
                    Meeting::Same | Meeting::Stale => {}
                    other @ (Meeting::Conflict | Meeting::Foreign) => panic!("{other:?}"),
                }
            }
            kept
        };
        let mut order = [0, 1, 2, 3, 4];
        permute(&mut order, 0, &mut |order| assert_eq!(stays(order), exports[3], "{order:?}"));
    }

    fn permute(order: &mut [usize; 5], from: usize, visit: &mut dyn FnMut(&[usize])) {
        if from == order.len() {
            return visit(order);
        }
        for place in from..order.len() {
            order.swap(from, place);
            permute(order, from + 1, visit);
            order.swap(from, place);
        }
    }

    #[test]
    fn another_record_of_the_same_model_and_day_is_not_overwritten() {
        let other = Kept { event_id: "other".to_owned(), ..record(Some(9), 9) };
        assert_eq!(meet(Profile::UpsertByModelDay, &record(Some(1), 1), &other), Meeting::Foreign);
    }
}
