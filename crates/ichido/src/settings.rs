//! The settings of a process: `ichido.toml`, then the environment, then flags.
//!
//! Each crate defines and checks its own section. Here they are put together, and every error gets the origin of the value.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use ichido_admin::audit_log::AuditLog;
use ichido_admin::operator::ClientSettings;
use ichido_admin::{
    ClaimSettings, ConsoleSettings, Histories, RawAdmin, RawClaims, RawConsole, Settings as Admin,
};
use ichido_delivery::settings::{self as delivery, Identity};
use ichido_delivery::{notice, settings};
use ichido_export::settings as export;
use ichido_gateway::settings as gateway;
use ichido_history::RawHistory;
use ichido_history::anomalies::{AnomalySettings, RawAnomalies};
use ichido_meter::settings as meter;
use ichido_serve::ledger::Settings as Ledger;
use ichido_serve::{Failure, RawLedger};
use ichido_settings::{Effective, Flag, Invalid, Sources};
use ichido_telemetry::RawTelemetry;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Everything that `ichido.toml` may contain.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct RawFile {
    ledger: RawLedger,
    admin: RawAdmin,
    claims: RawClaims,
    console: RawConsole,
    gateway: gateway::Raw,
    delivery: delivery::Raw,
    meter: meter::Raw,
    export: export::RawExport,
    history: RawHistory,
    anomalies: RawAnomalies,
    telemetry: RawTelemetry,
}

/// The settings of a process. Sections are checked when they are used.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) file: Option<PathBuf>,
    pub(crate) ledger: Ledger,
    /// The settings of the claim API.
    pub(crate) claims: ClaimSettings,
    /// The settings of the console.
    pub(crate) console: ConsoleSettings,
    sources: Sources,
}

/// The JSON Schema of `ichido.toml`.
pub(crate) fn schema() -> Value {
    ichido_settings::schema::<RawFile>()
}

impl Settings {
    /// Reads the file, the environment and flags, and checks what every command needs.
    pub(crate) fn load(config: Option<&Path>, flags: &[Flag]) -> Result<Self, Failure> {
        let file = settings_file(config)?;
        let sources = Sources::new(&schema(), file.as_deref(), |name| std::env::var_os(name), flags)?;
        Self::read(file, sources).map_err(Failure::from)
    }

    fn read(file: Option<PathBuf>, sources: Sources) -> Result<Self, Invalid> {
        sources.check_file::<RawFile>()?;
        let ledger = sources.section::<RawLedger>("ledger")?;
        let claims = sources.section::<RawClaims>("claims")?;
        let console = sources.section::<RawConsole>("console")?;
        Ok(Self {
            file,
            ledger: ledger.check().map_err(|invalid| sources.explain(&invalid))?,
            claims: claims.check().map_err(|invalid| sources.explain(&invalid))?,
            console: console.check().map_err(|invalid| sources.explain(&invalid))?,
            sources,
        })
    }

    /// Whether the file has this section.
    pub(crate) fn has(&self, section: &str) -> bool {
        self.sources.has_section(section)
    }

    /// Whether anything sets this setting.
    pub(crate) fn is_set(&self, setting: &str) -> bool {
        self.sources.is_set(setting)
    }

    /// Every setting with its value and origin.
    pub(crate) fn effective(&self) -> Vec<Effective> {
        self.sources.effective()
    }

    /// The settings whose values differ from those in `other`.
    pub(crate) fn changes(&self, other: &Self) -> Vec<String> {
        self.sources.changes(&other.sources)
    }

    /// The settings file, and the files that these settings name.
    pub(crate) fn files(&self, settings: &[&str]) -> Vec<PathBuf> {
        let named = self.effective().into_iter().filter(|one| settings.contains(&one.path.as_str()));
        let named = named.filter_map(|one| Some(PathBuf::from(one.value?.as_str()?)));
        self.file.iter().cloned().chain(named.filter(|file| !file.as_os_str().is_empty())).collect()
    }

    /// The failure for a setting that cannot be used, with the origin of its value.
    pub(crate) fn failure(&self, invalid: &Invalid) -> Failure {
        self.sources.explain(invalid).into()
    }

    /// The settings of the gateway. `optional_key`: requests without a key pass, whatever the routes say.
    pub(crate) fn gateway(&self, optional_key: bool) -> Result<gateway::Settings, Failure> {
        self.check("gateway", |raw| gateway::Settings::check(raw, optional_key))
    }

    /// The settings of the history. `None` if nothing is to be recorded.
    pub(crate) fn history(&self) -> Result<Option<ichido_history::Settings>, Failure> {
        let (instance, clock) = (hostname(), self.ledger.handle().clock);
        self.check("history", |raw: RawHistory| raw.check(instance, clock))
    }

    /// The histories to read: that of this machine, and those of other instances.
    pub(crate) fn histories(&self) -> Result<Histories, Failure> {
        Ok(Histories::new(self.history_dirs()?, self.anomalies()?))
    }

