//! Commands about the files of a ledger: verify, backup and restore.

use std::path::{Path, PathBuf};

use ichido_admin::audit_log::{Action, Actor, Outcome};
use ichido_admin::operator::{Operator, Refusal};
use ichido_ledger::{Backup, Error, Kind, Verified, file};
use ichido_serve::Failure;
use serde_json::json;

use crate::cli::confirm::confirm;
use crate::output;
use crate::settings::Settings;

/// Checks a ledger that no process has open.
pub(super) async fn verify_closed(dir: &Path) -> Result<Verified, Error> {
    let dir = dir.to_owned();
    off_thread(move || file::verify(&dir)).await
}

/// Prints what was checked. Something that is damaged is a failure.
pub(super) fn print_verified(verified: &Verified, json: bool) -> Result<(), Failure> {
    let Verified { commit, segments, bytes, claims, marks, problems } = verified;
    match json {
        true => output::json(verified)?,
        false => {
            problems.iter().for_each(|problem| outln!("{problem}"));
            outln!(
                "checked {}, {bytes} bytes: {} and {}, up to commit {commit}",
                output::count(*segments, "segment", "segments"),
                output::count(*claims, "record of a claim", "records of claims"),
                output::count(*marks, "record of a mark", "records of marks"),
            );
        }
    }
    match problems.len() as u64 {
        0 => Ok(()),
        count => Err(Failure::internal(format!(
            "the ledger is not intact: {}",
            output::count(count, "problem", "problems")
        ))),
    }
}

/// Copies the ledger to a new directory.
pub(super) async fn backup(operator: &impl Operator, to: &Path, json: bool) -> Result<(), Failure> {
    // The process that holds the ledger has another working directory.
    let to = std::path::absolute(to)
        .map_err(|error| Failure::usage(format!("cannot use the directory {}: {error}", to.display())))?;
    let backup = operator.backup(&to).await.map_err(|refusal| refusal.into_failure(""))?;
    if json {
        return output::json(&json!({
            "directory": to, "commit": backup.commit, "files": backup.files, "bytes": backup.bytes,
        }));
    }
    outln!("backed up to {}: {}", to.display(), summary(&backup));
    Ok(())
}

/// Restores a backup to the directory of the ledger.
pub(super) async fn restore(
    settings: &Settings,
    from: &Path,
    to: &Path,
    is_confirmed: bool,
    json: bool,
) -> Result<(), Failure> {
    if !is_confirmed {
        let question = format!("Restore {} to {}?", from.display(), to.display());
        confirm(&question, "requests that were claimed after the backup was taken would run again")?;
    }
    let place = std::path::absolute(from).unwrap_or_else(|_| from.to_owned()).display().to_string();
    let action = Action { place: Some(place), ..Action::named("restore") };
    let pending = settings
        .audit()?
        .begin(Actor::command_line(), action)
        .map_err(|error| Refusal::not_begun(error).into_failure(""))?;
    let (source, target): (PathBuf, PathBuf) = (from.to_owned(), to.to_owned());
    let restored = off_thread(move || file::restore(&source, &target)).await;
    let result = if restored.is_ok() { "applied" } else { "failed" };
    let recorded = pending.finish(Outcome::of(result));
    let restored = restored?;
    recorded.map_err(|error| Refusal::not_recorded(&error).into_failure(""))?;
    if json {
        return output::json(&restored);
    }
    outln!("restored {} to {}: {}", from.display(), to.display(), summary(&restored));
    outln!("Claims made after the backup was taken are unknown: a retry of such a request runs it again.");
    outln!(
        "Claims that were running then are in doubt, or will be when their lease ends: `ichido ledger list --state in-doubt`."
    );
    Ok(())
}

fn summary(backup: &Backup) -> String {
    let Backup { commit, files, bytes } = backup;
    format!("{}, {bytes} bytes, up to commit {commit}", output::count(*files, "file", "files"))
}

async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let interrupted = |error| Err(Error::new(Kind::Unavailable, "reading the ledger").caused_by(error));
    tokio::task::spawn_blocking(work).await.unwrap_or_else(interrupted)
}
