//! Where settings come from: the file, then the environment, then flags. The last one wins.

use std::fmt;
use std::path::Path;

use figment::error::{Actual, Kind as Trouble};
use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};
use serde::de::DeserializeOwned;

use crate::file::File;
use crate::parse::without_credentials;
use crate::{Invalid, Kind, Setting, settings};

/// What precedes the name of a variable, in the metadata of its value.
const VARIABLE: &str = "variable ";
/// What precedes the name of a flag.
const FLAG: &str = "flag ";
/// An unknown key is taken for a misspelt one if they are at least this similar.
const SIMILAR: f64 = 0.8;

/// Everything that was set, and where.
#[derive(Clone, Debug)]
pub struct Sources {
    settings: Vec<Setting>,
    file: Option<File>,
    figment: Figment,
    /// Variables and flags that cannot be read. A command fails only if it reads their section.
    unreadable: Vec<Invalid>,
}

/// A value on the command line.
#[derive(Clone, Debug)]
pub struct Flag {
    /// The setting that it overrides.
    pub setting: &'static str,
    /// How it is written: `--listen`.
    pub name: &'static str,
    /// What follows it.
    pub value: Option<String>,
}

/// Where the value of a setting came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nothing sets it.
    Default,
    /// `ichido.toml:4`
    File(String),
    /// An environment variable.
    Variable(String),
    /// A flag of the command line.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(line) => f.write_str(line),
            Self::Variable(name) => write!(f, "environment variable {name}"),
            Self::Flag(name) => f.write_str(name),
        }
    }
}

/// A setting, its value in force and where that came from.
#[derive(Clone, Debug)]
pub struct Effective {
    /// The setting's definition.
    pub setting: Setting,
    /// The path, with the index of each table in a list.
    pub path: String,
    /// The value, unless it is not set and has no default. Secrets are masked.
    pub value: Option<serde_json::Value>,
    /// Where the value came from.
    pub origin: Origin,
}

impl Sources {
    /// Merges a file, the environment and flags. `schema` describes the whole file.
    pub fn new(
        schema: &serde_json::Value,
        file: Option<&Path>,
        variable: impl Fn(&str) -> Option<std::ffi::OsString>,
        flags: &[Flag],
    ) -> Result<Self, Invalid> {
        let file = file.map(File::read).transpose()?;
        Self::merge(schema, file, variable, flags)
    }

    /// The same for the text of a file alone.
    pub fn from_text(schema: &serde_json::Value, path: &Path, text: &str) -> Result<Self, Invalid> {
        Self::merge(schema, Some(File::parse(path, text.to_owned())?), |_| None, &[])
    }

    fn merge(
        schema: &serde_json::Value,
        file: Option<File>,
        variable: impl Fn(&str) -> Option<std::ffi::OsString>,
        flags: &[Flag],
    ) -> Result<Self, Invalid> {
        let settings = settings(schema);
        let mut figment = Figment::new();
        if let Some(file) = &file {
            figment = figment.merge(file.clone());
        }
        let mut sources = Self { settings, file, figment, unreadable: Vec::new() };
        sources.refuse_variables_in_the_file()?;
        for setting in sources.settings.clone() {
            let Some(name) = &setting.variable else { continue };
            let Some(value) = variable(name) else { continue };
            match value.into_string() {
                Ok(value) if value.trim().is_empty() && setting.is_never_empty => {
                    let problem = format!(
                        "is empty; unset the variable or give it a value (environment variable {name})"
                    );
                    sources.unreadable.push(Invalid::new(&setting.path, problem));
                }
                Ok(value) if value.trim().is_empty() => {}
                Ok(value) => sources.set(&setting, format!("{VARIABLE}{name}"), value),
                Err(_) => sources.unreadable.push(not_text(&setting.path, name)),
            }
        }
        for flag in flags {
            let Some(value) = &flag.value else { continue };
            let setting = sources.settings.iter().find(|setting| setting.path == flag.setting).cloned();
            let setting = setting.ok_or_else(|| Invalid::new(flag.setting, "is not a setting"))?;
            sources.set(&setting, format!("{FLAG}{}", flag.name), value.clone());
        }
        Ok(sources)
    }