    /// The directories of these histories.
    pub(crate) fn history_dirs(&self) -> Result<Vec<PathBuf>, Failure> {
        self.history()?;
        Ok(self.sources.section::<RawHistory>("history")?.readable())
    }

    /// How anomalies are found in the history.
    pub(crate) fn anomalies(&self) -> Result<AnomalySettings, Failure> {
        self.check("anomalies", RawAnomalies::check)
    }

    /// Where traces and metrics are sent. `None` for nowhere.
    pub(crate) fn telemetry(&self) -> Result<Option<ichido_telemetry::Settings>, Failure> {
        self.check("telemetry", |raw: RawTelemetry| raw.check(hostname()))
    }

    /// The settings of the meter.
    pub(crate) fn meter(&self) -> Result<meter::Settings, Failure> {
        self.check("meter", meter::Settings::check)
    }

    /// What a command needs that reads the meter's database itself.
    pub(crate) fn meter_reading(&self) -> Result<meter::Reading, Failure> {
        self.check("meter", meter::Reading::check)
    }

    /// The settings of the export.
    pub(crate) fn export(&self) -> Result<export::Dify, Failure> {
        let allow_http_loopback = self.raw_delivery()?.allow_http_loopback;
        self.check("export.dify", |raw| export::Dify::check(&raw, allow_http_loopback))
    }

    /// The settings of the sender, as its commands present it to the receiver.
    pub(crate) fn delivery(&self) -> Result<settings::Settings, Failure> {
        let identity: Identity = ichido_export::sender_identity();
        self.raw_delivery()?.check(&identity).map_err(|invalid| self.failure(&invalid))
    }

    /// The channels of notices.
    pub(crate) fn notices(&self) -> Result<notice::Settings, Failure> {
        notice::Settings::check(&self.raw_delivery()?).map_err(|invalid| self.failure(&invalid))
    }

    /// The section of the sender. A token in the environment wins over a token file in the settings file.
    pub(crate) fn raw_delivery(&self) -> Result<delivery::Raw, Failure> {
        let mut raw: delivery::Raw = self.sources.section("delivery")?;
        let from_file =
            matches!(self.sources.origin("delivery.token_file"), ichido_settings::Origin::File(_));
        if raw.token.is_some() && from_file {
            raw.token_file = None;
        }
        Ok(raw)
    }

    /// The data directory, for a command that only reads. A directory that was named and does not exist is an error; without a
    /// name, it means that nothing was sent yet.
    pub(crate) fn existing_data_dir(&self) -> Result<PathBuf, Failure> {
        let dir = self.raw_delivery()?.data_dir();
        let wrong = |why: String| {
            let invalid = Invalid::new("delivery.data_dir", format!("{} {why}", dir.display()));
            Err(self.failure(&invalid))
        };
        match dir.metadata() {
            Ok(found) if found.is_dir() => Ok(dir),
            Ok(_) => wrong("is not a directory".to_owned()),
            Err(error) if error.kind() == ErrorKind::NotFound && !self.is_set("delivery.data_dir") => Ok(dir),
            Err(error) if error.kind() == ErrorKind::NotFound => wrong("does not exist".to_owned()),
            Err(error) => wrong(format!("cannot be read: {error}")),
        }
    }

    /// The address of the admin port, or nothing if it is off.
    pub(crate) fn admin_listen(&self, default: &str) -> Result<Option<String>, Failure> {
        let raw: RawAdmin = self.sources.section("admin")?;
        let listen = raw.listen.unwrap_or_else(|| default.to_owned());
        Ok(Some(listen).filter(|listen| listen != "off"))
    }

    /// The settings of the admin port, except for its address.
    pub(crate) fn admin(&self) -> Result<Admin, Failure> {
        self.check("admin", RawAdmin::check)
    }

    /// How a command uses the admin port of another process.
    pub(crate) fn admin_client(&self) -> Result<ClientSettings, Failure> {
        Ok(self.sources.section::<RawAdmin>("admin")?.client())
    }

    /// The audit log.
    pub(crate) fn audit(&self) -> Result<AuditLog, Failure> {
        Ok(self.sources.section::<RawAdmin>("admin")?.audit())
    }

    fn check<R: DeserializeOwned + Default, T>(
        &self,
        section: &str,
        check: impl FnOnce(R) -> Result<T, Invalid>,
    ) -> Result<T, Failure> {
        check(self.sources.section(section)?).map_err(|invalid| self.failure(&invalid))
    }
}

fn settings_file(given: Option<&Path>) -> Result<Option<PathBuf>, Failure> {
    let default = Path::new("ichido.toml");
    match given {
        Some(path) if path.is_file() => Ok(Some(path.to_owned())),
        Some(path) => {
            let why = if path.exists() { "is not a regular file" } else { "no such file" };
            Err(Failure::usage(format!("settings file {}: {why}", path.display())))
        }
        None => Ok(default.is_file().then(|| default.to_owned())),
    }
}

/// The host name, which identifies this instance.
fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests;
