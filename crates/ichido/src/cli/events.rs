//! `ichido events …`: shows and forgets the events that a ledger has marked as seen.
//!
//! If another process holds the ledger, the command uses the admin port of that process.

use ichido_admin::audit_log::Actor;
use ichido_admin::operator::{Audited, EventView, Operator, instance};
use ichido_core::Timestamp;
use ichido_history::Repeats;
use ichido_ledger::{MarkPage, MarkQuery, MarkSummary};
use ichido_serve::Failure;
use serde_json::json;

use super::confirm::confirm;
use super::history::{self, Format, ReadFrom};
use super::ledger::{Opened, check_exists, close, local, open};
use crate::args::{EventsArgs, EventsVerb};
use crate::components::ledger;
use crate::output;
use crate::settings::Settings;

/// What forgetting an event means.
const FORGET_RISK: &str =
    "it is processed again if it is delivered again, on every instance that uses this ledger";

/// The history is off, or has no decision about the event: it was recorded elsewhere, only counted, or removed by now.
const UNKNOWN_REPEATS: &str = "unknown";

pub(super) async fn run(args: &EventsArgs) -> Result<(), Failure> {
    let settings = Settings::load(args.common.config.as_deref(), &args.common.flags())?;
    let (verb, json) = (&args.verb, args.common.json);
    let remote = args.admin.as_deref().map(|address| ledger::remote(&settings, address)).transpose()?;
    let from = |dirs| match &remote {
        None => Ok(ReadFrom::Files(dirs)),
        Some(remote) if dirs.is_empty() => Ok(ReadFrom::Admin(remote)),
        Some(_) => {
            Err(Failure::usage("--dir cannot be used with --admin, which reads the history of that process"))
        }
    };
    match verb {
        EventsVerb::History { by, days, csv, dir } => {
            if remote.is_some() {
                return Err(Failure::usage("events history reads files: use --dir instead of --admin"));
            }
            let format = match (json, csv) {
                (true, _) => Format::Json,
                (false, true) => Format::Csv,
                (false, false) => Format::Table,
            };
            return history::counts(&settings, *by, *days, dir, format);
        }
        EventsVerb::Timeline { key, dir } => {
            return history::timeline(&settings, key, from(dir)?, json).await;
        }
        EventsVerb::Anomalies { days, dir } => {
            return history::anomalies(&settings, *days, from(dir)?, json).await;
        }
        EventsVerb::List { .. } | EventsVerb::Show { .. } | EventsVerb::Forget { .. } => {}
    }
    if let Some(remote) = &remote {
        return run_verb(remote, verb, json).await;
    }
    check_exists(&settings)?;
    match open(&settings).await? {
        Opened::Elsewhere(holder) => run_verb(&*holder, verb, json).await,
        Opened::Here(ledger) => {
            let actor = Actor::command_line();
            let result = match (local(&settings, &ledger), settings.audit()) {
                (Ok(operator), Ok(audit)) => run_verb(&Audited { operator, audit, actor }, verb, json).await,
                (Err(failure), _) | (_, Err(failure)) => Err(failure),
            };
            close(&settings, &ledger, result).await
        }
    }
}

async fn run_verb(operator: &impl Operator, verb: &EventsVerb, json: bool) -> Result<(), Failure> {
    match verb {
        EventsVerb::List { prefix, limit, cursor } => {
            let limit = usize::try_from(*limit).unwrap_or(usize::MAX);
            list(operator, MarkQuery { prefix: prefix.clone(), limit, cursor: cursor.clone() }, json).await
        }
        EventsVerb::Show { key } => show(operator, key, json).await,
        EventsVerb::Forget { key, reason, yes } => {
            if !yes {
                let event = show_event(operator, key).await?.event;
                let question =
                    format!("Forget the event {key:?}, first seen {}?", first_seen(event.first_seen));
                confirm(&question, FORGET_RISK)?;
            }
            let forgotten = operator.forget_event(key, reason.as_deref()).await;
            let forgotten = forgotten.map_err(|refusal| refusal.into_failure(key))?;
            if json {
                return output::json(&json!({ "key": forgotten.key, "state": "forgotten" }));
            }
            outln!("{:?}: forgotten; {FORGET_RISK}", forgotten.key);
            Ok(())
        }
        // Read from files, without the ledger.
        EventsVerb::History { .. } | EventsVerb::Timeline { .. } | EventsVerb::Anomalies { .. } => Ok(()),
    }
}