    /// Checks the shape of the whole file: unknown keys, and values of the wrong type.
    pub fn check_file<T: DeserializeOwned>(&self) -> Result<(), Invalid> {
        let Some(file) = &self.file else { return Ok(()) };
        // Alone, so that an error names the line even if a variable or a flag overrides the value.
        let alone = Self { figment: Figment::from(file.clone()), ..self.clone() };
        let read: Result<T, _> = alone.figment.extract();
        read.map(drop).map_err(|error| alone.invalid("", error))
    }

    /// Reads one section, or everything if `section` is empty. A section that nothing sets has its defaults.
    pub fn section<T: DeserializeOwned + Default>(&self, section: &str) -> Result<T, Invalid> {
        let is_inside = |setting: &str| {
            section.is_empty() || setting.strip_prefix(section).is_some_and(|rest| rest.starts_with('.'))
        };
        if let Some(unreadable) = self.unreadable.iter().find(|invalid| is_inside(&invalid.setting)) {
            return Err(unreadable.clone());
        }
        self.check_ranges(is_inside)?;
        let read = match section {
            "" => self.figment.extract(),
            _ if self.figment.contains(section) => self.figment.extract_inner(section),
            _ => return Ok(T::default()),
        };
        read.map_err(|error| self.invalid(section, error))
    }

    /// Whether the file has this section, even if it is empty.
    pub fn has_section(&self, section: &str) -> bool {
        self.file.as_ref().is_some_and(|file| file.has(section))
    }

    /// Whether anything sets this setting.
    pub fn is_set(&self, setting: &str) -> bool {
        self.value(setting).is_some()
    }

    /// Where the value of a setting came from.
    pub fn origin(&self, setting: &str) -> Origin {
        let value = self.value(setting);
        let metadata = value.as_ref().and_then(|value| self.figment.get_metadata(value.tag()));
        let Some(metadata) = metadata else { return Origin::Default };
        if let Some(name) = metadata.name.strip_prefix(VARIABLE) {
            return Origin::Variable(name.to_owned());
        }
        if let Some(name) = metadata.name.strip_prefix(FLAG) {
            return Origin::Flag(name.to_owned());
        }
        let path = dotted(setting);
        match &self.file {
            Some(file) => Origin::File(file.locate(&path.split('.').collect::<Vec<_>>())),
            None => Origin::Default,
        }
    }

    /// What was set, also inside lists.
    fn value(&self, setting: &str) -> Option<Value> {
        let path = dotted(setting);
        let mut names = path.split('.');
        let mut value = self.figment.find_value(names.next()?).ok()?;
        for name in names {
            value = match value {
                Value::Dict(_, mut values) => values.remove(name)?,
                Value::Array(_, mut items) => {
                    let index: usize = name.parse().ok()?;
                    if index < items.len() { items.swap_remove(index) } else { return None }
                }
                Value::String(..) | Value::Char(..) | Value::Bool(..) | Value::Num(..) | Value::Empty(..) => {
                    return None;
                }
            };
        }
        Some(value)
    }

    /// A setting that a check refused, with the origin of its value: `gateway.upstream: has no host (ichido.toml:4)`.
    pub fn explain(&self, invalid: &Invalid) -> Invalid {
        match self.origin(&invalid.setting) {
            Origin::Default => invalid.clone(),
            origin @ (Origin::File(_) | Origin::Variable(_) | Origin::Flag(_)) => {
                Invalid::new(&invalid.setting, format!("{} ({origin})", invalid.problem))
            }
        }
    }

    /// Every setting with its value in force; tables in lists are repeated for each element.
    pub fn effective(&self) -> Vec<Effective> {
        let mut all = Vec::new();
        for setting in &self.settings {
            match setting.path.split_once("[].") {
                None => all.push(self.effective_at(setting, setting.path.clone())),
                Some((list, name)) => {
                    let items = self.value(list);
                    let count = items.as_ref().and_then(Value::as_array).map_or(0, <[Value]>::len);
                    all.extend(
                        (0..count).map(|index| self.effective_at(setting, format!("{list}[{index}].{name}"))),
                    );
                }
            }
        }
        all
    }

