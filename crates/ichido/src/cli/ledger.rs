//! `ichido ledger …`: inspects and repairs a ledger.
//!
//! If another process holds the ledger, the command uses the admin port of that process.

mod doubts;
mod files;

use std::sync::Arc;

use ichido_ledger::{
    ConflictKind, Error, FallbackStatus, Kind, Ledger, Page, Query, StateName, Stats, Summary, Swept,
};
use serde_json::{Value, json};

use super::confirm::confirm;
use crate::args::{KeyArgs, LedgerArgs, LedgerVerb, State};
use crate::components::ledger;
use crate::output;
use crate::settings::Settings;
use ichido_admin::audit_log::{Action, Actor, Outcome};
use ichido_admin::operator::{
    Audited, ClaimSelector, ClaimView, Local, Operator, Refusal, Remote, ResolvedClaim,
};
use ichido_gateway::UpstreamQuestions;
use ichido_http::AskService;
use ichido_serve::Failure;

/// A sweep reports its progress after this many records.
const SWEEP_REPORT_EVERY: u64 = 100_000;

/// What forgetting a claim means.
const FORGET_RISK: &str =
    "the next request with this key runs the effect, on every instance that uses this ledger";

pub(super) async fn run(args: &LedgerArgs) -> Result<(), Failure> {
    let settings = Settings::load(args.common.config.as_deref(), &args.common.flags())?;
    let (verb, json) = (&args.verb, args.common.json);
    if let Some(address) = &args.admin {
        return run_verb(&ledger::remote(&settings, address)?, verb, json).await;
    }
    let dir = settings.ledger.directory();
    if dir.is_none() && is_about_files(verb) {
        return Err(Failure::usage(format!(
            "ledger.url: only file: ledgers can be verified, backed up, restored and compacted; this one is {}",
            settings.ledger.location()
        )));
    }
    if !matches!(verb, LedgerVerb::Init | LedgerVerb::Restore { .. }) {
        check_exists(&settings)?;
    }
    match (verb, dir) {
        (LedgerVerb::Restore { backup, yes }, Some(dir)) => {
            return files::restore(&settings, backup, dir, *yes, json).await;
        }
        // A damaged ledger cannot be opened.
        (LedgerVerb::Verify, Some(dir)) => match files::verify_closed(dir).await {
            Err(error) if matches!(error.kind(), Kind::InUse(_)) => {
                return run_verb(&ledger::holder(&settings, dir, &error)?, verb, json).await;
            }
            verified => return files::print_verified(&verified?, json),
        },
        (_, Some(_) | None) => {}
    }
    match open(&settings).await? {
        Opened::Elsewhere(holder) => run_verb(&*holder, verb, json).await,
        Opened::Here(ledger) => {
            let result = run_local(&settings, &ledger, verb, json).await;
            close(&settings, &ledger, result).await
        }
    }
}

/// Where a ledger is open.
pub(super) enum Opened {
    Here(Ledger),
    /// Another process holds it.
    Elsewhere(Box<Remote>),
}

/// A command must not create a ledger by the way.
pub(super) fn check_exists(settings: &Settings) -> Result<(), Failure> {
    match settings.ledger.directory().filter(|dir| !dir.exists()) {
        None => Ok(()),
        Some(dir) => Err(Failure::usage(format!(
            "there is no ledger at {}; `ichido ledger init` creates it",
            dir.display()
        ))),
    }
}

/// Opens the ledger, or reaches the process that holds it.
pub(super) async fn open(settings: &Settings) -> Result<Opened, Failure> {
    let error = match ichido_ledger::open(&settings.ledger.url, settings.ledger.handle()).await {
        Ok(ledger) => return Ok(Opened::Here(ledger)),
        Err(error) => error,
    };
    match settings.ledger.directory().filter(|_| matches!(error.kind(), Kind::InUse(_))) {
        Some(dir) => Ok(Opened::Elsewhere(Box::new(ledger::holder(settings, dir, &error)?))),
        None => Err(unreachable(settings, error)),
    }
}

/// Closes the ledger after a command, and returns its result.
pub(super) async fn close(
    settings: &Settings,
    ledger: &Ledger,
    result: Result<(), Failure>,
) -> Result<(), Failure> {
    let closed = ledger.close().await;
    result?;
    closed.map_err(|error| settings.ledger.failure(error))
}

