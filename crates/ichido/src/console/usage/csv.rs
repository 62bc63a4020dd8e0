//! The same numbers for a spreadsheet: RFC 4180, and no cell that a spreadsheet would compute.

use std::borrow::Cow;

use ichido_meter::report::Group;

const HEAD: &str = "usage_date,provider,model,aggregation_method,request_count,input_tokens,output_tokens,total_tokens,cost_actual,currency\r\n";

pub(super) fn text<'a>(groups: impl Iterator<Item = &'a Group>) -> String {
    let mut text = HEAD.to_owned();
    for group in groups {
        let part = |part: &'a Option<String>| cell(part.as_deref().unwrap_or_default());
        let cells = [
            part(&group.usage_date),
            part(&group.provider),
            part(&group.model),
            cell(&group.aggregation_method),
            group.request_count.to_string().into(),
            group.input_tokens.to_string().into(),
            group.output_tokens.to_string().into(),
            group.total_tokens.to_string().into(),
            group.cost_actual.as_str().into(),
            cell(&group.currency),
        ];
        text += &cells.join(",");
        text += "\r\n";
    }
    text
}

/// What a sender wrote. A cell that begins like a formula is kept from being one.
fn cell(text: &str) -> Cow<'_, str> {
    let formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let text: Cow<'_, str> = if formula { format!("'{text}").into() } else { text.into() };
    match text.contains(['"', ',', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")).into(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_text() {
        for (from, to) in [
            ("gpt-4o", "gpt-4o"),
            ("a,b", "\"a,b\""),
            ("say \"hi\"", "\"say \"\"hi\"\"\""),
            ("=HYPERLINK(\"http://evil.example\",1)", "\"'=HYPERLINK(\"\"http://evil.example\"\",1)\""),
            ("-1", "'-1"),
            ("", ""),
        ] {
            assert_eq!(cell(from), to);
        }
    }
}