    /// The settings whose values differ from those of `other`, in the order of the schema. Secrets are compared too.
    pub fn changes(&self, other: &Self) -> Vec<String> {
        let mut paths: Vec<String> = Vec::new();
        for Effective { setting, path, .. } in self.effective().into_iter().chain(other.effective()) {
            let value = |sources: &Self| match sources.value(&path) {
                Some(value) => serde_json::to_value(value).ok(),
                None => setting.default.clone(),
            };
            if value(self) != value(other) && !paths.contains(&path) {
                paths.push(path);
            }
        }
        paths
    }

    fn effective_at(&self, setting: &Setting, path: String) -> Effective {
        let value = match self.value(&path) {
            Some(_) if setting.is_secret => Some(serde_json::json!("***")),
            Some(Value::String(_, url)) if setting.is_url => {
                Some(serde_json::json!(without_credentials(&url)))
            }
            Some(value) => serde_json::to_value(value).ok(),
            None => setting.default.clone(),
        };
        Effective { setting: setting.clone(), origin: self.origin(&path), path, value }
    }

    fn set(&mut self, setting: &Setting, source: String, text: String) {
        match typed(&setting.kind, text) {
            Ok(value) => {
                let leaf = Leaf { source, path: setting.path.clone(), value };
                self.figment = std::mem::take(&mut self.figment).merge(leaf);
            }
            Err(problem) => {
                let from = source.replacen(VARIABLE, "environment variable ", 1).replacen(FLAG, "", 1);
                self.unreadable.push(Invalid::new(&setting.path, format!("{problem} ({from})")));
            }
        }
    }

    fn refuse_variables_in_the_file(&self) -> Result<(), Invalid> {
        let in_file =
            self.settings.iter().find(|setting| setting.is_variable_only && self.is_set(&setting.path));
        match in_file {
            None => Ok(()),
            Some(Setting { path, variable, .. }) => {
                let variable = variable.as_deref().unwrap_or("an environment variable");
                let problem = format!("does not belong in the settings file; set {variable} instead");
                Err(self.explain(&Invalid::new(path, problem)))
            }
        }
    }

    fn check_ranges(&self, is_inside: impl Fn(&str) -> bool) -> Result<(), Invalid> {
        let inside = self.effective().into_iter().filter(|one| is_inside(&one.path));
        for Effective { setting, path, value, .. } in inside {
            let (Some((least, most)), Some(number)) =
                (setting.range, value.as_ref().and_then(serde_json::Value::as_i64))
            else {
                continue;
            };
            if !u64::try_from(number).is_ok_and(|number| (least..=most).contains(&number)) {
                let problem = format!("is {number}; it must be between {least} and {most}");
                return Err(self.explain(&Invalid::new(path, problem)));
            }
        }
        Ok(())
    }

    /// What serde found wrong, without the value.
    fn invalid(&self, section: &str, error: figment::Error) -> Invalid {
        let mut path: Vec<String> =
            section.split('.').filter(|name| !name.is_empty()).map(ToOwned::to_owned).collect();
        let given = error.path.iter().filter(|name| *name != "default").cloned();
        path.extend(given.skip_while(|name| section.split('.').any(|part| part == name)));
        let problem = match error.kind {
            Trouble::UnknownField(name, known) => {
                let similar = known.iter().map(|known| (strsim::jaro_winkler(&name, known), known));
                let closest =
                    similar.max_by(|one, other| one.0.total_cmp(&other.0)).filter(|best| best.0 > SIMILAR);
                if path.last() == Some(&name) {
                    path.pop();
                }
                path.push(name);
                match closest {
                    Some((_, known)) => format!("unknown key; did you mean {known}?"),
                    None => "unknown key".to_owned(),
                }
            }
            Trouble::MissingField(name) => {
                if path.last().map(String::as_str) != Some(&*name) {
                    path.push(name.into_owned());
                }
                "is not set".to_owned()
            }
            Trouble::UnknownVariant(_, known) => format!("must be {}", one_of(known)),
            Trouble::InvalidType(actual, expected) => {
                format!("expected {expected}, found {}", kind_of(&actual))
            }
            Trouble::InvalidValue(_, expected) => format!("expected {expected}"),
            Trouble::Message(problem) => problem,
            other @ (Trouble::InvalidLength(..)
            | Trouble::DuplicateField(_)
            | Trouble::ISizeOutOfRange(_)
            | Trouble::USizeOutOfRange(_)
            | Trouble::Unsupported(_)
            | Trouble::UnsupportedKey(..)) => {
                let text = other.to_string();
                text.split(':').next().unwrap_or("cannot be read").to_owned()
            }
        };
        let located = self.explain(&Invalid::new(indexed(&path), problem));
        match path.iter().all(|name| is_name(name)) {
            true => located,
            false => Invalid::new("settings", located.problem),
        }
    }
}

