//! What is to be sent of a period: what is new, and what the receiver's profile lets change.

use std::collections::HashSet;

use ichido_usage::{Profile, Record};
use serde::Serialize;

use super::state::{Content, Sent};

/// What becomes of the records of a period.
#[derive(Debug, Default)]
pub struct Plan {
    /// Never sent before.
    pub new: Vec<Outgoing>,
    /// Sent before with other sums, and to be sent again: the receiver replaces.
    pub replaced: Vec<Outgoing>,
    /// Sent before, and the same.
    pub unchanged: usize,
    /// Everything whose sums are others than those that were sent.
    pub changes: Vec<Change>,
    /// Not sent now: an older total of the same id is still on its way.
    pub withheld: Vec<String>,
    /// Sent before, and not in the source any more.
    pub gone: Vec<String>,
}

/// A record to be sent, and what is remembered of it.
#[derive(Clone, Debug)]
pub struct Outgoing {
    pub record: Record,
    pub content: Content,
}

impl Outgoing {
    pub fn id(&self) -> &str {
        &self.record.metadata.source_event_id
    }
}

/// A record whose sums are others than those that were sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    pub id: String,
    pub before: Sums,
    pub now: Sums,
    pub what: Word,
}

/// What is done about a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Word {
    /// The receiver replaces the older total.
    Sent,
    /// The receiver keeps the first one, whatever comes.
    NotSent,
    /// The older total is still on its way.
    Withheld,
}

/// Sums, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sums {
    pub requests: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cost: String,
    pub currency: String,
}

impl Sums {
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

/// Compares what there is with what was sent. `waiting` are the ids of records that have not arrived yet.
pub fn plan(records: Vec<Record>, sent: &Sent, profile: Profile, waiting: &HashSet<String>) -> Plan {
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
        // Where the later one wins, nothing goes while an earlier one may still come after it.
        let what = match (profile.upserts(), waiting.contains(id)) {
            (false, _) => Word::NotSent,
            (true, true) => Word::Withheld,
            (true, false) => Word::Sent,
        };
        if let Some(before) = before {
            plan.changes.push(Change { id: id.clone(), before: Sums::of(before), now: Sums::of(&now), what });
        }
        match (before, what) {
            (_, Word::Withheld) => plan.withheld.push(id.clone()),
            (None, Word::Sent | Word::NotSent) => plan.new.push(Outgoing { record, content: now }),
            (Some(_), Word::Sent) => plan.replaced.push(Outgoing { record, content: now }),
            (Some(_), Word::NotSent) => {}
        }
    }
    plan.gone = gone.into_iter().cloned().collect();
    plan.gone.sort();
    plan
}

impl Plan {
    /// Everything that is sent.
    pub fn outgoing(&self) -> impl Iterator<Item = &Outgoing> {
        self.new.iter().chain(&self.replaced)
    }

    /// What has been sent when this plan has been carried out.
    pub fn carried_out(&self, mut sent: Sent) -> Sent {
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

    fn sent(records: &[Record]) -> Sent {
        plan(records.to_vec(), &Sent::default(), Profile::FirstWins, &HashSet::new())
            .carried_out(Sent::default())
    }

    #[test]
    fn unchanged_is_skipped_and_changed_goes_by_the_profile() {
        let before = sent(&[record("a", 1), record("b", 1), record("old", 1)]);
        let now = || vec![record("a", 1), record("b", 2), record("c", 3)];
        let first_wins = plan(now(), &before, Profile::FirstWins, &HashSet::new());
        assert_eq!((first_wins.new.len(), first_wins.replaced.len(), first_wins.unchanged), (1, 0, 1));
        assert_eq!(first_wins.changes[0].what, Word::NotSent);
        assert_eq!(first_wins.carried_out(before.clone()).records["b"].input, 1, "what was sent stays known");
        assert_eq!(first_wins.gone, ["old"]);
        let upsert = plan(now(), &before, Profile::UpsertByEventId, &HashSet::new());
        assert_eq!((upsert.new.len(), upsert.replaced.len(), upsert.unchanged), (1, 1, 1));
        assert_eq!(upsert.carried_out(before).records["b"].input, 2);
    }

    #[test]
    fn a_newer_total_waits_until_the_older_one_has_arrived() {
        let before = sent(&[record("a", 1)]);
        let waiting: HashSet<String> = ["a".to_owned(), "b".to_owned()].into();
        // "b" is not remembered as sent: the process died between sending and remembering.
        let plan = plan(vec![record("a", 2), record("b", 2)], &before, Profile::UpsertByEventId, &waiting);
        assert_eq!(plan.withheld, ["a", "b"]);
        assert!(plan.new.is_empty() && plan.replaced.is_empty());
        assert_eq!(plan.carried_out(before).records["a"].input, 1);
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
