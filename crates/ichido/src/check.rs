//! `ichido check`: checks the settings and the connections.

mod notices;

use std::io::Write;

use ichido_delivery::store::{BatchDir, Layout};
use ichido_http::Route;
use ichido_ledger::{Capabilities, Error, Kind, OpenOptions, open_backend};
use serde::Serialize;

use crate::args::CheckArgs;
use crate::components::admin_port;
use crate::components::ledger::holder;
use crate::delivery::Connections;
use crate::output;
use crate::settings::Settings;
use ichido_admin::operator::Operator;
use ichido_core::error_chain;
use ichido_export::Export;
use ichido_gateway::settings::unchecked;
use ichido_serve::{Failure, try_connect, visible_lines};

/// Settings of the admin port that can be wrong without a section in the file.
const ADMIN_SETTINGS: [&str; 7] = [
    "admin.listen",
    "admin.token",
    "admin.read_token",
    "admin.tokens",
    "admin.tls_cert_file",
    "admin.tls_key_file",
    "admin.trusted_user_header",
];

#[derive(Debug, Serialize)]
struct Report {
    checks: Vec<Check>,
    #[serde(skip_serializing_if = "Option::is_none")]
    capabilities: Option<Capabilities>,
}

#[derive(Debug, Serialize)]
struct Check {
    what: &'static str,
    verdict: Verdict,
    detail: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    Warning,
    Failed,
}

pub(crate) async fn run(args: &CheckArgs) -> Result<(), Failure> {
    let settings = Settings::load(args.common.config.as_deref(), &args.common.flags())?;
    let mut report = check_ledger(&settings).await;
    if settings.has("admin") || ADMIN_SETTINGS.iter().any(|name| settings.is_set(name)) {
        check_admin(&settings, &mut report);
    }
    if settings.has("gateway") || settings.is_set("gateway.upstream") {
        check_gateway(&settings, &mut report).await;
    }
    if settings.has("meter") {
        check_meter(&settings, &mut report).await;
    }
    if (settings.has("delivery") || settings.is_set("delivery.endpoint"))
        && let Err(failure) = check_delivery(&settings, &mut report).await
    {
        report.add("delivery", Verdict::Failed, failure.to_string());
    }
    notices::check(&settings, args.notify, &mut report).await;
    if settings.has("export.dify") {
        check_export(&settings, &mut report).await;
    }
    check_telemetry(&settings, &mut report).await;
    if args.common.json {
        output::json(&report)?;
    } else {
        print(&report);
    }
    let failed = report.checks.iter().filter(|check| check.verdict == Verdict::Failed).count();
    if failed > 0 {
        Err(Failure::internal(format!("{failed} of {} checks failed", report.checks.len())))
    } else {
        Ok(())
    }
}

/// A collector that cannot be reached fails no request.
async fn check_telemetry(settings: &Settings, report: &mut Report) {
    let telemetry = match settings.telemetry() {
        Ok(None) => return,
        Ok(Some(telemetry)) => telemetry,
        Err(failure) => return report.add("telemetry", Verdict::Failed, failure.to_string()),
    };
    if let Some(emf) = &telemetry.emf {
        let detail = format!("CloudWatch lines on standard output, namespace {}", emf.namespace);
        report.add("telemetry", Verdict::Ok, detail);
    }
    let Some(otlp) = telemetry.otlp else { return };
    let (host, port) = (otlp.endpoint.host().unwrap_or_default(), otlp.port());
    match try_connect(&otlp.endpoint.to_string(), host, port).await {
        Ok(()) => report.add("telemetry", Verdict::Ok, format!("{} accepts connections", otlp.endpoint)),
        Err(why) => report.add("telemetry", Verdict::Warning, why),
    }
}

