//! `ichido report usage`: what the meter has counted in a month, as a statement that can be verified later.

mod html;
mod html_texts;
mod last_statements;
mod scope;
mod statement;
mod text;
mod verify;

use std::path::Path;
use std::sync::Arc;

use ichido_core::{Clock, SystemClock, error_chain};
use ichido_delivery::disk::Disk;
use ichido_meter::settings::Reading;
use ichido_meter::statement::Month;
use ichido_meter::{Options, Store};
use ichido_serve::visible_lines;

use self::last_statements::{LastStatement, LastStatements};
use self::scope::Scope;
use self::statement::Statement;
use crate::args::{ReportUsageArgs, StatementFormat};
use crate::output;
use crate::settings::Settings;
use ichido_serve::Failure;

pub(super) async fn run(settings: &Settings, args: &ReportUsageArgs, json: bool) -> Result<(), Failure> {
    let reading = settings.meter_reading()?;
    if let Some(file) = &args.verify {
        return verify::run(&reading, file, json).await;
    }
    let month = args.month.as_deref().unwrap_or_default();
    let month: Month =
        month.parse().map_err(|problem| Failure::usage(format!("--month {month:?} {problem}")))?;
    let scope = Scope { tenant: tenant(&reading, args.tenant.as_deref())?, month, app: args.app.clone() };
    let data_dir = settings.raw_delivery()?.data_dir();
    let last = LastStatements::new(&data_dir);
    let store = open(&reading).await?;
    let now = SystemClock::default().now();
    let made = Statement::make(&*store, &scope, &reading.budgets, last.read(&scope)?, &data_dir, now).await;
    store.close().await;
    let statement = made?;
    let format = if json { StatementFormat::Json } else { args.format };
    let text = match format {
        StatementFormat::Table => text::table(&statement),
        StatementFormat::Csv => text::csv(&statement),
        StatementFormat::Json => text::json(&statement)?,
        StatementFormat::Html => html::page(&statement, args.lang),
    };
    let text = match format {
        // Names come from senders. The other formats escape them.
        StatementFormat::Table => visible_lines(&text).into_owned(),
        StatementFormat::Csv | StatementFormat::Json | StatementFormat::Html => text,
    };
    match &args.output {
        Some(file) => write(file, &text)?,
        None => output::print(|out| std::io::Write::write_all(out, text.as_bytes())),
    }
    if !args.preview {
        let made_at_ms = i64::try_from(now.0).unwrap_or(i64::MAX);
        let (created_at, digest) = (statement.created_at, statement.digest.clone());
        last.write(&scope, &LastStatement { created_at, made_at_ms, digest, usage: statement.usage })?;
    }
    if let Some(file) = &args.output {
        errln!("ichido report: wrote {}, digest {}", file.display(), statement.digest);
    }
    Ok(())
}

/// The tenant that was asked for, or the only one.
fn tenant(reading: &Reading, asked: Option<&str>) -> Result<String, Failure> {
    match (asked, &reading.tenants[..]) {
        (Some(asked), _) => Ok(asked.to_owned()),
        (None, [only]) => Ok(only.clone()),
        (None, several) => Err(Failure::usage(format!(
            "the meter has several tenants: set --tenant to one of {}",
            several.join(", ")
        ))),
    }
}

/// Opens the meter's database. A file that does not exist is not created.
async fn open(reading: &Reading) -> Result<Arc<dyn Store>, Failure> {
    let location = reading.database.location();
    if let Some(file) = reading.database.file().filter(|file| !file.exists()) {
        return Err(Failure::usage(format!(
            "meter.db: {} does not exist: nothing was counted here yet, or --db must name another database",
            file.display()
        )));
    }
    ichido_meter::open(reading.database.url(), Options { profile: reading.profile })
        .await
        .map_err(|error| Failure::usage(error_chain(&error)).at(&location))
}

fn write(file: &Path, text: &str) -> Result<(), Failure> {
    let failed = |problem: String| Failure::usage(format!("cannot write {}: {problem}", file.display()));
    let name = file
        .file_name()
        .and_then(|name| name.to_str())
        .ok_or_else(|| failed("not a file name".to_owned()))?;
    let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Disk::default().replace(dir, name, text.as_bytes()).map_err(|error| failed(error.to_string()))
}