/// A ledger of this process, with the histories of this machine.
pub(super) fn local(settings: &Settings, ledger: &Ledger) -> Result<Local, Failure> {
    Ok(Local { ledger: ledger.clone(), histories: settings.histories()?, service: None })
}

/// Asks the service behind the gateway of these settings, if they have one.
fn questions(settings: &Settings) -> Result<Option<Arc<dyn AskService>>, Failure> {
    if !settings.has("gateway") && !settings.is_set("gateway.upstream") {
        return Ok(None);
    }
    Ok(Some(Arc::new(UpstreamQuestions::new(settings.gateway(false)?))))
}

/// Runs a command on a ledger of this process. What it changes is recorded.
async fn run_local(
    settings: &Settings,
    ledger: &Ledger,
    verb: &LedgerVerb,
    json: bool,
) -> Result<(), Failure> {
    let mut operator = local(settings, ledger)?;
    if let LedgerVerb::Ask { .. } = verb {
        operator.service = questions(settings)?;
    }
    let (audit, actor) = (settings.audit()?, Actor::command_line());
    match verb {
        LedgerVerb::Init => init(ledger, json).await,
        // All steps are one action.
        LedgerVerb::Sweep => {
            let pending = audit
                .begin(actor, Action::named("sweep"))
                .map_err(|error| Refusal::not_begun(error).into_failure(""))?;
            let swept = sweep(&operator).await;
            let outcome = match &swept {
                Ok(swept) => Outcome { removed: Some(swept.removed), ..Outcome::of("applied") },
                Err(_) => Outcome::of("failed"),
            };
            let recorded = pending.finish(outcome);
            let swept = swept?;
            recorded.map_err(|error| Refusal::not_recorded(&error).into_failure(""))?;
            print_swept(&swept, json)
        }
        LedgerVerb::List { .. }
        | LedgerVerb::Show(_)
        | LedgerVerb::Triage { .. }
        | LedgerVerb::Ask { .. }
        | LedgerVerb::Resolve(_)
        | LedgerVerb::Release { .. }
        | LedgerVerb::Forget { .. }
        | LedgerVerb::Stats
        | LedgerVerb::Verify
        | LedgerVerb::Backup { .. }
        | LedgerVerb::Restore { .. }
        | LedgerVerb::Compact => run_verb(&Audited { operator, audit, actor }, verb, json).await,
    }
}

/// Whether a command is about the files of the ledger, which only a file: ledger has.
fn is_about_files(verb: &LedgerVerb) -> bool {
    match verb {
        LedgerVerb::Verify | LedgerVerb::Backup { .. } | LedgerVerb::Restore { .. } | LedgerVerb::Compact => {
            true
        }
        LedgerVerb::Init
        | LedgerVerb::List { .. }
        | LedgerVerb::Show(_)
        | LedgerVerb::Triage { .. }
        | LedgerVerb::Ask { .. }
        | LedgerVerb::Resolve(_)
        | LedgerVerb::Release { .. }
        | LedgerVerb::Forget { .. }
        | LedgerVerb::Sweep
        | LedgerVerb::Stats => false,
    }
}

/// During an outage of a shared ledger, the claims that fallbacks granted can be reached only through their processes.
fn unreachable(settings: &Settings, error: Error) -> Failure {
    let is_outage = error.is_outage();
    let failure = settings.ledger.failure(error);
    match is_outage {
        true => failure.map_message(|line| {
            format!("{line}; use --admin ADDRESS to list and resolve the claims that the fallback of a process granted")
        }),
        false => failure,
    }
}

