//! `[export.dify]`: where usage is read, how it is summed, and what the receiver does with it.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;

use ichido_delivery::cron::Cron;
use ichido_delivery::endpoint::Endpoint;
use ichido_usage::named_enum::UnknownName;
use ichido_usage::{Mode, NameRules, Period, Profile, Scheme, Zone};
use schemars::JsonSchema;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use url::Url;

use crate::Calendar;
use ichido_settings::{Invalid, Secret};

/// `[export]` as it was written.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawExport {
    /// Dify as a source.
    pub dify: RawDify,
}

/// `[export.dify]` as it was written.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawDify {
    /// Dify's database, without a password: `postgres://reader@db/dify`.
    #[schemars(extend("x-url" = true))]
    database: Option<String>,
    /// Dify's database with its password, instead of `database`.
    #[schemars(extend("x-env" = "DIFY_DATABASE_URL", "x-env-only" = true))]
    database_url: Option<Secret>,
    /// A file that contains the URL of the database.
    #[schemars(extend("x-env" = "DIFY_DATABASE_URL_FILE", "x-env-only" = true))]
    database_url_file: Option<PathBuf>,
    /// The password of the database.
    #[schemars(extend("x-env" = "DIFY_DATABASE_PASSWORD", "x-env-only" = true))]
    database_password: Option<Secret>,
    /// A file that contains the password of the database.
    #[schemars(extend("x-env" = "DIFY_DATABASE_PASSWORD_FILE", "x-env-only" = true))]
    database_password_file: Option<PathBuf>,
    /// Dify's console, instead of its database: `https://dify.example`.
    #[schemars(extend("x-env" = "DIFY_CONSOLE_URL", "x-url" = true))]
    console: Option<String>,
    /// The console's admin key. It needs `workspace`.
    #[schemars(extend("x-env" = "DIFY_ADMIN_KEY", "x-env-only" = true))]
    admin_key: Option<Secret>,
    /// A file that contains the admin key.
    #[schemars(extend("x-env" = "DIFY_ADMIN_KEY_FILE", "x-env-only" = true))]
    admin_key_file: Option<PathBuf>,
    /// Without an admin key: the account that logs in to the console.
    #[schemars(extend("x-env" = "DIFY_EMAIL", "x-env-only" = true))]
    email: Option<String>,
    /// The password of that account.
    #[schemars(extend("x-env" = "DIFY_PASSWORD", "x-env-only" = true))]
    password: Option<Secret>,
    /// A file that contains the password of that account.
    #[schemars(extend("x-env" = "DIFY_PASSWORD_FILE", "x-env-only" = true))]
    password_file: Option<PathBuf>,
    /// Certificate authorities to trust for the console, in addition to the system's.
    #[schemars(extend("x-env" = "DIFY_CA_FILE", "x-env-only" = true))]
    ca_file: Option<PathBuf>,
    /// Only this workspace (Dify's tenant). Workspaces are never mixed.
    workspace: String,
    /// The console's login depends on the version.
    dify_version: String,
    /// The time zone whose days are summed.
    zone: String,
    /// What is summed into one record.
    #[schemars(extend("enum" = ["per_model", "per_user", "per_app", "workspace", "all"]))]
    mode: String,
    /// How long a record's period is.
    #[schemars(extend("enum" = ["daily", "weekly", "monthly"]))]
    period: String,
    /// How ids are computed.
    #[schemars(extend("enum" = ["sorted", "fixed-order", "v2"]))]
    scheme: String,
    /// What the receiver does with a record that it already has.
    #[schemars(extend("enum" = ["first_wins", "upsert_by_event_id", "upsert_by_model_day"]))]
    profile: String,
    /// Whether usage of apps that are being tried out is included.
    include_debugger: bool,
    /// A day counts as over this long after its end.
    #[schemars(range(min = 0, max = 20_160))]
    settle_minutes: u32,
    /// Closed days that each run reads again.
    #[schemars(range(min = 0, max = 366))]
    overlap_days: u32,
    /// How far back to look for late changes, in days.
    #[schemars(range(min = 0, max = 3_660))]
    late_days: u32,
    /// Requests to the console per second.
    #[schemars(range(min = 1, max = 1_000))]
    rate_per_second: u32,
    /// When `ichido run` exports, in the zone: `30 2 * * *`. Empty: never.
    cron: String,
    /// Further provider names to normalise; a trailing `*` matches any rest.
    providers: BTreeMap<String, String>,
    /// Further model names to normalise.
    models: BTreeMap<String, String>,
}

