//! What changed between two readings of the same month.

use std::collections::{BTreeMap, BTreeSet};

use ichido_usage::money::Sum;
use serde::{Deserialize, Serialize};

use super::{ReadUsage, Row, RowKey, Sums, Usage};

/// What changed since the last statement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// When the last statement was made.
    pub since: String,
    /// The digest of the last statement.
    pub previous_digest: String,
    /// The rows that changed.
    pub rows: Vec<Change>,
}

/// A row that changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// What the sums are for.
    #[serde(flatten)]
    pub key: RowKey,
    /// The name of the app.
    pub app_name: String,
    /// Records that were counted since then.
    pub counted_later: i64,
    /// Records that were counted before, and have been replaced since then.
    pub replaced: i64,
    /// The sums then.
    pub before: Option<Sums>,
    /// The sums now.
    pub now: Option<Sums>,
    /// How many tokens more, or fewer.
    pub total_tokens_difference: i64,
    /// How much more it costs, or less, as text with all its digits.
    pub cost_difference: String,
}

/// Compares the rows of a month. `read` says how many records of each row were written since `before`.
pub fn compare(before: &Usage, read: &ReadUsage) -> Vec<Change> {
    let old: BTreeMap<&RowKey, &Row> = before.rows.iter().map(|row| (&row.key, row)).collect();
    let new: BTreeMap<&RowKey, (&Row, i64)> = read
        .usage
        .rows
        .iter()
        .zip(&read.written_after)
        .map(|(row, written)| (&row.key, (row, *written)))
        .collect();
    let keys: BTreeSet<&RowKey> = old.keys().chain(new.keys()).copied().collect();
    keys.into_iter().filter_map(|key| change(key, old.get(key).copied(), new.get(key).copied())).collect()
}

fn change(key: &RowKey, before: Option<&Row>, now: Option<(&Row, i64)>) -> Option<Change> {
    let (now, written) = now.unzip();
    let (old, new) = (before.map(|row| &row.sums), now.map(|row| &row.sums));
    let is_same = old == new;
    let written = written.unwrap_or(0);
    if is_same && written == 0 {
        return None;
    }
    let number = |sums: Option<&Sums>, of: fn(&Sums) -> i64| sums.map_or(0, of);
    let records = number(new, |sums| sums.records) - number(old, |sums| sums.records);
    let counted_later = records.max(0);
    // Records are never removed, so what was written and is not new has replaced something. A record that was being written
    // when the last statement was made has an earlier time: the sums reveal it.
    let replaced = (written - counted_later).max(i64::from(counted_later == 0 && !is_same));
    let row = now.or(before)?;
    Some(Change {
        key: key.clone(),
        app_name: row.app_name.clone(),
        counted_later,
        replaced,
        before: old.cloned(),
        now: new.cloned(),
        total_tokens_difference: number(new, |sums| sums.total_tokens)
            - number(old, |sums| sums.total_tokens),
        cost_difference: difference(new, old),
    })
}

fn difference(now: Option<&Sums>, before: Option<&Sums>) -> String {
    let amount = |sums: Option<&Sums>, sign: &str| {
        let cost = sums.map_or("0", |sums| sums.cost.as_str());
        let text = if cost == "0" { cost.to_owned() } else { format!("{sign}{cost}") };
        Sum::parse(&text)
    };
    let difference = amount(now, "").and_then(|mut sum| sum.join(amount(before, "-")?).map(|()| sum));
    difference.map_or_else(|_| "?".to_owned(), |sum| sum.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(app: &str, records: i64, tokens: i64, cost: &str) -> Row {
        let key = RowKey {
            app_id: app.to_owned(),
            user_type: String::new(),
            user_id: String::new(),
            provider: "openai".to_owned(),
            model: "gpt-4o".to_owned(),
            aggregation_method: "daily_sum".to_owned(),
            currency: "USD".to_owned(),
        };
        let sums = Sums { records, total_tokens: tokens, cost: cost.to_owned(), ..Sums::zero() };
        Row { key, app_name: app.to_uppercase(), sums }
    }

    fn usage(rows: Vec<Row>) -> Usage {
        Usage { tenant: "t".to_owned(), month: "2026-11".to_owned(), app: None, rows }
    }

    #[test]
    fn new_and_replaced_records_are_told_apart() {
        let before = usage(vec![
            row("a", 5, 50, "0.5"),
            row("b", 2, 20, "0.2"),
            row("c", 1, 1, "1"),
            row("e", 3, 9, "9"),
        ]);
        let now = vec![
            row("a", 7, 80, "0.85"),
            row("b", 2, 15, "0.15"),
            row("c", 1, 1, "1"),
            row("d", 1, 1, "0.01"),
            row("e", 3, 8, "8.5"),
        ];
        let read = ReadUsage { usage: usage(now), written_after: vec![3, 1, 0, 1, 0] };
        let changes = compare(&before, &read);
        let found: Vec<_> = changes
            .iter()
            .map(|change| {
                let Change { key, counted_later, replaced, cost_difference, .. } = change;
                (key.app_id.as_str(), *counted_later, *replaced, cost_difference.as_str())
            })
            .collect();
        let expected = [("a", 2, 1, "0.35"), ("b", 0, 1, "-0.05"), ("d", 1, 0, "0.01"), ("e", 0, 1, "-0.5")];
        assert_eq!(found, expected);
        assert_eq!(changes[1].total_tokens_difference, -5);
        assert!(compare(&before, &ReadUsage { usage: before.clone(), written_after: vec![0; 4] }).is_empty());
    }
}
