//! Decides what to send of a period: new records, and changed ones if the receiver's profile replaces records.

use std::collections::HashSet;

use ichido_usage::{Profile, Record};
use serde::{Deserialize, Serialize};

use super::state::{Content, SentRecords};

/// What happens to the records of a period.
#[derive(Debug, Default)]
pub struct Plan {
    /// Records that were never sent.
    pub new: Vec<Outgoing>,
    /// Records that were sent with other sums, and are sent again: the receiver replaces them.
    pub replaced: Vec<Outgoing>,
    /// How many records were sent and are the same.
    pub unchanged: usize,
    /// All records whose sums differ from what was sent.
    pub changes: Vec<Change>,
    /// Ids that are not sent now, because an older total is undelivered.
    pub withheld: Vec<String>,
    /// Ids that were sent and are no longer in the source.
    pub gone: Vec<String>,
}

/// A record to send, and the content to record as sent.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// The record.
    pub record: Record,
    /// Its content.
    pub content: Content,
}

impl Outgoing {
    /// The event id of the record.
    pub fn id(&self) -> &str {
        &self.record.metadata.source_event_id
    }
}

/// A record whose sums differ from what was sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The event id.
    pub id: String,
    /// The sums that were sent.
    pub before: Sums,
    /// The sums now.
    pub now: Sums,
    /// What is done about it.
    pub what: Action,
}

/// What is done about a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Sent again: the receiver replaces the older total.
    Sent,
    /// Not sent: the receiver keeps the first total.
    NotSent,
    /// Not sent now: the older total is undelivered.
    Withheld,
}

/// The sums of a record, for reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sums {
    /// Requests.
    pub requests: u64,
    /// Prompt tokens.
    pub input_tokens: u64,
    /// Completion tokens.
    pub output_tokens: u64,
    /// The cost, as a decimal.
    pub cost: String,
    /// The currency of the cost.
    pub currency: String,
}

impl Sums {
    /// The sums of a record.
    pub fn of(content: &Content) -> Self {
        Self {
            requests: content.requests,
            input_tokens: content.input,
            output_tokens: content.output,
            cost: content.cost.clone(),
            currency: content.currency.clone(),
        }
    }
}

/// Compares the records of a period with what was sent. `pending` has the ids of undelivered records.
pub fn plan(records: Vec<Record>, sent: &SentRecords, profile: Profile, pending: &HashSet<String>) -> Plan {
    let mut plan = Plan::default();
    let mut gone: HashSet<&String> = sent.records.keys().collect();
    for record in records {
        let id = &record.metadata.source_event_id;
        gone.remove(id);
        let before = sent.records.get(id);
        let now = Content::of(&record);
        if before.is_some_and(|before| before.hash == now.hash) {
            plan.unchanged += 1;
            continue;
        }
        // If the later record wins, nothing is sent while an older one could still arrive after it.
        let what = match (profile.upserts(), pending.contains(id)) {
            (false, _) => Action::NotSent,
            (true, true) => Action::Withheld,
            (true, false) => Action::Sent,
        };
        if let Some(before) = before {
            plan.changes.push(Change { id: id.clone(), before: Sums::of(before), now: Sums::of(&now), what });
        }
        match (before, what) {
            (_, Action::Withheld) => plan.withheld.push(id.clone()),
            (None, Action::Sent | Action::NotSent) => plan.new.push(Outgoing { record, content: now }),
            (Some(_), Action::Sent) => plan.replaced.push(Outgoing { record, content: now }),
            (Some(_), Action::NotSent) => {}
        }
    }
    plan.gone = gone.into_iter().cloned().collect();
    plan.gone.sort();
    plan
}

impl Plan {
    /// All records to send.
    pub fn outgoing(&self) -> impl Iterator<Item = &Outgoing> {
        self.new.iter().chain(&self.replaced)
    }

    /// What was sent, after this plan was carried out.
    pub fn applied_to(&self, mut sent: SentRecords) -> SentRecords {
        for outgoing in self.outgoing() {
            sent.records.insert(outgoing.id().to_owned(), outgoing.content.clone());
        }
        sent
    }
}

#[cfg(test)]
mod tests {
    use ichido_usage::Metadata;

    use super::*;

    fn record(id: &str, input: u64) -> Record {
        Record {
            usage_date: jiff::civil::date(2025, 11, 29),
            provider: "openai".into(),
            model: "gpt-4o".into(),
            input_tokens: input,
            output_tokens: 1,
            total_tokens: input + 1,
            request_count: 1,
            cost_actual: "0.10".parse().unwrap(),
            currency: "USD".into(),
            metadata: Metadata {
                source_system: "dify".into(),
                source_event_id: id.into(),
                source_app_id: String::new(),
                source_app_name: String::new(),
                aggregation_method: "daily_sum".into(),
                source_user_id: None,
                source_user_type: None,
                debugger_request_count: None,
            },
        }
    }

    fn sent(records: &[Record]) -> SentRecords {
        plan(records.to_vec(), &SentRecords::default(), Profile::FirstWins, &HashSet::new())
            .applied_to(SentRecords::default())
    }

    #[test]
    fn unchanged_records_are_skipped_and_the_profile_decides_on_changed_ones() {
        let before = sent(&[record("a", 1), record("b", 1), record("old", 1)]);
        let now = || vec![record("a", 1), record("b", 2), record("c", 3)];
        let first_wins = plan(now(), &before, Profile::FirstWins, &HashSet::new());
        assert_eq!((first_wins.new.len(), first_wins.replaced.len(), first_wins.unchanged), (1, 0, 1));
        assert_eq!(first_wins.changes[0].what, Action::NotSent);
        assert_eq!(first_wins.applied_to(before.clone()).records["b"].input, 1, "the sent total is kept");
        assert_eq!(first_wins.gone, ["old"]);
        let upsert = plan(now(), &before, Profile::UpsertByEventId, &HashSet::new());
        assert_eq!((upsert.new.len(), upsert.replaced.len(), upsert.unchanged), (1, 1, 1));
        assert_eq!(upsert.applied_to(before).records["b"].input, 2);
    }

    #[test]
    fn a_newer_total_is_withheld_until_the_older_one_is_delivered() {
        let before = sent(&[record("a", 1)]);
        let pending: HashSet<String> = ["a".to_owned(), "b".to_owned()].into();
        // "b" is not recorded as sent: the process crashed in between.
        let plan = plan(vec![record("a", 2), record("b", 2)], &before, Profile::UpsertByEventId, &pending);
        assert_eq!(plan.withheld, ["a", "b"]);
        assert!(plan.new.is_empty() && plan.replaced.is_empty());
        assert_eq!(plan.applied_to(before).records["a"].input, 1);
    }

    #[test]
    fn renaming_an_app_changes_nothing_that_was_billed() {
        let before = sent(&[record("a", 1)]);
        let mut renamed = record("a", 1);
        renamed.metadata.source_app_name = "new name".into();
        renamed.cost_actual = "0.1".parse().unwrap();
        let plan = plan(vec![renamed], &before, Profile::UpsertByEventId, &HashSet::new());
        assert_eq!((plan.unchanged, plan.changes.len()), (1, 0));
    }
}