async fn list(operator: &impl Operator, query: MarkQuery, json: bool) -> Result<(), Failure> {
    let limit = query.limit;
    let page = list_up_to(operator, query).await?;
    if json {
        return output::json(&page);
    }
    let mut table = output::table(&["key", "first seen", "instance", "expires", "metadata"]);
    for event in &page.marks {
        let metadata: Vec<_> = event.metadata.iter().map(|(name, value)| format!("{name}={value}")).collect();
        table.add_row([
            event.key.clone(),
            first_seen(event.first_seen),
            instance(event).unwrap_or_default().to_owned(),
            expires(event),
            metadata.join(" "),
        ]);
    }
    table.print_or("no event matches");
    if page.degraded {
        outln!("the ledger is unavailable: these are only the events in the fallback of this process");
    }
    match page.cursor {
        Some(cursor) => outln!("first {limit} events; continue with --cursor {cursor}"),
        None => outln!("{}", output::count(page.marks.len() as u64, "event", "events")),
    }
    Ok(())
}

/// Reads pages until the list is full or complete: a page may be shorter than its limit.
async fn list_up_to(operator: &impl Operator, mut query: MarkQuery) -> Result<MarkPage, Failure> {
    let mut all = MarkPage::default();
    loop {
        let page = operator.list_events(&query).await.map_err(|refusal| refusal.into_failure(""))?;
        query.limit -= page.marks.len().min(query.limit);
        query.cursor.clone_from(&page.cursor);
        all.marks.extend(page.marks);
        all.cursor = page.cursor;
        all.degraded |= page.degraded;
        if query.limit == 0 || all.cursor.is_none() {
            return Ok(all);
        }
    }
}

async fn show_event(operator: &impl Operator, key: &str) -> Result<EventView, Failure> {
    operator.show_event(key).await.map_err(|refusal| refusal.into_failure(key))
}

async fn show(operator: &impl Operator, key: &str, json: bool) -> Result<(), Failure> {
    let shown = show_event(operator, key).await?;
    if json {
        return output::json(&shown);
    }
    let EventView { event, repeats } = shown;
    let mut table = output::table(&["field", "value"]);
    table.add_row(["key", &event.key]);
    table.add_row(["first seen", &first_seen(event.first_seen)]);
    table.add_row(["instance", instance(&event).unwrap_or_default()]);
    table.add_row(["repeats", &repeats.map_or_else(|| UNKNOWN_REPEATS.to_owned(), repeats_text)]);
    table.add_row(["expires", &expires(&event)]);
    for (name, value) in event.metadata.iter() {
        table.add_row([&format!("metadata: {name}"), value]);
    }
    table.add_row(["index", &event.index]);
    table.print();
    if event.local {
        outln!("not in the ledger yet: the fallback of this process marked it during an outage");
    }
    Ok(())
}

fn repeats_text(repeats: Repeats) -> String {
    match repeats.is_complete {
        true => repeats.count.to_string(),
        false => format!("at least {}", repeats.count),
    }
}

/// Another program may have written no time.
fn first_seen(at: Timestamp) -> String {
    if at == Timestamp(0) { "unknown".to_owned() } else { output::time(at) }
}

fn expires(event: &MarkSummary) -> String {
    event.expires_at.map_or_else(|| "never".to_owned(), output::time)
}
