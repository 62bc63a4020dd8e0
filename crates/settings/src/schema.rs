//! The settings that a `Raw` struct defines, read from its JSON Schema.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

/// The JSON Schema of a `Raw` struct, without references.
pub fn schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

/// One setting.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Its path: `gateway.listen`, or `gateway.routes[].match` inside a list of tables.
    pub path: String,
    /// What it is for, in Markdown.
    pub description: String,
    /// What its values are.
    pub kind: Kind,
    /// Its value if nothing sets it.
    pub default: Option<Value>,
    /// The environment variable that overrides the file.
    pub variable: Option<String>,
    /// Whether it is never printed.
    pub is_secret: bool,
    /// Whether it is a URL that may contain credentials, which are not printed.
    pub is_url: bool,
    /// Whether only the variable may set it, not the file.
    pub is_variable_only: bool,
    /// Whether an empty variable is an error. Otherwise it counts as not set.
    pub is_never_empty: bool,
    /// The smallest and the largest value.
    pub range: Option<(u64, u64)>,
}

/// What the values of a setting are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// One of these words.
    OneOf(Vec<String>),
    /// A whole number.
    Number,
    /// `true` or `false`; in a variable also `on` or `off`.
    Switch,
    /// A list of texts; in a variable separated by commas.
    List,
    /// A text, or a list of texts.
    TextOrList,
    /// A table of texts.
    Map,
}

/// Every setting of a schema, in alphabetical order. A section comes before the tables inside it, as in a TOML file.
pub fn settings(schema: &Value) -> Vec<Setting> {
    let mut found = Vec::new();
    collect("", schema, &mut found);
    found
}

fn collect(prefix: &str, schema: &Value, found: &mut Vec<Setting>) {
    let mut tables = Vec::new();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        let shape = without_null(property);
        let items = without_null(&shape["items"]);
        if shape["properties"].is_object() {
            tables.push((path, shape));
        } else if items["properties"].is_object() {
            tables.push((format!("{path}[]"), items));
        } else {
            found.push(setting(path, property, shape));
        }
    }
    for (path, table) in tables {
        collect(&path, table, found);
    }
}

fn setting(path: String, property: &Value, shape: &Value) -> Setting {
    let text = |name: &str| {
        let value = property.get(name).or_else(|| shape.get(name));
        value.and_then(Value::as_str).map(ToOwned::to_owned)
    };
    let has = |name: &str| [property, shape].iter().any(|schema| schema[name] == true);
    let limit = |name: &str| shape.get(name).and_then(Value::as_u64);
    Setting {
        path,
        description: text("description").unwrap_or_default(),
        kind: kind(shape),
        default: property.get("default").filter(|value| !value.is_null()).cloned(),
        variable: text("x-env"),
        is_secret: has("x-secret"),
        is_url: has("x-url"),
        is_variable_only: has("x-env-only"),
        is_never_empty: has("x-never-empty"),
        range: limit("maximum").map(|most| (limit("minimum").unwrap_or(0), most)),
    }
}

/// The schema of the value itself: an optional setting also allows `null`, which TOML cannot express.
fn without_null(schema: &Value) -> &Value {
    let variants = schema.get("anyOf").and_then(Value::as_array);
    let other = variants.and_then(|variants| variants.iter().find(|variant| variant["type"] != "null"));
    match (variants.map(Vec::len), other) {
        (Some(2), Some(other)) if variants.is_some_and(|all| all.iter().any(|one| one["type"] == "null")) => {
            other
        }
        _ => schema,
    }
}

fn kind(shape: &Value) -> Kind {
    let words = words(shape);
    if !words.is_empty() {
        return Kind::OneOf(words);
    }
    let has = |name: &str| match &shape["type"] {
        Value::String(only) => only == name,
        Value::Array(several) => several.iter().any(|one| one == name),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
    };
    if has("integer") {
        Kind::Number
    } else if has("boolean") {
        Kind::Switch
    } else if has("array") && has("string") {
        Kind::TextOrList
    } else if has("array") {
        Kind::List
    } else if has("object") {
        Kind::Map
    } else {
        Kind::Text
    }
}

/// The words of an enum: `enum` lists them, or each has a `const` and its own description.
fn words(shape: &Value) -> Vec<String> {
    let listed = shape["enum"].as_array().into_iter().flatten();
    let described = shape["oneOf"].as_array().into_iter().flatten();
    let described = described.flat_map(|one| match one.get("const") {
        Some(word) => vec![word],
        None => one["enum"].as_array().into_iter().flatten().collect(),
    });
    listed.chain(described).filter_map(Value::as_str).map(ToOwned::to_owned).collect()
}
