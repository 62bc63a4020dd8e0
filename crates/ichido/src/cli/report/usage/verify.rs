//! Compares a statement with what the meter has now.

use std::path::Path;

use ichido_core::error_chain;
use ichido_delivery::disk;
use ichido_meter::settings::Reading;
use ichido_meter::statement::{Change, Month, Usage, compare};
use serde::Serialize;

use super::last_statements::STATEMENT_BYTES_MAX;
use super::statement::Statement;
use super::text::{app_of, signed};
use crate::output;
use ichido_serve::Failure;

#[derive(Debug, Serialize)]
struct Verified {
    /// Whether the meter has exactly what the statement says.
    verified: bool,
    tenant: String,
    month: String,
    app: Option<String>,
    created_at: String,
    /// The digest that the statement states.
    digest: String,
    /// The digest of the rows in the statement. Another one means that the file was changed.
    digest_of_file: String,
    /// The digest of what the meter has now.
    digest_of_meter: String,
    /// The rows that differ.
    differences: Vec<Change>,
}

pub(super) async fn run(reading: &Reading, file: &Path, json: bool) -> Result<(), Failure> {
    let statement = read(file)?;
    let month: Month = statement.usage.month.parse().map_err(|problem| {
        Failure::usage(format!("{}: month {:?} {problem}", file.display(), statement.usage.month))
    })?;
    let store = super::open(reading).await?;
    let (tenant, app) = (&statement.usage.tenant, statement.usage.app.as_deref());
    let read = Usage::read(&*store, tenant, month, app, None).await;
    store.close().await;
    let read = read.map_err(|error| Failure::usage(error_chain(&error)))?;
    let (digest_of_file, digest_of_meter) = (statement.usage.digest(), read.usage.digest());
    let verified = Verified {
        verified: digest_of_file == statement.digest && digest_of_meter == statement.digest,
        differences: compare(&statement.usage, &read),
        tenant: statement.usage.tenant,
        month: statement.usage.month,
        app: statement.usage.app,
        created_at: statement.created_at,
        digest: statement.digest,
        digest_of_file,
        digest_of_meter,
    };
    match json {
        true => output::json(&verified)?,
        false => print(&verified),
    }
    match verified.verified {
        true => Ok(()),
        false => Err(Failure::internal("the statement differs from what the meter has")),
    }
}

fn read(file: &Path) -> Result<Statement, Failure> {
    let wrong = |problem: String| Failure::usage(format!("cannot verify {}: {problem}", file.display()));
    let bytes = disk::read_regular(file, STATEMENT_BYTES_MAX).map_err(|error| wrong(error.to_string()))?;
    let statement: Statement = serde_json::from_slice(&bytes).map_err(|_| {
        wrong(
            "it is not a statement in JSON; statements are verified in the format of --format json"
                .to_owned(),
        )
    })?;
    match statement.is_known() {
        true => Ok(statement),
        false => Err(wrong("it is another kind of statement, or of a newer version of ichido".to_owned())),
    }
}

fn print(verified: &Verified) {
    let Verified { tenant, month, app, created_at, digest, .. } = verified;
    let app = app.as_ref().map_or_else(String::new, |app| format!(", app {app}"));
    outln!("statement of {month} for tenant {tenant}{app}, made at {created_at}");
    if verified.digest_of_file != *digest {
        outln!(
            "the file was changed: its digest is {digest}, but that of its rows is {}",
            verified.digest_of_file
        );
    }
    if verified.verified {
        return outln!("verified: the meter has the same usage, digest {digest}");
    }
    outln!("the meter has now: digest {}", verified.digest_of_meter);
    if verified.differences.is_empty() {
        return outln!("no row differs from the file");
    }
    let mut table =
        output::table(&["app", "user", "model", "", "records", "tokens", "cost", "", "difference"]);
    for change in &verified.differences {
        for (what, sums) in [("statement", &change.before), ("meter", &change.now)] {
            let number =
                |of: fn(&ichido_meter::statement::Sums) -> String| sums.as_ref().map_or("–".to_owned(), of);
            let is_first = what == "statement";
            let once = |text: &str| if is_first { text.to_owned() } else { String::new() };
            table.add_row([
                once(app_of(&change.app_name, &change.key.app_id)),
                once(&change.key.user_id),
                once(&format!("{} {}", change.key.provider, change.key.model)),
                what.to_owned(),
                number(|sums| sums.records.to_string()),
                number(|sums| sums.total_tokens.to_string()),
                number(|sums| sums.cost.clone()),
                change.key.currency.clone(),
                if is_first { String::new() } else { signed(&change.cost_difference) },
            ]);
        }
    }
    table.print();
}