/// Whether this can be the name of a setting. Anything else may be a secret that was pasted as a key.
fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

/// `a, b or c`
pub(crate) fn one_of<S: AsRef<str>>(words: &[S]) -> String {
    match words {
        [] => String::new(),
        [only] => only.as_ref().to_owned(),
        [first @ .., last] => {
            let first: Vec<&str> = first.iter().map(AsRef::as_ref).collect();
            format!("{} or {}", first.join(", "), last.as_ref())
        }
    }
}

fn not_text(setting: &str, variable: &str) -> Invalid {
    Invalid::new(setting, format!("is not valid UTF-8 (environment variable {variable})"))
}

fn kind_of(actual: &Actual) -> &'static str {
    match actual {
        Actual::Bool(_) => "true or false",
        Actual::Unsigned(_) | Actual::Signed(_) => "a whole number",
        Actual::Float(_) => "a number with a fraction",
        Actual::Char(_) | Actual::Str(_) | Actual::Bytes(_) => "a string",
        Actual::Seq => "a list",
        Actual::Map => "a table",
        Actual::Unit
        | Actual::Option
        | Actual::NewtypeStruct
        | Actual::Enum
        | Actual::UnitVariant
        | Actual::NewtypeVariant
        | Actual::TupleVariant
        | Actual::StructVariant
        | Actual::Other(_) => "something else",
    }
}

/// `gateway.routes[0].match` as figment writes it: `gateway.routes.0.match`.
fn dotted(path: &str) -> String {
    path.replace('[', ".").replace(']', "")
}

fn indexed(path: &[String]) -> String {
    let mut text = String::new();
    for name in path {
        match name.parse::<usize>() {
            Ok(index) => text.push_str(&format!("[{index}]")),
            Err(_) if text.is_empty() => text.push_str(name),
            Err(_) => text.push_str(&format!(".{name}")),
        }
    }
    text
}

fn typed(kind: &Kind, text: String) -> Result<Value, String> {
    let trimmed = text.trim();
    match kind {
        Kind::Number => {
            trimmed.parse::<u64>().map(Value::from).map_err(|_| "must be a whole number".to_owned())
        }
        Kind::Switch => match trimmed.to_ascii_lowercase().as_str() {
            "1" | "true" | "on" | "yes" => Ok(Value::from(true)),
            "0" | "false" | "off" | "no" => Ok(Value::from(false)),
            _ => Err("must be on or off".to_owned()),
        },
        Kind::OneOf(words) if !words.iter().any(|word| word == trimmed) => {
            Err(format!("must be {}", one_of(words)))
        }
        Kind::OneOf(_) => Ok(Value::from(trimmed)),
        Kind::List => {
            let items = trimmed.split(',').map(str::trim).filter(|item| !item.is_empty());
            Ok(Value::from(items.map(Value::from).collect::<Vec<_>>()))
        }
        Kind::Text | Kind::TextOrList | Kind::Map => Ok(Value::from(text)),
    }
}

/// One value of the environment or the command line.
struct Leaf {
    source: String,
    path: String,
    value: Value,
}

impl Provider for Leaf {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.source.clone())
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        let Value::Dict(_, values) = figment::util::nest(&self.path, self.value.clone()) else {
            return Err("a setting without a section".to_owned().into());
        };
        Ok(Profile::Default.collect(values))
    }
}

#[cfg(test)]
mod tests;
