//! `[export.dify]`: where usage is read, how it is summed, and what the receiver does with it.
//!
//! ```toml
//! [export.dify]                            # every value shown is the default
//! database = "postgres://dify@db/dify"     # no default; a password comes from DIFY_DATABASE_PASSWORD
//! console = "https://dify.example"         # instead of a database; no default
//! workspace = ""                           # only this workspace; the console's admin key needs it
//! dify_version = "1.16.1"                  # the console's login depends on it
//! zone = "UTC"                             # whose days
//! mode = "per_model"
//! period = "daily"
//! scheme = "sorted"
//! profile = "first_wins"
//! include_debugger = true
//! settle_minutes = 60                      # a day is over so long after its end
//! overlap_days = 2                         # closed days that each run reads again
//! late_days = 31                           # days in which late changes are looked for
//! rate_per_second = 5                      # requests to the console
//! cron = ""                                # when ichido run exports: "30 2 * * *", in the zone
//!
//! [export.dify.providers]                  # names that are made alike, beyond our own
//! [export.dify.models]
//! ```
//!
//! Secrets come from the environment, or from files that it names: `DIFY_DATABASE_URL`, `DIFY_DATABASE_PASSWORD`,
//! `DIFY_ADMIN_KEY`, `DIFY_PASSWORD`, each also with `_FILE`.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use ichido_delivery::cron::Cron;
use ichido_usage::{Mode, NameRules, Period, Profile, Scheme, Zone};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use url::Url;

use crate::Calendar;
use ichido_serve::Failure;
use ichido_settings::{text, within};

/// The section as it stands in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawExports {
    pub dify: Option<RawDify>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawDify {
    database: Option<String>,
    console: Option<String>,
    workspace: Option<String>,
    dify_version: Option<String>,
    zone: Option<String>,
    mode: Option<String>,
    period: Option<String>,
    scheme: Option<String>,
    profile: Option<String>,
    include_debugger: Option<bool>,
    settle_minutes: Option<u64>,
    overlap_days: Option<u64>,
    late_days: Option<u64>,
    rate_per_second: Option<u64>,
    cron: Option<String>,
    #[serde(default)]
    providers: BTreeMap<String, String>,
    #[serde(default)]
    models: BTreeMap<String, String>,
}

/// What the command line says instead.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    pub mode: Option<String>,
    pub period: Option<String>,
}

/// Checked settings of an export.
#[derive(Debug)]
pub struct Dify {
    pub from: Option<From>,
    pub workspace: Option<String>,
    pub include_debugger: bool,
    pub calendar: Calendar,
    pub mode: Mode,
    pub scheme: Scheme,
    pub profile: Profile,
    pub overlap_days: u32,
    pub late_days: u32,
    pub cron: Option<Cron>,
    pub names: NameRules,
}

/// Where usage is read.
#[derive(Debug)]
pub enum From {
    /// Dify's database.
    Database(SecretString),
    /// Dify's console.
    Console { base: Url, auth: Auth, rate_per_second: NonZeroU32 },
}

/// How the console knows us.
#[derive(Clone, Debug)]
pub enum Auth {
    AdminKey(SecretString),
    Login { email: String, password: SecretString, base64: bool },
}

impl Dify {
    /// Checks the section. Where usage is read may be left open: other inputs have the same settings.
    pub fn check(raw: RawDify, flags: &Flags, allow_http_loopback: bool) -> Result<Self, Failure> {
        let zone: Zone = raw.zone.as_deref().unwrap_or("UTC").parse().map_err(|_| {
            wrong("zone", "names a time zone that is not known; write one like Asia/Tokyo or UTC")
        })?;
        let period: Period = word("period", flags.period.as_deref().or(raw.period.as_deref()))?;
        let number = |name: &str, value: Option<u64>, default, least, most| {
            let value = within(&format!("export.dify.{name}"), value.unwrap_or(default), least, most)?;
            u32::try_from(value).map_err(|_| wrong(name, "is too large"))
        };
        let settle_minutes = number("settle_minutes", raw.settle_minutes, 60, 0, 14 * 24 * 60)?;
        let rate = number("rate_per_second", raw.rate_per_second, 5, 1, 1_000)?;
        let cron = raw.cron.as_deref().filter(|cron| !cron.trim().is_empty());
        let cron = cron
            .map(|cron| {
                Cron::parse(&format!("{cron} {zone}"))
                    .map_err(|_| wrong("cron", "must look like 30 2 * * *: five fields, in the days of zone"))
            })
            .transpose()?;
        let names = names(&raw)?;
        let profile: Profile = word("profile", raw.profile.as_deref())?;
        profile
            .period(period)
            .map_err(|error| wrong("period", &format!("does not go with the profile: {error}")))?;
        let mode: Mode = word("mode", flags.mode.as_deref().or(raw.mode.as_deref()))?;
        let workspace = raw.workspace.clone().filter(|text| !text.trim().is_empty());
        Ok(Self {
            from: from(&raw, workspace.as_deref(), rate, allow_http_loopback)?,
            workspace,
            include_debugger: raw.include_debugger.unwrap_or(true),
            calendar: Calendar { zone, period, settle_minutes },
            mode: profile.mode(mode),
            scheme: word("scheme", raw.scheme.as_deref())?,
            profile,
            overlap_days: number("overlap_days", raw.overlap_days, 2, 0, 366)?,
            late_days: number("late_days", raw.late_days, 31, 0, 3_660)?,
            cron,
            names,
        })
    }

