//! `ichido erase`: erases what is stored about a key, a user or a channel.
//!
//! Files are changed here. The ledger is changed here too, or by the process that holds it.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ichido_admin::audit_log::{Action, Actor, Outcome};
use ichido_admin::erase::{LedgerSource, Mode, Report, Sources, Subject, erase, hash};
use ichido_admin::operator::{Audited, Local, Operator, Refusal};
use ichido_admin::trace::{ID_CHARS_MAX, is_id};
use ichido_serve::Failure;

use super::confirm::confirm;
use super::ledger::{Opened, local, open};
use super::trace::{delivery, ledger_problem, meter};
use crate::args::{EraseArgs, SubjectArgs};
use crate::components::ledger;
use crate::output;
use crate::settings::Settings;

/// What erasing means.
const RISK: &str = "it cannot be restored, and records that wait in the spool are not delivered";
/// Progress is reported after this many records.
const REPORT_EVERY: u64 = 100_000;

pub(super) async fn run(args: &EraseArgs) -> Result<(), Failure> {
    let subject = subject(&args.subject)?;
    if args.reason.as_ref().is_some_and(|reason| reason.contains(subject.text())) {
        return Err(Failure::usage(format!(
            "--reason must not contain the {} that is erased: the audit log keeps it",
            subject.kind()
        )));
    }
    let settings = Settings::load(args.common.config.as_deref(), &args.flags())?;
    if let Some(address) = &args.admin {
        let process = ledger::remote(&settings, address)?;
        return erase_with(&settings, Ok(&process), &subject, args).await;
    }
    let opened = match ledger_problem(&settings) {
        Some(why) => Err(why),
        None => open(&settings).await.map_err(|failure| failure.to_string()),
    };
    match opened {
        Err(why) => erase_with::<Local>(&settings, Err(why), &subject, args).await,
        Ok(Opened::Elsewhere(holder)) => erase_with(&settings, Ok(&*holder), &subject, args).await,
        Ok(Opened::Here(ledger)) => {
            let (operator, audit) = (local(&settings, &ledger)?, settings.audit()?);
            let operator = Audited { operator, audit, actor: Actor::command_line() };
            let result = erase_with(&settings, Ok(&operator), &subject, args).await;
            super::ledger::close(&settings, &ledger, result).await
        }
    }
}

fn subject(args: &SubjectArgs) -> Result<Subject, Failure> {
    let subject = match args {
        SubjectArgs { key: Some(key), .. } => Subject::Key(key.clone()),
        SubjectArgs { user: Some(user), .. } => Subject::User(user.clone()),
        SubjectArgs { channel: Some(channel), .. } => Subject::Channel(channel.clone()),
        // The parser requires one of them.
        SubjectArgs { key: None, user: None, channel: None } => Subject::Key(String::new()),
    };
    match is_id(subject.text()) {
        true => Ok(subject),
        false => {
            Err(Failure::usage(format!("--{} must have 1 to {ID_CHARS_MAX} characters", subject.kind())))
        }
    }
}

/// Shows what there is, asks, erases it, and records that.
async fn erase_with<O: Operator>(
    settings: &Settings,
    ledger: Result<&O, String>,
    subject: &Subject,
    args: &EraseArgs,
) -> Result<(), Failure> {
    let (json, reason) = (args.common.json, args.reason.as_deref().unwrap_or_default());
    let meter = meter(settings).await;
    let sources = Sources {
        delivery: delivery(settings),
        ledger: ledger.map(|operator| LedgerSource {
            operator,
            is_file: settings.ledger.directory().is_some(),
            copies: copies(&settings.ledger.url),
        }),
        histories: settings.history_dirs()?,
        meter: meter.clone(),
        files: files(settings)?,
    };
    let result = async {
        if !args.yes {
            let report = search(&sources, subject, Mode::Find, "").await;
            if args.dry_run || !report.found {
                return show(&report, json);
            }
            if !json {
                print(&report);
            }
            confirm(&format!("Erase what is stored about this {}?", subject.kind()), RISK)?;
        }
        let action = Action {
            index: Some(hash(subject)),
            place: Some(subject.kind().to_owned()),
            reason: Some(reason.to_owned()),
            ..Action::named("erase")
        };
        let pending = settings.audit()?.begin(Actor::command_line(), action);
        let pending = pending.map_err(|error| Refusal::not_begun(error).into_failure(""))?;
        let report = search(&sources, subject, Mode::Erase, reason).await;
        let result = if report.found { "applied" } else { "nothing-found" };
        let recorded = pending.finish(Outcome { removed: Some(report.erased()), ..Outcome::of(result) });
        recorded.map_err(|error| Refusal::not_recorded(&error).into_failure(""))?;
        show(&report, json)
    };
    let result = result.await;
    if let Ok(meter) = meter {
        meter.close().await;
    }
    result
}

