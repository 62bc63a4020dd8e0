//! `ichido audit`: lists and verifies what operators did.

use std::collections::VecDeque;

use ichido_admin::audit_log::{Break, Entry, Snapshot, Step};
use ichido_serve::Failure;
use serde::Serialize;
use serde_json::json;

use crate::args::{AuditArgs, AuditVerb};
use crate::output;
use crate::settings::Settings;

#[derive(Serialize)]
struct Listed {
    #[serde(flatten)]
    entry: Entry,
    hash: String,
}

pub(super) fn run(args: &AuditArgs) -> Result<(), Failure> {
    let settings = Settings::load(args.common.config.as_deref(), &args.flags())?;
    let audit = settings.audit()?;
    let Some(dir) = audit.dir() else {
        return Err(Failure::usage("there is no audit log: admin.audit_dir is off"));
    };
    let snapshot = audit.snapshot().map_err(Failure::usage_from)?;
    match &args.verb {
        AuditVerb::List { since, who, action, limit } => {
            let is_selected = |entry: &Entry| {
                let is_since = |since: &jiff::Timestamp| {
                    entry.time.parse::<jiff::Timestamp>().is_ok_and(|time| time >= *since)
                };
                since.as_ref().is_none_or(is_since)
                    && who.as_ref().is_none_or(|who| entry.actor.who == *who)
                    && action.as_ref().is_none_or(|action| entry.action.action.starts_with(action))
            };
            let limit = usize::try_from(*limit).unwrap_or(usize::MAX);
            list(snapshot.as_ref(), is_selected, limit, args.common.json)
        }
        AuditVerb::Verify { after, contains } => {
            // A log that was removed as a whole looks like one that never was.
            let snapshot = snapshot.ok_or_else(|| {
                Failure::internal(format!(
                    "there is no audit log in {}: nothing was recorded yet, or it was removed",
                    dir.display()
                ))
            })?;
            verify(&snapshot, after.as_deref(), contains.as_deref(), args.common.json)
        }
    }
}

fn list(
    snapshot: Option<&Snapshot>,
    is_selected: impl Fn(&Entry) -> bool,
    limit: usize,
    json: bool,
) -> Result<(), Failure> {
    let mut entries: VecDeque<Listed> = VecDeque::new();
    let mut add = |entry: Entry, hash: String| {
        if !is_selected(&entry) {
            return;
        }
        // A result repeats its intent. Programs get both.
        if let (false, Some(intent)) = (json, entry.intent)
            && let Some(at) = entries.iter().rposition(|listed| listed.entry.seq == intent)
        {
            entries.remove(at);
        }
        entries.push_back(Listed { entry, hash });
        if entries.len() > limit {
            entries.pop_front();
        }
    };
    let unreadable =
        snapshot.map_or(Ok(0), |snapshot| snapshot.each(&mut add)).map_err(Failure::usage_from)?;
    if json {
        return output::json(&json!({ "entries": entries, "unreadable": unreadable }));
    }
    let mut table = output::table(&[
        "entry", "time", "who", "from", "action", "target", "before", "after", "result", "reason",
    ]);
    for Listed { entry, .. } in &entries {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let Entry { seq, time, actor, action, outcome, .. } = entry;
        let result = match entry.step {
            Step::Intent => "no result recorded".to_owned(),
            Step::Result | Step::Event => text(&outcome.result),
        };
        let who = match &actor.sudo_user {
            Some(person) => format!("{} (sudo: {person})", actor.who),
            None => actor.who.clone(),
        };
        table.add_row([
            seq.to_string(),
            time.clone(),
            who,
            actor.from.clone(),
            action.action.clone(),
            target(entry),
            text(&action.before),
            text(&outcome.after),
            result,
            text(&action.reason),
        ]);
    }
    table.print_or("no operator's action matches");
    outln!("{}", output::count(entries.len() as u64, "entry", "entries"));
    if unreadable > 0 {
        let lines = output::count(unreadable, "line is", "lines are");
        errln!("{lines} not readable; run `ichido audit verify`");
    }
    Ok(())
}

/// The claim or the batches, shortened.
fn target(entry: &Entry) -> String {
    let short = |text: &String| text.chars().take(12).collect::<String>();
    let batches = entry.action.batches.iter().map(short);
    entry
        .action
        .index
        .iter()
        .map(short)
        .chain(entry.action.place.clone())
        .chain(batches)
        .collect::<Vec<_>>()
        .join(" ")
}

fn verify(
    snapshot: &Snapshot,
    after: Option<&str>,
    contains: Option<&str>,
    json: bool,
) -> Result<(), Failure> {
    match snapshot.verify(after, contains).map_err(Failure::usage_from)? {
        Ok(summary) if json => output::json(&json!({ "intact": true, "log": summary })),
        Ok(summary) => {
            let (entries, files) = (
                output::count(summary.entries, "entry", "entries"),
                output::count(summary.files as u64, "file", "files"),
            );
            outln!("intact: {entries} in {files}");
            outln!("last entry: {}, hash {}", summary.last_seq, summary.last_hash);
            summary.notes.iter().for_each(|note| outln!("note: {note}"));
            Ok(())
        }
        Err(found) => {
            if json {
                output::json(&json!({ "intact": false, "break": found }))?;
            }
            Err(broken(&found))
        }
    }
}

fn broken(found: &Break) -> Failure {
    Failure::internal(format!("the audit log is not intact: {found}"))
}