    /// The settings in a few words.
    pub fn describe(&self) -> String {
        let Calendar { zone, period, .. } = &self.calendar;
        let Self { mode, scheme, profile, .. } = self;
        format!("{mode}, {period}, days of {zone}, ids {scheme}, receiver {profile}")
    }

    /// What must not change from one export to the next: with other rules the same usage gets other ids.
    pub fn rules(&self) -> BTreeMap<String, String> {
        [
            ("zone", self.calendar.zone.to_string()),
            ("mode", self.mode.to_string()),
            ("period", self.calendar.period.to_string()),
            ("scheme", self.scheme.to_string()),
            ("profile", self.profile.to_string()),
            ("workspace", self.workspace.clone().unwrap_or_default()),
            ("include_debugger", self.include_debugger.to_string()),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
    }
}

/// The rules for names.
fn names(raw: &RawDify) -> Result<NameRules, Failure> {
    fn pairs(map: &BTreeMap<String, String>) -> impl Iterator<Item = (&str, &str)> {
        map.iter().map(|(name, becomes)| (name.as_str(), becomes.as_str()))
    }
    let fail = |section: &str, error| wrong(section, &format!("has a rule that is none: {error}"));
    NameRules::new(pairs(&raw.providers), []).map_err(|error| fail("providers", error))?;
    NameRules::new(pairs(&raw.providers), pairs(&raw.models)).map_err(|error| fail("models", error))
}

fn from(
    raw: &RawDify,
    workspace: Option<&str>,
    rate: u32,
    allow_http_loopback: bool,
) -> Result<Option<From>, Failure> {
    let database = match secret("DIFY_DATABASE_URL")? {
        Some(url) => Some(url),
        None => raw.database.as_deref().map(with_password).transpose()?,
    };
    let console = match text("DIFY_CONSOLE_URL")?.filter(|url| !url.is_empty()) {
        Some(url) => Some(("DIFY_CONSOLE_URL", url)),
        None => raw.console.clone().map(|url| ("export.dify.console", url)),
    };
    match (database, console) {
        (Some(_), Some(_)) => Err(Failure::usage(
            "export.dify: database and console are both set; one is enough, and the database is better",
        )),
        (Some(url), None) => Ok(Some(From::Database(url))),
        (None, Some((setting, url))) => {
            let base = ichido_delivery::endpoint::Endpoint::parse(setting, &url, allow_http_loopback)
                .map_err(Failure::usage)?;
            let auth = auth(workspace, raw.dify_version.as_deref())?;
            let rate_per_second = NonZeroU32::new(rate).unwrap_or(NonZeroU32::MIN);
            Ok(Some(From::Console { base: base.url().clone(), auth, rate_per_second }))
        }
        (None, None) => Ok(None),
    }
}

/// A database of the file, with the password of the environment.
fn with_password(url: &str) -> Result<SecretString, Failure> {
    let mut parsed = Url::parse(url).map_err(|_| wrong("database", "is not a URL"))?;
    if !matches!(parsed.scheme(), "postgres" | "postgresql") {
        return Err(wrong("database", "must begin with postgres://"));
    }
    if parsed.password().is_some() {
        return Err(wrong(
            "database",
            "must not hold a password; use DIFY_DATABASE_PASSWORD, DIFY_DATABASE_PASSWORD_FILE or DIFY_DATABASE_URL",
        ));
    }
    if let Some(password) = secret("DIFY_DATABASE_PASSWORD")? {
        parsed
            .set_password(Some(password.expose_secret()))
            .map_err(|()| wrong("database", "has no place for a password"))?;
    }
    Ok(SecretString::from(parsed.to_string()))
}

fn auth(workspace: Option<&str>, version: Option<&str>) -> Result<Auth, Failure> {
    if let Some(key) = secret("DIFY_ADMIN_KEY")? {
        if workspace.is_none() {
            return Err(wrong("workspace", "is not set; an admin key needs to be told which one"));
        }
        return Ok(Auth::AdminKey(key));
    }
    let email = text("DIFY_EMAIL")?.filter(|email| !email.is_empty());
    match (email, secret("DIFY_PASSWORD")?) {
        (Some(email), Some(password)) => {
            let base64 = version.map_or(Ok(true), takes_base64)?;
            Ok(Auth::Login { email, password, base64 })
        }
        _ => Err(Failure::usage(
            "export.dify.console needs DIFY_ADMIN_KEY, or DIFY_EMAIL and DIFY_PASSWORD (or DIFY_PASSWORD_FILE)",
        )),
    }
}

/// Whether this version of Dify wants passwords as Base64.
fn takes_base64(version: &str) -> Result<bool, Failure> {
    let parts: Option<Vec<u64>> = version.trim().split('.').map(|part| part.parse().ok()).collect();
    match parts.as_deref() {
        Some([major, minor, patch]) => Ok((*major, *minor, *patch) >= (1, 11, 2)),
        _ => Err(wrong("dify_version", "must look like 1.16.1")),
    }
}

/// A secret of the environment, or of the file that it names.
fn secret(name: &str) -> Result<Option<SecretString>, Failure> {
    let file_name = format!("{name}_FILE");
    let given = text(name)?.filter(|value| !value.is_empty());
    match (given, text(&file_name)?.filter(|path| !path.is_empty())) {
        (Some(_), Some(_)) => {
            Err(Failure::usage(format!("{name} and {file_name} are both set; one is enough")))
        }
        (Some(value), None) => Ok(Some(SecretString::from(value))),
        (None, Some(path)) => {
            let value = std::fs::read_to_string(&path)
                .map_err(|error| Failure::usage(format!("{file_name}: {path}: {error}")))?;
            match value.trim_end_matches(['\n', '\r']) {
                "" => Err(Failure::usage(format!("{file_name}: {path} is empty"))),
                value => Ok(Some(SecretString::from(value.to_owned()))),
            }
        }
        (None, None) => Ok(None),
    }
}

fn word<T>(name: &str, given: Option<&str>) -> Result<T, Failure>
where
    T: Default + std::str::FromStr<Err = ichido_usage::named_enum::UnknownName>,
{
    let Some(given) = given else { return Ok(T::default()) };
    given.parse().map_err(|error: ichido_usage::named_enum::UnknownName| {
        wrong(name, &format!("must be one of {}", error.known.join(", ")))
    })
}

fn wrong(name: &str, why: &str) -> Failure {
    Failure::usage(format!("export.dify.{name} {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Page {
        export: RawExports,
    }

    fn check(text: &str) -> Result<Dify, String> {
        let raw: RawDify = toml::from_str(text).map_err(|error| error.to_string())?;
        Dify::check(raw, &Flags::default(), false).map_err(|failure| failure.to_string())
    }

    #[test]
    fn defaults_are_those_of_the_documentation() {
        let page = include_str!("../../../docs/configuration.md");
        let example = page.split("```toml\n").find(|block| block.starts_with("[export.dify]")).unwrap();
        let mut shown: Page = toml::from_str(example.split("```").next().unwrap()).unwrap();
        let mut shown = shown.export.dify.take().unwrap();
        (shown.database, shown.console) = (None, None);
        let (shown, silent) = (Dify::check(shown, &Flags::default(), false).unwrap(), check("").unwrap());
        assert_eq!(shown.rules(), silent.rules());
        assert_eq!(shown.calendar.settle_minutes, silent.calendar.settle_minutes);
        assert_eq!((shown.overlap_days, shown.late_days), (silent.overlap_days, silent.late_days));
        assert!(shown.cron.is_none() && silent.cron.is_none() && silent.from.is_none());
    }

    #[test]
    fn each_version_of_dify_gets_its_password_as_it_wants_it() {
        for (version, base64) in [("1.9.1", false), ("1.11.1", false), ("1.11.2", true), ("2.0.0", true)] {
            assert_eq!(takes_base64(version).unwrap(), base64, "{version}");
        }
        assert!(takes_base64("latest").unwrap_err().to_string().contains("dify_version"));
    }

    #[test]
    fn a_receiver_by_model_and_day_gets_that_grain_and_no_weeks() {
        let dify = check("profile = \"upsert_by_model_day\"\nmode = \"per_user\"").unwrap();
        assert_eq!(dify.mode, Mode::Workspace);
        let error = check("profile = \"upsert_by_model_day\"\nperiod = \"weekly\"").unwrap_err();
        assert!(error.starts_with("export.dify.period"), "{error}");
    }

    #[test]
    fn a_password_stays_out_of_the_file() {
        let error = check("database = \"postgres://u:hunter2@h/d\"").unwrap_err();
        assert!(error.contains("DIFY_DATABASE_PASSWORD") && !error.contains("hunter2"), "{error}");
        assert!(check("database = \"mysql://h/d\"").unwrap_err().contains("postgres://"));
    }
}
