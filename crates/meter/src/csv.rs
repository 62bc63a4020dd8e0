//! A report as a table for spreadsheets (RFC 4180).

use crate::report::{By, Group};

/// The table, with its head.
pub(super) fn table(by: &[By], groups: &[Group]) -> String {
    let mut columns: Vec<&str> = by.iter().flat_map(|by| by.columns()).copied().collect();
    if by.contains(&By::App) {
        columns.push("app_name");
    }
    let sums = [
        "aggregation_method",
        "currency",
        "records",
        "request_count",
        "input_tokens",
        "output_tokens",
        "total_tokens",
        "cost_actual",
    ];
    let mut text = line(columns.iter().chain(&sums).map(|name| (*name).to_owned()));
    for group in groups {
        let mut group = group.clone();
        let mut cells: Vec<String> = columns
            .iter()
            .map(|column| group.field(column).and_then(Option::take).unwrap_or_default())
            .map(|cell| harmless(&cell))
            .collect();
        cells.push(harmless(&group.aggregation_method));
        cells.push(group.currency);
        let numbers =
            [group.records, group.request_count, group.input_tokens, group.output_tokens, group.total_tokens];
        cells.extend(numbers.map(|number| number.to_string()));
        cells.push(group.cost_actual);
        text.push_str(&line(cells.into_iter()));
    }
    text
}

/// A spreadsheet would run what begins like a formula.
fn harmless(cell: &str) -> String {
    match cell.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        true => format!("'{cell}"),
        false => cell.to_owned(),
    }
}

fn line(cells: impl Iterator<Item = String>) -> String {
    let cells = cells.map(|cell| match cell.contains(['"', ',', '\r', '\n']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell,
    });
    cells.collect::<Vec<_>>().join(",") + "\r\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_and_run_nothing() {
        let group = Group {
            app_id: Some("a,\"b\"".to_owned()),
            app_name: Some("=cmd()".to_owned()),
            aggregation_method: "daily_sum".to_owned(),
            currency: "USD".to_owned(),
            records: 1,
            cost_actual: "0.5".to_owned(),
            ..Group::default()
        };
        let table = table(&[By::App], &[group]);
        let mut lines = table.split("\r\n");
        let head = "app_id,app_name,aggregation_method,currency,records,request_count,input_tokens,output_tokens,total_tokens,\
                    cost_actual";
        assert_eq!(lines.next(), Some(head));
        assert_eq!(lines.next(), Some("\"a,\"\"b\"\"\",'=cmd(),daily_sum,USD,1,0,0,0,0,0.5"));
    }
}
