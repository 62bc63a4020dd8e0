//! Writes report groups as CSV (RFC 4180) for spreadsheets.

use std::borrow::Cow;

use crate::report::Group;

/// Writes a header line, and one line for each group. Columns have the names of the report's JSON fields.
pub fn table<'a>(columns: &[&str], groups: impl IntoIterator<Item = &'a Group>) -> String {
    let mut writer = csv::WriterBuilder::new().terminator(csv::Terminator::CRLF).from_writer(Vec::new());
    // Writing to memory does not fail, and every line has as many cells as the header.
    let _ = writer.write_record(columns);
    for group in groups {
        let _ =
            writer.write_record(columns.iter().map(|column| cell(group, column).into_owned().into_bytes()));
    }
    writer.into_inner().ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
}

fn cell<'a>(group: &'a Group, column: &str) -> Cow<'a, str> {
    let text = |text: &'a Option<String>| defused(text.as_deref().unwrap_or_default());
    let number = |number: i64| Cow::Owned(number.to_string());
    match column {
        "usage_date" => text(&group.usage_date),
        "provider" => text(&group.provider),
        "model" => text(&group.model),
        "app_id" => text(&group.app_id),
        "app_name" => text(&group.app_name),
        "user_type" => text(&group.user_type),
        "user_id" => text(&group.user_id),
        "aggregation_method" => defused(&group.aggregation_method),
        "currency" => defused(&group.currency),
        "records" => number(group.records),
        "request_count" => number(group.request_count),
        "input_tokens" => number(group.input_tokens),
        "output_tokens" => number(group.output_tokens),
        "total_tokens" => number(group.total_tokens),
        "cost_actual" => Cow::Borrowed(&group.cost_actual),
        _ => Cow::Borrowed(""),
    }
}

/// Text from a sender. A spreadsheet would evaluate text that begins like a formula, so a quote is put before it.
pub fn defused(text: &str) -> Cow<'_, str> {
    match text.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        true => Cow::Owned(format!("'{text}")),
        false => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(columns: &[&str], group: &Group) -> String {
        let table = table(columns, [group]);
        let (header, line) = table.split_once("\r\n").unwrap();
        assert_eq!(header, columns.join(","));
        line.strip_suffix("\r\n").unwrap().to_owned()
    }

    #[test]
    fn text_is_quoted_and_never_a_formula() {
        for (text, cell) in [
            ("gpt-4o", "gpt-4o"),
            ("a,b", "\"a,b\""),
            ("two\nlines", "\"two\nlines\""),
            ("say \"hi\"", "\"say \"\"hi\"\"\""),
            ("=HYPERLINK(\"http://evil.example\",1)", "\"'=HYPERLINK(\"\"http://evil.example\"\",1)\""),
            ("-1", "'-1"),
            ("\rx", "\"'\rx\""),
            ("", ""),
        ] {
            let group = Group { model: Some(text.to_owned()), ..Group::default() };
            assert_eq!(line(&["model", "records"], &group), format!("{cell},0"));
        }
    }

    #[test]
    fn numbers_are_written_with_all_their_digits() {
        let group = Group {
            app_id: Some("a,\"b\"".to_owned()),
            app_name: Some("=cmd()".to_owned()),
            aggregation_method: "daily_sum".to_owned(),
            currency: "USD".to_owned(),
            records: 1,
            cost_actual: "0.5".to_owned(),
            ..Group::default()
        };
        let columns = [
            "app_id",
            "app_name",
            "aggregation_method",
            "currency",
            "records",
            "request_count",
            "input_tokens",
            "output_tokens",
            "total_tokens",
            "cost_actual",
        ];
        assert_eq!(line(&columns, &group), "\"a,\"\"b\"\"\",'=cmd(),daily_sum,USD,1,0,0,0,0,0.5");
    }
}
