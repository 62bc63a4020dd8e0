//! Reloads the settings of a process while it serves: rules, the upstream, secrets and certificates.
//!
//! New settings are read and checked as a whole before anything takes effect. If one of them is invalid, all previous ones
//! stay in force. Settings that only a start can change (addresses, the ledger, directories) are named and left alone.

use std::path::PathBuf;
use std::sync::Arc;

use ichido_settings::Flag;
use metrics::counter;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::settings::Settings;
use ichido_admin::audit_log::{Action, Actor, AuditLog, Outcome};
use ichido_core::error_chain;
use ichido_gateway::settings::NEEDS_RESTART;
use ichido_serve::Failure;
use ichido_serve::reload::{Event, Trigger, Triggers};
use ichido_serve::tls::Certificate;

/// Settings that name files whose content is reloaded.
const RELOADED_FILES: [&str; 6] = [
    "gateway.tls_cert_file",
    "gateway.tls_key_file",
    "gateway.jwt_key_file",
    "gateway.upstream_ca_file",
    "meter.tls_cert_file",
    "meter.tls_key_file",
];

/// What a reload replaces.
#[derive(Default)]
pub(crate) struct Reloadable {
    pub(crate) gateway: Option<ichido_gateway::Reloader>,
    /// Whether `--optional-key` was given.
    pub(crate) optional_key: bool,
    /// The certificate of the meter.
    pub(crate) meter: Option<Certificate>,
}

/// How settings were read when the process started.
pub(crate) struct Started {
    pub(crate) settings: Arc<Settings>,
    pub(crate) flags: Vec<Flag>,
    /// The sections that `ichido run` starts components for; none for `ichido gateway`.
    pub(crate) components: &'static [&'static str],
}

/// The result of a reload.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) trigger: Trigger,
    /// What changed, or why nothing did.
    pub(crate) result: Result<Changes, String>,
}

/// Settings with other values than before.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub(crate) applied: Vec<String>,
    /// They differ from the values that the process started with.
    pub(crate) needs_restart: Vec<String>,
}

/// Starts to wait for reloads, until `stop`. Each one is logged and audited, whatever its result.
pub(crate) fn start(
    mut triggers: Triggers,
    started: Started,
    parts: Reloadable,
    stop: CancellationToken,
) -> Result<JoinHandle<()>, Failure> {
    let audit = started.settings.audit()?;
    for result in ["applied", "refused"] {
        counter!("ichido_reloads_total", "result" => result).increment(0);
    }
    triggers.watch(started.settings.files(&RELOADED_FILES));
    Ok(tokio::spawn(async move {
        let mut in_force = started.settings.clone();
        loop {
            let event = tokio::select! {
                () = stop.cancelled() => return,
                event = triggers.next() => event,
            };
            let trigger = match event {
                Event::Reload(trigger) => trigger,
                Event::TerminalClosed => return stop.cancel(),
            };
            // Reading files and certificate authorities blocks.
            let result = tokio::task::block_in_place(|| {
                // A process that was started with a file must not continue with defaults because the file is gone.
                let settings = Settings::load(started.settings.file.as_deref(), &started.flags)?;
                // A file that new settings name and that is still missing may follow.
                triggers.watch([&*in_force, &settings].iter().flat_map(|of| of.files(&RELOADED_FILES)));
                let changes = apply(&settings, &started, &in_force, &parts)?;
                triggers.watch(settings.files(&RELOADED_FILES));
                in_force = Arc::new(settings);
                Ok(changes)
            });
            let result = result.map_err(|failure: Failure| failure.to_string());
            let report = Report { trigger, result };
            log(&report);
            tokio::task::block_in_place(|| record(&audit, &report));
        }
    }))
}

/// A reload that cannot be audited has happened all the same: new secrets must not wait for a disk.
fn record(audit: &AuditLog, report: &Report) {
    let result = if report.result.is_ok() { "applied" } else { "refused" };
    let recorded = audit.record(&Actor::process(), &Action::named("reload"), Outcome::of(result));
    if let Err(error) = recorded {
        tracing::error!(error = error_chain(&error), "reload not recorded in the audit log");
    }
}

/// Counts and logs a reload.
fn log(report: &Report) {
    let files = match &report.trigger {
        Trigger::Signal => None,
        Trigger::Files(files) => Some(names(files)),
    };
    match &report.result {
        Ok(Changes { applied, needs_restart }) => {
            counter!("ichido_reloads_total", "result" => "applied").increment(1);
            tracing::info!(files, settings = applied.join(", "), "settings reloaded");
            if !needs_restart.is_empty() {
                tracing::warn!(settings = needs_restart.join(", "), "changed settings need a restart");
            }
        }
        Err(error) => {
            counter!("ichido_reloads_total", "result" => "refused").increment(1);
            tracing::error!(files, error, "settings not reloaded; the previous settings stay in force");
        }
    }
}

fn names(files: &[PathBuf]) -> String {
    files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// Checks what a reload does not change as well, so that settings that were accepted also work at the next start.
fn check_rest(settings: &Settings, started: &Started) -> Result<(), Failure> {
    settings.admin()?;
    settings.anomalies()?;
    for section in started.components.iter().filter(|section| settings.has(section)) {
        match *section {
            "meter" => drop(settings.meter()?),
            "delivery" => drop((settings.delivery()?, settings.notices()?)),
            "export.dify" => drop(settings.export()?),
            _ => {}
        }
    }
    Ok(())
}

/// Checks everything, then puts it into effect.
fn apply(
    settings: &Settings,
    started: &Started,
    in_force: &Settings,
    parts: &Reloadable,
) -> Result<Changes, Failure> {
    let gateway = match &parts.gateway {
        Some(gateway) => Some((gateway, gateway.prepare(settings.gateway(parts.optional_key)?)?)),
        None => None,
    };
    check_rest(settings, started)?;
    let meter = match &parts.meter {
        Some(certificate) => settings.meter()?.tls.map(|tls| (certificate, tls)),
        None => None,
    };
    let mut needs_restart: Vec<String> =
        gateway.iter().flat_map(|(_, prepared)| prepared.needs_restart.clone()).collect();
    let is_new = |section: &&str| settings.has(section) && !started.settings.has(section);
    needs_restart.extend(
        started.components.iter().filter(|section| is_new(section)).map(|section| format!("[{section}]")),
    );
    // Only the certificate of a listener that uses TLS can be replaced.
    let is_reloadable = |name: &str| match name.starts_with("meter.tls_") {
        true => meter.is_some(),
        false => name.starts_with("gateway.") && parts.gateway.is_some() && !NEEDS_RESTART.contains(&name),
    };
    for name in settings.changes(&started.settings) {
        if started.reads(&name) && !is_reloadable(&name) && !needs_restart.contains(&name) {
            needs_restart.push(name);
        }
    }
    let mut applied = settings.changes(in_force);
    applied.retain(|name| is_reloadable(name) && started.reads(name) && !needs_restart.contains(name));
    if let Some((gateway, prepared)) = gateway {
        gateway.apply(prepared);
    }
    if let Some((certificate, tls)) = meter {
        certificate.replace(&tls);
    }
    Ok(Changes { applied, needs_restart })
}

impl Started {
    /// Whether this process uses a setting.
    fn reads(&self, setting: &str) -> bool {
        let is_of =
            |component: &&str| setting.strip_prefix(*component).is_some_and(|rest| rest.starts_with('.'));
        let is_of_another = ["meter", "delivery", "export"].iter().any(is_of);
        !is_of_another || self.components.iter().any(is_of)
    }
}
