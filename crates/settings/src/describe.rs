//! Settings for people: tables for the documentation, `.env.example`, and a file with every default.

use std::fmt::Write as _;

use serde_json::Value;

use crate::sources::one_of;
use crate::{Kind, Setting, settings};

/// A Markdown table of the settings whose path starts with `section`.
pub fn markdown_table(schema: &Value, section: &str) -> String {
    let mut table = "| setting | default | variable | meaning |\n|---|---|---|---|\n".to_owned();
    for setting in settings(schema) {
        let Some((_, name)) = setting.path.rsplit_once('.').filter(|(table, _)| *table == section) else {
            continue;
        };
        let default =
            setting.default.as_ref().map_or_else(String::new, |value| format!("`{}`", toml_value(value)));
        let variable = setting.variable.as_ref().map_or_else(String::new, |name| format!("`{name}`"));
        let name = if setting.is_variable_only { "(variable only)".to_owned() } else { format!("`{name}`") };
        let _ = writeln!(table, "| {name} | {default} | {variable} | {} |", meaning(&setting));
    }
    table
}

/// Every environment variable, commented out, with its default.
pub fn env_example(schema: &Value) -> String {
    let mut text = String::new();
    for setting in settings(schema) {
        let Some(variable) = &setting.variable else { continue };
        let default = setting.default.as_ref().map_or_else(String::new, variable_value);
        let _ = writeln!(text, "# {}", meaning(&setting));
        let _ = writeln!(text, "#{variable}={default}\n");
    }
    text
}

/// A settings file in which every setting is commented out and shows its default.
pub fn default_file(schema: &Value) -> String {
    let mut text = String::new();
    let mut section = String::new();
    for setting in settings(schema).into_iter().filter(|setting| !setting.is_variable_only) {
        let (table, name) = setting.path.rsplit_once('.').unwrap_or(("", &setting.path));
        if table != section {
            section = table.to_owned();
            let header = match table.strip_suffix("[]") {
                Some(list) => format!("[[{list}]]"),
                // A table inside a list of tables belongs to the last item.
                None => format!("[{}]", table.replace("[]", "")),
            };
            let _ = writeln!(text, "{}#{header}", if text.is_empty() { "" } else { "\n" });
        }
        let value = setting.default.as_ref().map_or_else(|| example(&setting), toml_value);
        let _ = writeln!(text, "# {}", meaning(&setting));
        let _ = writeln!(text, "#{name} = {value}");
    }
    text
}

/// The description on one line, with the possible values.
fn meaning(setting: &Setting) -> String {
    let mut text = setting.description.split_whitespace().collect::<Vec<_>>().join(" ");
    match (&setting.kind, setting.range) {
        (Kind::OneOf(words), _) => {
            let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
            let _ = write!(text, " ({})", one_of(&words));
        }
        (_, Some((least, most))) => {
            let _ = write!(text, " ({least} to {most})");
        }
        _ => {}
    }
    text
}

/// A value for a setting without a default.
fn example(setting: &Setting) -> String {
    match setting.kind {
        Kind::Number => setting.range.map_or(0, |(least, _)| least).to_string(),
        Kind::Switch => "false".to_owned(),
        Kind::List => "[]".to_owned(),
        Kind::Map => "{}".to_owned(),
        Kind::Text | Kind::OneOf(_) | Kind::TextOrList => "\"\"".to_owned(),
    }
}

/// A JSON value in TOML. Numbers, strings, switches and lists of them are written alike in both.
fn toml_value(value: &Value) -> String {
    match value {
        Value::Object(_) => "{}".to_owned(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            value.to_string()
        }
    }
}

fn variable_value(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(true) => "on".to_owned(),
        Value::Bool(false) => "off".to_owned(),
        Value::Array(items) => items.iter().map(variable_value).collect::<Vec<_>>().join(","),
        Value::Null | Value::Number(_) | Value::Object(_) => value.to_string(),
    }
}