async fn check_ledger(settings: &Settings) -> Report {
    let source = settings.file.as_ref().map_or_else(
        || "no ichido.toml; using defaults, environment and flags".to_owned(),
        |path| format!("{} read", path.display()),
    );
    let mut report = Report { checks: Vec::new(), capabilities: None };
    report.add("settings", Verdict::Ok, source);
    let (local, pause) = (&settings.ledger.fallback, settings.ledger.fallback_pause.as_secs());
    report.add(
        "fallback",
        Verdict::Ok,
        format!("{local} for {pause} s, for the claim API and for routes that enable it"),
    );
    if let Some(dir) = settings.ledger.directory().filter(|dir| !dir.exists()) {
        report.add(
            "ledger",
            Verdict::Warning,
            format!("{} does not exist yet; it will be created", dir.display()),
        );
        return report;
    }
    let handle = settings.ledger.handle();
    let options = OpenOptions { clock: handle.clock.clone(), admin: None };
    let opened = tokio::time::timeout(handle.timeout, open_backend(&settings.ledger.url, &options)).await;
    let backend = match opened {
        Ok(Ok(backend)) => backend,
        Ok(Err(error)) => {
            let (verdict, detail) = check_holder(settings, &error).await;
            report.add("ledger", verdict, detail);
            return report;
        }
        Err(_) => {
            report.add(
                "ledger",
                Verdict::Failed,
                format!("no connection within {} ms", handle.timeout.as_millis()),
            );
            return report;
        }
    };
    report.capabilities = Some(backend.capabilities());
    match tokio::time::timeout(handle.timeout, backend.check()).await {
        Ok(Ok(warnings)) => {
            report.add("ledger", Verdict::Ok, format!("{} responds", backend.capabilities().backend));
            for warning in warnings {
                report.add("ledger", Verdict::Warning, warning);
            }
        }
        Ok(Err(error)) => report.add("ledger", Verdict::Failed, error_chain(&error)),
        Err(_) => report.add(
            "ledger",
            Verdict::Failed,
            format!("no response within {} ms", handle.timeout.as_millis()),
        ),
    }
    if let Err(error) = backend.close().await {
        report.add("ledger", Verdict::Failed, error_chain(&error));
    }
    report
}

/// A ledger that another process holds is fine if that process responds.
async fn check_holder(settings: &Settings, error: &Error) -> (Verdict, String) {
    let line = error_chain(error);
    let Some(dir) = settings.ledger.directory().filter(|_| matches!(error.kind(), Kind::InUse(_))) else {
        return (Verdict::Failed, line);
    };
    let responded = match holder(settings, dir, error) {
        Ok(holder) => holder.stats().await.map(drop).map_err(|refusal| refusal.into_failure("").to_string()),
        Err(failure) => Err(failure.to_string()),
    };
    match responded {
        Ok(()) => (Verdict::Ok, format!("{line}; that process responds")),
        Err(reason) => (Verdict::Failed, reason),
    }
}

/// Checks who may use the admin port, its certificate, and its audit log.
fn check_admin(settings: &Settings, report: &mut Report) {
    match settings.admin() {
        Err(failure) => report.add("admin", Verdict::Failed, failure.to_string()),
        Ok(admin) => {
            match admin_port::address(settings)
                .and_then(|listen| listen.map_or(Ok(()), |listen| admin.check_address(listen)))
            {
                Ok(()) => report.add("admin", Verdict::Ok, admin.describe()),
                Err(failure) => report.add("admin", Verdict::Failed, failure.to_string()),
            }
            if let Err(error) = admin.audit().check() {
                report.add("audit", Verdict::Failed, error_chain(&error));
            }
        }
    }
}

/// Checks the settings of the gateway, and connects to the upstream.
async fn check_gateway(settings: &Settings, report: &mut Report) {
    match settings.gateway(false) {
        Err(failure) => report.add("gateway", Verdict::Failed, failure.to_string()),
        Ok(gateway) => {
            let routes = gateway.rules.routes.iter().map(Route::describe);
            report.add("gateway", Verdict::Ok, routes.collect::<Vec<_>>().join("; "));
            let tenant = &gateway.rules.tenant;
            let caution = tenant.caution().map_or_else(String::new, |caution| format!("; {caution}"));
            report.add("tenant", Verdict::Ok, format!("{}{caution}", tenant.describe()));
            for route in &gateway.rules.routes {
                check_signature(route, report);
            }
            let upstream = &gateway.upstream;
            match try_connect(upstream.authority.as_str(), upstream.authority.host(), upstream.port()).await {
                Ok(()) => report.add(
                    "upstream",
                    Verdict::Ok,
                    format!("{} accepts connections", gateway.upstream.authority),
                ),
                Err(reason) => report.add("upstream", Verdict::Warning, reason),
            }
        }
    }
}