async fn search<O: Operator>(
    sources: &Sources<'_, O>,
    subject: &Subject,
    mode: Mode,
    reason: &str,
) -> Report {
    let (reported, is_watched) = (AtomicU64::new(0), std::io::stderr().is_terminal());
    let progress = |read: u64| {
        if is_watched && read / REPORT_EVERY > reported.swap(read, Relaxed) / REPORT_EVERY {
            errln!("read {read} records of the ledger so far");
        }
    };
    erase(sources, subject, mode, reason, &progress).await
}

/// Where else a server has what was replaced.
fn copies(ledger_url: &str) -> &'static str {
    match ledger_url.split(':').next().unwrap_or_default() {
        "file" => "backups of the ledger still have what was erased",
        "postgres" | "postgresql" => {
            "PostgreSQL has what was erased until it vacuums the tables, and in its write-ahead log and backups"
        }
        "redis" | "rediss" => {
            "Redis has what was erased in its append-only file until that is rewritten, and in snapshots"
        }
        "dynamodb" => "DynamoDB has what was erased in point-in-time recovery and backups",
        _ => "nothing else has what was erased",
    }
}

/// Everything on this machine that may contain the text.
fn files(settings: &Settings) -> Result<Vec<PathBuf>, Failure> {
    let mut files = vec![settings.raw_delivery()?.data_dir()];
    files.extend(settings.ledger.directory().map(ToOwned::to_owned));
    files.extend(settings.history_dirs()?);
    files.extend(settings.audit()?.dir().map(ToOwned::to_owned));
    if let Some(file) = settings.meter().ok().and_then(|meter| {
        let file = meter.database.url().strip_prefix("sqlite:")?.to_owned();
        Some(file.strip_prefix("//").unwrap_or(&file).to_owned())
    }) {
        files.extend([format!("{file}-wal"), file].map(PathBuf::from));
    }
    let journal = settings.effective().into_iter().find(|setting| setting.path == "gateway.journal_dir");
    files.extend(journal.and_then(|setting| Some(PathBuf::from(setting.value?.as_str()?))));
    Ok(files)
}

fn show(report: &Report, json: bool) -> Result<(), Failure> {
    match json {
        true => output::json(report)?,
        false => print(report),
    }
    match report.found {
        true => Ok(()),
        false => Err(Failure::internal(format!("nothing was found about this {}", report.subject))),
    }
}

fn print(report: &Report) {
    let erased = if report.applied { "erased" } else { "would be erased" };
    let mut table = output::table(&["place", "found", erased, "kept"]);
    for place in &report.places {
        let [found, erased, kept] = [place.found, place.erased, place.kept].map(|count| count.to_string());
        table.add_row([place.place.to_owned(), found, erased, kept]);
    }
    table.print();
    for place in &report.places {
        for note in &place.notes {
            outln!("{}: {note}", place.place);
        }
    }
    if !report.remaining_files.is_empty() {
        outln!("files that contain the text:");
        for remaining in &report.remaining_files {
            outln!("  {}: {}", remaining.file, remaining.why);
        }
    }
    outln!("hash in the audit log: {}", report.hash);
}
