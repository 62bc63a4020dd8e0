//! The settings file: its values, and the line of each.

use std::path::{Path, PathBuf};

use figment::value::{Dict, Map};
use figment::{Metadata, Profile, Provider};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::Invalid;

/// A settings file that is well-formed TOML.
#[derive(Clone, Debug)]
pub(crate) struct File {
    path: PathBuf,
    text: String,
    values: Dict,
}

impl File {
    pub(crate) fn read(path: &Path) -> Result<Self, Invalid> {
        let invalid = |problem: String| Invalid::new(path.display().to_string(), problem);
        let text = std::fs::read_to_string(path).map_err(|error| invalid(error.to_string()))?;
        Self::parse(path, text)
    }

    pub(crate) fn parse(path: &Path, text: String) -> Result<Self, Invalid> {
        match toml::from_str(&text) {
            Ok(values) => Ok(Self { path: path.to_owned(), text, values }),
            Err(error) => {
                let line = error.span().map_or(1, |span| line_at(&text, span.start));
                // The parser says what it expected. What it found may be a secret.
                let problem = error.message().lines().next().unwrap_or("not valid TOML").to_owned();
                Err(Invalid::new(format!("{}:{line}", path.display()), problem))
            }
        }
    }

    /// Whether the file has this section, even if it is empty.
    pub(crate) fn has(&self, section: &str) -> bool {
        let mut values = Some(&self.values);
        for name in section.split('.') {
            match values.and_then(|values| values.get(name)) {
                Some(value) => values = value.as_dict(),
                None => return false,
            }
        }
        true
    }

    /// `ichido.toml:4`, the line that holds the setting or, if it is not there, the closest table around it.
    pub(crate) fn locate(&self, path: &[&str]) -> String {
        let file = self.path.display();
        match DeTable::parse(&self.text).ok().and_then(|table| start(table.get_ref(), path)) {
            Some(start) => format!("{file}:{}", line_at(&self.text, start)),
            None => file.to_string(),
        }
    }
}

impl Provider for File {
    fn metadata(&self) -> Metadata {
        Metadata::named("settings file")
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Profile::Default.collect(self.values.clone()))
    }
}

fn start(table: &DeTable<'_>, path: &[&str]) -> Option<usize> {
    let (first, rest) = path.split_first()?;
    let (name, value) = table.iter().find(|(name, _)| name.get_ref() == first)?;
    Some(start_in(value, rest).unwrap_or(name.span().start))
}

fn start_in(value: &Spanned<DeValue<'_>>, path: &[&str]) -> Option<usize> {
    match value.get_ref() {
        DeValue::Table(table) => start(table, path),
        DeValue::Array(items) => {
            let (index, rest) = path.split_first()?;
            let item = items.get(index.parse::<usize>().ok()?)?;
            Some(start_in(item, rest).unwrap_or(item.span().start))
        }
        DeValue::String(_)
        | DeValue::Integer(_)
        | DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_) => None,
    }
}

fn line_at(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}
