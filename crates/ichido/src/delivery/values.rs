//! Where the settings of the sender come from: the file, then the environment, then flags.
//!
//! What checks them knows each by its variable. So there is one check and one sentence for a setting, wherever it was given;
//! only its name in the sentence becomes the one that was written.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ichido_delivery::settings::{self, Settings};

use crate::args::{Common, DeliveryArgs, DeliveryFlags};
use crate::settings::Settings as File;
use crate::settings::delivery::RawDelivery;
use ichido_serve::Failure;

const ENDPOINT: &str = "EXTERNAL_API_ENDPOINT";
const DATA_DIR: &str = "DATA_DIR";
const TOKEN: &str = "EXTERNAL_API_TOKEN";
const TOKEN_FILE: &str = "EXTERNAL_API_TOKEN_FILE";

/// Every value that was given.
#[derive(Clone, Debug)]
pub(crate) struct Values {
    flags: DeliveryFlags,
    file: RawDelivery,
}

/// A value, and what it is called where it was given.
struct Given {
    value: String,
    /// `None`: it is the variable.
    name: Option<&'static str>,
}

impl Values {
    /// Those of a command that has no other settings.
    pub(crate) fn load(args: &DeliveryArgs) -> Result<Self, Failure> {
        let common = Common { config: args.config.clone(), ..Common::default() };
        Ok(File::load(&common)?.delivery(&args.flags))
    }

    pub(crate) fn new(flags: &DeliveryFlags, file: RawDelivery) -> Self {
        Self { flags: flags.clone(), file }
    }

    /// The value of a variable, wherever it was given.
    pub(crate) fn get(&self, variable: &str) -> Result<Option<String>, String> {
        Ok(self.find(variable)?.map(|given| given.value))
    }

    /// The settings of the sender.
    pub(crate) fn settings(&self) -> Result<Settings, Failure> {
        Settings::read(&|name| self.get(name), &ichido_export::sender_identity())
            .map_err(|error| self.named(Failure::usage_from(error)))
    }

    /// Where batches lie: all that looking needs.
    pub(crate) fn data_dir(&self) -> Result<PathBuf, Failure> {
        settings::data_dir(&|name| self.get(name)).map_err(|error| self.named(Failure::usage_from(error)))
    }

    /// How long receipts are kept.
    pub(crate) fn receipt_retention(&self) -> Result<Duration, Failure> {
        settings::receipt_retention(&|name| self.get(name))
            .map_err(|error| self.named(Failure::usage_from(error)))
    }

    /// The data directory, for a command that only looks: a name that leads nowhere is wrong rather than that of an empty spool. If
    /// none was given, nothing was sent yet.
    pub(crate) fn existing_data_dir(&self) -> Result<PathBuf, Failure> {
        let dir = self.data_dir()?;
        let is_named = self.find(DATA_DIR).map_or(true, |given| given.is_some());
        match dir.metadata() {
            Ok(found) if found.is_dir() => Ok(dir),
            Ok(_) => Err(self.wrong_dir(&dir, "is not a directory")),
            Err(error) if error.kind() == ErrorKind::NotFound && !is_named => Ok(dir),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(self.wrong_dir(&dir, "does not exist")),
            Err(error) => Err(self.wrong_dir(&dir, &format!("cannot be looked at: {error}"))),
        }
    }

    fn wrong_dir(&self, dir: &Path, why: &str) -> Failure {
        Failure::usage(format!("{} {} {why}", self.reword(DATA_DIR), dir.display()))
    }

    /// Whether URLs may be plain HTTP on loopback, which holds for every outgoing one.
    pub(crate) fn allow_http_loopback(&self) -> Result<bool, Failure> {
        settings::allow_http_loopback(&|name| self.get(name))
            .map_err(|error| self.named(Failure::usage_from(error)))
    }

    /// Whether it was said where batches go.
    pub(crate) fn has_endpoint(&self) -> bool {
        self.find(ENDPOINT).map_or(true, |given| given.is_some())
    }

    /// The same failure, with the names that were written.
    pub(crate) fn named(&self, failure: Failure) -> Failure {
        failure.map_message(|message| self.reword(message))
    }

    /// A value that is set to nothing is not set.
    fn find(&self, variable: &str) -> Result<Option<Given>, String> {
        let flag = match variable {
            ENDPOINT => self.flags.endpoint.clone().zip(Some("--endpoint")),
            DATA_DIR => self.flags.data_dir.clone().zip(Some("--data-dir")),
            _ => None,
        };
        if let Some((value, name)) = flag {
            return Ok(Some(Given { value, name: Some(name) }));
        }
        if let Some(value) = set(variable)? {
            return Ok(Some(Given { value, name: None }));
        }
        // A token of the environment wins over a file that the file names.
        if variable == TOKEN_FILE && set(TOKEN)?.is_some() {
            return Ok(None);
        }
        Ok(self.file.get(variable).map(|(name, value)| Given { value, name: Some(name) }))
    }

    fn reword(&self, message: &str) -> String {
        let is_part = |part: char| part.is_ascii_uppercase() || part == '_';
        let (mut told, mut rest) = (String::with_capacity(message.len()), message);
        while let Some(at) = rest.find(is_part) {
            let (before, word) = rest.split_at(at);
            let (word, after) = word.split_at(word.find(|part| !is_part(part)).unwrap_or(word.len()));
            let name = self.find(word).ok().flatten().and_then(|given| given.name);
            told.push_str(before);
            told.push_str(name.unwrap_or(word));
            rest = after;
        }
        told + rest
    }
}

/// What the environment says.
fn set(variable: &str) -> Result<Option<String>, String> {
    Ok(super::env(variable)?.filter(|value| !value.trim().is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(flags: &DeliveryFlags, text: &str) -> Values {
        Values::new(flags, toml::from_str(text).unwrap())
    }

    #[test]
    fn a_complaint_names_what_was_written() {
        let line = "MAX_RETRIES is 50; it must be between 0 and 20";
        let file = values(&DeliveryFlags::default(), "max_retries = 50");
        assert_eq!(file.reword(line), "delivery.max_retries is 50; it must be between 0 and 20");
        assert_eq!(values(&DeliveryFlags::default(), "").reword(line), line);
        let flag = DeliveryFlags { endpoint: Some("http://h".to_owned()), ..DeliveryFlags::default() };
        let both = values(&flag, "endpoint = \"http://h\"\ntoken_file = \"t\"");
        assert_eq!(both.reword("EXTERNAL_API_ENDPOINT is not a URL"), "--endpoint is not a URL");
        assert_eq!(
            both.reword("the file in EXTERNAL_API_TOKEN_FILE is empty"),
            "the file in delivery.token_file is empty"
        );
        assert_eq!(
            both.reword("EXTERNAL_API_TOKEN, あ, NOBODY_KNOWS"),
            "EXTERNAL_API_TOKEN, あ, NOBODY_KNOWS"
        );
    }
}