async fn run_verb(operator: &impl Operator, verb: &LedgerVerb, json: bool) -> Result<(), Failure> {
    match verb {
        LedgerVerb::Init => Err(Failure::usage("the ledger already exists, and another process holds it")),
        LedgerVerb::List { state, prefix, limit, cursor } => {
            let query = Query {
                state: state.map(state_name),
                prefix: prefix.clone(),
                limit: usize::try_from(*limit).unwrap_or(usize::MAX),
                cursor: cursor.clone(),
            };
            list(operator, query, json).await
        }
        LedgerVerb::Show(key) => show(operator, key, json).await,
        LedgerVerb::Triage { filter, limit } => doubts::triage(operator, filter, *limit, json).await,
        LedgerVerb::Ask { key, resolve, yes } => {
            doubts::ask(operator, &selector(key), *resolve, *yes, json).await
        }
        LedgerVerb::Resolve(args) => doubts::resolve(operator, args, json).await,
        LedgerVerb::Release { key, force } => {
            let settled = operator.release(&selector(key), *force).await;
            print_settled(&settled.map_err(|refusal| refusal.into_failure(&key.key))?, json)
        }
        LedgerVerb::Forget { key, reason, yes } => {
            if !yes {
                let question = format!("Forget the completed claim {:?}?", key.key);
                confirm(&question, FORGET_RISK)?;
            }
            let forgotten = operator.forget(&selector(key), reason).await;
            print_settled(&forgotten.map_err(|refusal| refusal.into_failure(&key.key))?, json)
        }
        LedgerVerb::Sweep => print_swept(&sweep(operator).await?, json),
        LedgerVerb::Stats => stats(operator, json).await,
        LedgerVerb::Verify => {
            files::print_verified(&operator.verify().await.map_err(|refusal| refusal.into_failure(""))?, json)
        }
        LedgerVerb::Backup { directory } => files::backup(operator, directory, json).await,
        LedgerVerb::Compact => {
            print_swept(&operator.compact().await.map_err(|refusal| refusal.into_failure(""))?, json)
        }
        LedgerVerb::Restore { .. } => Err(Failure::usage(
            "a backup is restored on the machine of the ledger, without --admin, after the processes that use the ledger were stopped",
        )),
    }
}

fn selector(args: &KeyArgs) -> ClaimSelector {
    ClaimSelector { key: args.key.clone(), tenant: args.tenant.clone(), route: args.route.clone() }
}

async fn init(ledger: &Ledger, json: bool) -> Result<(), Failure> {
    ledger.init().await?;
    if json {
        return output::json(&ledger.capabilities());
    }
    outln!("ledger is ready");
    outln!("{}", ledger.capabilities());
    Ok(())
}

async fn list(operator: &impl Operator, query: Query, json: bool) -> Result<(), Failure> {
    let limit = query.limit;
    let page = list_up_to(operator, query).await?;
    if json {
        return output::json(&page);
    }
    let mut table = output::table(&["key", "tenant", "route", "state", "attempt", "claimed", "detail"]);
    for claim in &page.claims {
        table.add_row([
            claim.key.clone(),
            claim.tenant.clone(),
            claim.route.clone(),
            claim.state.as_str().to_owned(),
            claim.attempt.to_string(),
            output::time(claim.claimed_at),
            detail(claim),
        ]);
    }
    table.print_or("no claim matches");
    if page.degraded {
        outln!("the ledger is unavailable: these are only the claims in the fallback of this process");
    }
    match page.cursor {
        Some(cursor) => outln!("first {limit} claims; continue with --cursor {cursor}"),
        None => outln!("{}", output::count(page.claims.len() as u64, "claim", "claims")),
    }
    Ok(())
}

/// Reads pages until the list is full or complete: a page may be shorter than its limit.
async fn list_up_to(operator: &impl Operator, mut query: Query) -> Result<Page, Failure> {
    let mut all = Page::default();
    loop {
        let page = operator.list(&query).await.map_err(|refusal| refusal.into_failure(""))?;
        query.limit -= page.claims.len().min(query.limit);
        query.cursor.clone_from(&page.cursor);
        all.claims.extend(page.claims);
        all.cursor = page.cursor;
        all.degraded |= page.degraded;
        if query.limit == 0 || all.cursor.is_none() {
            return Ok(all);
        }
    }
}

fn detail(claim: &Summary) -> String {
    let detail = match claim.state {
        StateName::Running => {
            claim.lease_until.map_or_else(String::new, |at| format!("lease until {}", output::time(at)))
        }
        StateName::InDoubt => claim.doubt_reason.clone().unwrap_or_default(),
        StateName::Done => match claim.outcome_bytes {
            Some(bytes) => format!("{bytes} bytes"),
            None => "outcome not kept".to_owned(),
        },
    };
    if claim.local { format!("not in the ledger yet; {detail}") } else { detail }
}