/// Checks the settings of the meter, and its database.
async fn check_meter(settings: &Settings, report: &mut Report) {
    let meter = match settings.meter() {
        Ok(meter) => meter,
        Err(failure) => return report.add("meter", Verdict::Failed, failure.to_string()),
    };
    if let Some(file) = meter.database.file().filter(|file| !file.exists()) {
        let detail = format!("{} does not exist yet; it will be created", file.display());
        return report.add("meter", Verdict::Warning, detail);
    }
    let options = ichido_meter::Options { profile: meter.profile };
    let checked = async {
        let store = ichido_meter::open(meter.database.url(), options).await?;
        let checked = store.check().await;
        store.close().await;
        checked
    };
    let timeout = settings.ledger.timeout;
    match tokio::time::timeout(timeout, checked).await {
        Ok(Ok(())) => {
            report.add(
                "meter",
                Verdict::Ok,
                format!("{} responds, {}", meter.database.location(), meter.profile),
            );
        }
        Ok(Err(error)) => report.add("meter", Verdict::Failed, error_chain(&error)),
        Err(_) => {
            report.add("meter", Verdict::Failed, format!("no response within {} ms", timeout.as_millis()))
        }
    }
}

/// Checks the settings of the sender, counts undelivered batches, and connects to the receiver. Sends nothing.
async fn check_delivery(process: &Settings, report: &mut Report) -> Result<(), Failure> {
    let settings = process.delivery()?;
    Connections::open(process, &settings)?;
    let endpoint = &settings.transport.endpoint;
    let (batch_size, origin) = (settings.batch_size, endpoint.origin());
    let layout = Layout::new(&settings.data_dir);
    let (waiting, failed) = (
        layout.count(BatchDir::Spool).map_err(Failure::usage_from)?,
        layout.count(BatchDir::Failed).map_err(Failure::usage_from)?,
    );
    let conflict = settings.conflict.describe();
    report.add(
        "delivery",
        Verdict::Ok,
        format!("to {origin}, up to {batch_size} records per batch; {conflict}"),
    );
    let detail = format!(
        "{} in the spool, {failed} in failed, in {}",
        output::count(waiting, "batch", "batches"),
        settings.data_dir.display()
    );
    report.add("delivery", if failed == 0 { Verdict::Ok } else { Verdict::Warning }, detail);
    let url = endpoint.url();
    let reached = match url.host_str().zip(url.port_or_known_default()) {
        Some((host, port)) => try_connect(&origin, host, port).await,
        None => Err(format!("{origin} has no host")),
    };
    match reached {
        Ok(()) => report.add("receiver", Verdict::Ok, format!("{origin} accepts connections")),
        Err(reason) => report.add("receiver", Verdict::Warning, reason),
    }
    Ok(())
}

/// Checks the settings of the export, and reads from Dify.
async fn check_export(settings: &Settings, report: &mut Report) {
    let opened = settings
        .export()
        .and_then(|dify| Ok((dify.describe(), Export::new(dify, &settings.raw_delivery()?.data_dir())?)));
    match opened {
        Err(failure) => report.add("export", Verdict::Failed, failure.to_string()),
        Ok((description, mut export)) => {
            report.add("export", Verdict::Ok, description);
            match export.check().await {
                Ok(description) => report.add("dify", Verdict::Ok, description),
                Err(failure) => report.add("dify", Verdict::Failed, failure.to_string()),
            }
        }
    }
}

/// Reports whether the gateway verifies the signatures of a route.
fn check_signature(route: &Route, report: &mut Report) {
    if let Some(signature) = &route.signature {
        let detail = format!("{}: {} is verified", route.describe(), signature.header());
        report.add("signature", Verdict::Ok, detail);
    }
    if let Some(warning) = unchecked(route) {
        report.add("signature", Verdict::Warning, warning);
    }
}

impl Report {
    fn add(&mut self, what: &'static str, verdict: Verdict, detail: String) {
        self.checks.push(Check { what, verdict, detail });
    }
}

fn print(report: &Report) {
    for check in &report.checks {
        let verdict = match check.verdict {
            Verdict::Ok => "ok",
            Verdict::Warning => "warning",
            Verdict::Failed => "FAILED",
        };
        let (verdict, detail) = (output::word(verdict, 8), visible_lines(&check.detail));
        output::print(|out| writeln!(out, "{verdict} {:<9} {detail}", check.what));
    }
    if let Some(capabilities) = &report.capabilities {
        outln!("         {capabilities}");
    }
}