impl Default for RawDify {
    fn default() -> Self {
        Self {
            database: None,
            database_url: None,
            database_url_file: None,
            database_password: None,
            database_password_file: None,
            console: None,
            admin_key: None,
            admin_key_file: None,
            email: None,
            password: None,
            password_file: None,
            ca_file: None,
            workspace: String::new(),
            dify_version: "1.16.1".to_owned(),
            zone: "UTC".to_owned(),
            mode: Mode::default().to_string(),
            period: Period::default().to_string(),
            scheme: Scheme::default().to_string(),
            profile: Profile::default().to_string(),
            include_debugger: true,
            settle_minutes: 60,
            overlap_days: 2,
            late_days: 31,
            rate_per_second: 5,
            cron: String::new(),
            providers: BTreeMap::new(),
            models: BTreeMap::new(),
        }
    }
}

/// Checked settings of an export.
#[derive(Debug)]
pub struct Dify {
    /// Where usage is read.
    pub from: Option<From>,
    /// Certificate authorities to trust in addition to the system's.
    pub ca_file: Option<PathBuf>,
    /// Only this workspace.
    pub workspace: Option<String>,
    /// Whether usage of apps that are being tried out is included.
    pub include_debugger: bool,
    /// Time zone, period, and when a day is over.
    pub calendar: Calendar,
    /// What is summed into one record.
    pub mode: Mode,
    /// How ids are computed.
    pub scheme: Scheme,
    /// What the receiver does with a record that it already has.
    pub profile: Profile,
    /// Closed days that each run reads again.
    pub overlap_days: u32,
    /// How far back to look for late changes.
    pub late_days: u32,
    /// When `ichido run` exports.
    pub cron: Option<Cron>,
    /// How names are normalised.
    pub names: NameRules,
}

/// Where usage is read.
#[derive(Debug)]
pub enum From {
    /// Dify's database.
    Database(SecretString),
    /// Dify's console.
    Console {
        /// Its URL.
        base: Url,
        /// How to authenticate.
        auth: Auth,
        /// The most requests per second.
        rate_per_second: NonZeroU32,
    },
}

/// How to authenticate to the console.
#[derive(Clone, Debug)]
pub enum Auth {
    /// The admin key.
    AdminKey(SecretString),
    /// An account.
    Login {
        /// Its e-mail address.
        email: String,
        /// Its password.
        password: SecretString,
        /// Whether this version of Dify expects the password in Base64.
        base64: bool,
    },
}