async fn show(operator: &impl Operator, key: &KeyArgs, json: bool) -> Result<(), Failure> {
    let shown = operator.show(&selector(key)).await.map_err(|refusal| refusal.into_failure(&key.key))?;
    if json {
        return output::json(&shown);
    }
    let ClaimView(fields) = &shown;
    let mut table = output::table(&["field", "value"]);
    for (name, value) in fields {
        match value.as_object().filter(|_| name == "answer") {
            Some(response) => response_rows(response).into_iter().for_each(|row| table.add_row(row)),
            None => table.add_row([name.clone(), readable(name, value)]),
        }
    }
    table.print();
    Ok(())
}

/// The stored HTTP response, with a row for each of its parts.
fn response_rows(response: &serde_json::Map<String, Value>) -> Vec<[String; 2]> {
    let row = |name: String, value: &Value| [name.clone(), readable(&name, value)];
    let rows = response.iter().flat_map(|(part, value)| match value.as_object().filter(|_| part != "body") {
        Some(fields) => {
            fields.iter().map(|(name, value)| row(format!("response {part}: {name}"), value)).collect()
        }
        None => vec![row(format!("response {part}"), value)],
    });
    rows.collect()
}

fn readable(name: &str, value: &Value) -> String {
    let is_time = name.ends_with("_at") || name.ends_with("_until") || name.ends_with("_since");
    if let (true, Some(ms)) = (is_time, value.as_u64()) {
        return output::time(ichido_core::Timestamp(ms));
    }
    value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned)
}

fn print_settled(settled: &ResolvedClaim, json: bool) -> Result<(), Failure> {
    if json {
        return output::json(&json!({ "key": settled.key, "state": settled.state }));
    }
    outln!("{:?}: {}", settled.key, settled.state);
    Ok(())
}

async fn sweep(operator: &impl Operator) -> Result<Swept, Failure> {
    let mut total = Swept::default();
    loop {
        let swept = operator.sweep_step().await.map_err(|refusal| refusal.into_failure(""))?;
        let is_report_due =
            (total.removed + swept.removed) / SWEEP_REPORT_EVERY > total.removed / SWEEP_REPORT_EVERY;
        total.removed += swept.removed;
        total.doubts_ended += swept.doubts_ended;
        if !swept.more {
            return Ok(total);
        }
        if is_report_due {
            errln!("removed {} so far", total.removed);
        }
    }
}

fn print_swept(total: &Swept, json: bool) -> Result<(), Failure> {
    if json {
        return output::json(total);
    }
    outln!("removed {}, including {} claims that were still in doubt", total.removed, total.doubts_ended);
    Ok(())
}

async fn stats(operator: &impl Operator, json: bool) -> Result<(), Failure> {
    let stats = operator.stats().await.map_err(|refusal| refusal.into_failure(""))?;
    if json {
        return output::json(&stats);
    }
    let Stats { running, in_doubt, done, marks, fallback } = stats;
    let mut table = output::table(&["", "count"]);
    for (what, count) in [("running", running), ("in doubt", in_doubt), ("done", done), ("marks", marks)] {
        let count = count.map_or_else(|| "not counted (needs a scan)".to_owned(), |count| count.to_string());
        table.add_row([what.to_owned(), count]);
    }
    table.print();
    if let Some(fallback) = fallback {
        print_fallback(&fallback);
    }
    Ok(())
}

fn print_fallback(status: &FallbackStatus) {
    if status.degraded {
        outln!("the ledger is unavailable: these are only the records in the fallback of this process");
    }
    let FallbackStatus { pending_claims, pending_marks, refused, .. } = status;
    outln!(
        "fallback: {pending_claims} claims and {pending_marks} marks are not in the ledger yet; it rejects {refused} of them"
    );
    if status.conflicts.is_empty() {
        return;
    }
    outln!("keys that another instance claimed or marked as well:");
    let mut table = output::table(&["key", "tenant", "route", "kind", "count", "found"]);
    for conflict in &status.conflicts {
        let kind = match conflict.kind {
            ConflictKind::Mark => "event".to_owned(),
            ConflictKind::Claim { local_state } => format!("claim, {} here", local_state.as_str()),
        };
        table.add_row([
            conflict.key.clone(),
            conflict.tenant.clone(),
            conflict.route.clone(),
            kind,
            conflict.count.to_string(),
            output::time(conflict.found_at),
        ]);
    }
    table.print();
}

fn state_name(state: State) -> StateName {
    match state {
        State::Running => StateName::Running,
        State::InDoubt => StateName::InDoubt,
        State::Done => StateName::Done,
    }
}
