//! Decides what happens when a record arrives that is already counted.
//!
//! The decision is pure: it compares the stored and the incoming revision. Stores make reading, deciding and
//! writing atomic.
//!
//! Under a profile that upserts, revisions have an order that does not depend on when they arrive: the later export
//! is newer; of two exports with the same time, or none, the one that counted more. So a batch that was in a spool
//! for a week cannot overwrite newer totals, and the same revision stays whatever order batches arrive in.

use ichido_usage::Profile;
use rust_decimal::Decimal;

/// What is compared of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revision {
    /// The id of the record.
    pub event_id: String,
    /// A hash of its content.
    pub digest: [u8; 32],
    /// When it was exported, in milliseconds since the epoch, if its batch says so.
    pub exported_at: Option<i64>,
    /// The number of model calls.
    pub request_count: i64,
    /// The number of tokens.
    pub total_tokens: i64,
    /// The cost.
    pub cost: Decimal,
}

/// How an incoming revision compares with the stored one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// Same content.
    Same,
    /// Same content from a later export: any export between the two is older than what is stored.
    SameLater,
    /// Different content; the first one stays.
    Conflict,
    /// Different content, and the stored revision is newer.
    Stale,
    /// Different content, and the incoming revision is newer.
    Newer,
    /// A different record of the same model and day, which would be overwritten.
    OtherRecord,
}

/// Compares an incoming revision with the stored one in the same slot.
pub fn compare(profile: Profile, stored: &Revision, incoming: &Revision) -> Comparison {
    if stored.event_id != incoming.event_id {
        return Comparison::OtherRecord;
    }
    match (stored.digest == incoming.digest, profile.upserts()) {
        (true, true) if incoming.exported_at > stored.exported_at => Comparison::SameLater,
        (true, _) => Comparison::Same,
        (false, false) => Comparison::Conflict,
        (false, true) if rank(incoming) > rank(stored) => Comparison::Newer,
        (false, true) => Comparison::Stale,
    }
}

/// The greater rank is newer. No export time sorts before any time.
fn rank(revision: &Revision) -> (Option<i64>, i64, i64, Decimal, [u8; 32]) {
    (revision.exported_at, revision.request_count, revision.total_tokens, revision.cost, revision.digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revision(exported_at: Option<i64>, requests: i64) -> Revision {
        let digest = [u8::try_from(requests).unwrap(); 32];
        let cost = Decimal::from(requests);
        Revision {
            event_id: "e".to_owned(),
            digest,
            exported_at,
            request_count: requests,
            total_tokens: 10,
            cost,
        }
    }

    #[test]
    fn first_revision_wins() {
        let compared = |stored, incoming| compare(Profile::FirstWins, &stored, &incoming);
        assert_eq!(compared(revision(Some(1), 1), revision(Some(2), 1)), Comparison::Same);
        assert_eq!(compared(revision(Some(1), 1), revision(Some(2), 2)), Comparison::Conflict);
    }

    #[test]
    fn later_export_is_newer_and_without_a_time_the_larger_count() {
        let compared = |stored, incoming| compare(Profile::UpsertByEventId, &stored, &incoming);
        assert_eq!(compared(revision(Some(1), 9), revision(Some(2), 1)), Comparison::Newer);
        assert_eq!(compared(revision(Some(2), 1), revision(Some(1), 9)), Comparison::Stale);
        assert_eq!(compared(revision(Some(1), 1), revision(Some(1), 2)), Comparison::Newer);
        assert_eq!(compared(revision(None, 1), revision(None, 2)), Comparison::Newer);
        assert_eq!(compared(revision(None, 2), revision(None, 1)), Comparison::Stale);
        assert_eq!(compared(revision(Some(1), 1), revision(None, 9)), Comparison::Stale);
        assert_eq!(compared(revision(None, 9), revision(Some(1), 1)), Comparison::Newer);
        assert_eq!(compared(revision(Some(1), 1), revision(Some(2), 1)), Comparison::SameLater);
        assert_eq!(compared(revision(Some(2), 1), revision(Some(1), 1)), Comparison::Same);
    }

    #[test]
    fn same_revision_stays_in_any_order_of_arrival() {
        let exports = [
            revision(None, 3),
            revision(Some(5), 1),
            revision(Some(5), 2),
            revision(Some(7), 1),
            revision(Some(6), 9),
        ];
        let stays = |order: &[usize]| {
            let mut stored = exports[order[0]].clone();
            for index in &order[1..] {
                match compare(Profile::UpsertByEventId, &stored, &exports[*index]) {
                    Comparison::Newer => stored = exports[*index].clone(),
                    Comparison::SameLater => stored.exported_at = exports[*index].exported_at,
                    Comparison::Same | Comparison::Stale => {}
                    other @ (Comparison::Conflict | Comparison::OtherRecord) => panic!("{other:?}"),
                }
            }
            stored
        };
        let mut order = [0, 1, 2, 3, 4];
        permute(&mut order, 0, &mut |order| assert_eq!(stays(order), exports[3], "{order:?}"));
    }

    fn permute(order: &mut [usize; 5], from: usize, visit: &mut dyn FnMut(&[usize])) {
        if from == order.len() {
            return visit(order);
        }
        for index in from..order.len() {
            order.swap(from, index);
            permute(order, from + 1, visit);
            order.swap(from, index);
        }
    }

    #[test]
    fn other_record_of_the_same_model_and_day_is_not_overwritten() {
        let other = Revision { event_id: "other".to_owned(), ..revision(Some(9), 9) };
        assert_eq!(
            compare(Profile::UpsertByModelDay, &revision(Some(1), 1), &other),
            Comparison::OtherRecord
        );
    }
}