impl Dify {
    /// Checks the section. Where usage is read may be left open: other inputs use the same settings.
    pub fn check(raw: &RawDify, allow_http_loopback: bool) -> Result<Self, Invalid> {
        let zone: Zone = raw
            .zone
            .parse()
            .map_err(|_| wrong("zone", "is not a known time zone; write one like Asia/Tokyo or UTC"))?;
        let period: Period = word("period", &raw.period)?;
        let cron = given(&raw.cron).map(|cron| {
            Cron::parse(&format!("{cron} {zone}"))
                .map_err(|_| wrong("cron", "must look like 30 2 * * *: five fields, in the days of zone"))
        });
        let profile: Profile = word("profile", &raw.profile)?;
        profile
            .period(period)
            .map_err(|error| wrong("period", &format!("does not go with the profile: {error}")))?;
        let workspace = given(&raw.workspace);
        Ok(Self {
            from: from(raw, workspace, allow_http_loopback)?,
            ca_file: raw.ca_file.clone().filter(|file| !file.as_os_str().is_empty()),
            workspace: workspace.map(ToOwned::to_owned),
            include_debugger: raw.include_debugger,
            calendar: Calendar { zone, period, settle_minutes: raw.settle_minutes },
            mode: profile.mode(word("mode", &raw.mode)?),
            scheme: word("scheme", &raw.scheme)?,
            profile,
            overlap_days: raw.overlap_days,
            late_days: raw.late_days,
            cron: cron.transpose()?,
            names: names(raw)?,
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
fn names(raw: &RawDify) -> Result<NameRules, Invalid> {
    fn pairs(map: &BTreeMap<String, String>) -> impl Iterator<Item = (&str, &str)> {
        map.iter().map(|(name, becomes)| (name.as_str(), becomes.as_str()))
    }
    let fail = |section: &str, error| wrong(section, &format!("contains an invalid rule: {error}"));
    NameRules::new(pairs(&raw.providers), []).map_err(|error| fail("providers", error))?;
    NameRules::new(pairs(&raw.providers), pairs(&raw.models)).map_err(|error| fail("models", error))
}

fn from(raw: &RawDify, workspace: Option<&str>, allow_http_loopback: bool) -> Result<Option<From>, Invalid> {
    let database = match secret("database_url", &raw.database_url, &raw.database_url_file)? {
        Some(url) => Some(url),
        None => raw.database.as_deref().map(|url| with_password(raw, url)).transpose()?,
    };
    match (database, raw.console.as_deref().and_then(given)) {
        (Some(_), Some(_)) => Err(wrong(
            "console",
            "is set together with the database; one is enough, and the database is better",
        )),
        (Some(url), None) => Ok(Some(From::Database(url))),
        (None, Some(url)) => {
            let base = Endpoint::parse("export.dify.console", url, allow_http_loopback)?;
            let auth = auth(raw, workspace)?;
            let rate_per_second = NonZeroU32::new(raw.rate_per_second).unwrap_or(NonZeroU32::MIN);
            Ok(Some(From::Console { base: base.url().clone(), auth, rate_per_second }))
        }
        (None, None) => Ok(None),
    }
}

/// A database of the file, with the password of the environment.
fn with_password(raw: &RawDify, url: &str) -> Result<SecretString, Invalid> {
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
    let password = secret("database_password", &raw.database_password, &raw.database_password_file)?;
    if let Some(password) = password {
        parsed
            .set_password(Some(password.expose_secret()))
            .map_err(|()| wrong("database", "has no place for a password"))?;
    }
    Ok(SecretString::from(parsed.to_string()))
}

fn auth(raw: &RawDify, workspace: Option<&str>) -> Result<Auth, Invalid> {
    if let Some(key) = secret("admin_key", &raw.admin_key, &raw.admin_key_file)? {
        if workspace.is_none() {
            return Err(wrong("workspace", "is not set; an admin key needs it"));
        }
        return Ok(Auth::AdminKey(key));
    }
    let email = raw.email.as_deref().and_then(given);
    match (email, secret("password", &raw.password, &raw.password_file)?) {
        (Some(email), Some(password)) => {
            let base64 = takes_base64(&raw.dify_version)?;
            Ok(Auth::Login { email: email.to_owned(), password, base64 })
        }
        _ => Err(wrong(
            "console",
            "needs DIFY_ADMIN_KEY, or DIFY_EMAIL and DIFY_PASSWORD (or DIFY_PASSWORD_FILE)",
        )),
    }
}

/// Whether this version of Dify wants passwords as Base64.
fn takes_base64(version: &str) -> Result<bool, Invalid> {
    let parts: Option<Vec<u64>> = version.trim().split('.').map(|part| part.parse().ok()).collect();
    match parts.as_deref() {
        Some([major, minor, patch]) => Ok((*major, *minor, *patch) >= (1, 11, 2)),
        _ => Err(wrong("dify_version", "must look like 1.16.1")),
    }
}

/// A secret, or the content of the file that holds it.
fn secret(
    name: &str,
    value: &Option<Secret>,
    file: &Option<PathBuf>,
) -> Result<Option<SecretString>, Invalid> {
    let file = file.as_deref().filter(|file| !file.as_os_str().is_empty());
    match (value, file) {
        (Some(_), Some(_)) => Err(wrong(name, &format!("and {name}_file are both set; one is enough"))),
        (Some(value), None) => Ok(Some(value.clone().into_inner())),
        (None, Some(path)) => {
            let name = format!("{name}_file");
            let value = std::fs::read_to_string(path)
                .map_err(|error| wrong(&name, &format!("{}: {error}", path.display())))?;
            match value.trim_end_matches(['\n', '\r']) {
                "" => Err(wrong(&name, &format!("{} is empty", path.display()))),
                value => Ok(Some(SecretString::from(value.to_owned()))),
            }
        }
        (None, None) => Ok(None),
    }
}

/// An empty text counts as not set.
fn given(text: &str) -> Option<&str> {
    Some(text.trim()).filter(|text| !text.is_empty())
}

fn word<T: std::str::FromStr<Err = UnknownName>>(name: &str, text: &str) -> Result<T, Invalid> {
    text.parse()
        .map_err(|error: UnknownName| wrong(name, &format!("must be one of {}", error.known.join(", "))))
}

fn wrong(name: &str, why: &str) -> Invalid {
    Invalid::new(format!("export.dify.{name}"), why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<Dify, String> {
        let raw: RawDify = toml::from_str(text).map_err(|error| error.to_string())?;
        Dify::check(&raw, false).map_err(|invalid| invalid.to_string())
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
