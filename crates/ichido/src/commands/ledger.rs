//! `ichido ledger …`: what operators do with claims.

use ichido_core::{Key, Now, Outcome, Record, Resolution, Resolved, Scope, State as RecordState};
use ichido_ledger::{Kind, Ledger, Query, StateName, Stats, Summary, Swept};
use serde_json::{Value, json};

use crate::args::{End, KeyArgs, LedgerArgs, LedgerVerb, State};
use crate::exit::Failure;
use crate::output;
use crate::settings::Settings;

/// Records removed in one step of a sweep.
const SWEEP_STEP: usize = 1_000;

pub(crate) async fn run(args: &LedgerArgs) -> Result<(), Failure> {
    let settings = Settings::load(&args.common)?;
    if let Some(dir) = settings.ledger.dir()
        && !matches!(args.verb, LedgerVerb::Init)
        && !dir.exists()
    {
        return Err(Failure::usage(format!(
            "there is no ledger at {}; `ichido ledger init` creates it",
            dir.display()
        )));
    }
    let here = |error: ichido_ledger::Error| {
        // A URL that is not understood is not repeated: nobody knows what is in it.
        let understood = !matches!(error.kind(), Kind::Settings(_));
        let failure = Failure::from(error);
        if understood { failure.at(&settings.ledger.place()) } else { failure }
    };
    let ledger = ichido_ledger::open(&settings.ledger.url, settings.ledger.handle()).await.map_err(here)?;
    let result = act(&ledger, &args.verb, args.common.json).await;
    let closed = ledger.close().await;
    result?;
    closed.map_err(here)
}

async fn act(ledger: &Ledger, verb: &LedgerVerb, json: bool) -> Result<(), Failure> {
    match verb {
        LedgerVerb::Init => init(ledger, json).await,
        LedgerVerb::List { state, prefix, limit, cursor } => {
            let query = Query {
                state: state.map(state_name),
                prefix: prefix.clone(),
                limit: usize::try_from(*limit).unwrap_or(usize::MAX),
                cursor: cursor.clone(),
            };
            list(ledger, query, json).await
        }
        LedgerVerb::Show(key) => show(ledger, key, json).await,
        LedgerVerb::Resolve { key, end, outcome } => {
            resolve(ledger, key, *end, outcome.as_deref(), json).await
        }
        LedgerVerb::Release { key, force } => release(ledger, key, *force, json).await,
        LedgerVerb::Sweep => sweep(ledger, json).await,
        LedgerVerb::Stats => stats(ledger, json).await,
    }
}

async fn init(ledger: &Ledger, json: bool) -> Result<(), Failure> {
    ledger.init().await?;
    if json {
        return output::json(&ledger.capabilities());
    }
    println!("the ledger is ready");
    println!("{}", ledger.capabilities());
    Ok(())
}

async fn list(ledger: &Ledger, query: Query, json: bool) -> Result<(), Failure> {
    let limit = query.limit;
    let page = list_up_to(ledger, query).await?;
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
    println!("{table}");
    match page.cursor {
        Some(cursor) => println!("the first {limit}; more with --cursor {cursor}"),
        None => println!("{} claims", page.claims.len()),
    }
    Ok(())
}

/// A backend may give shorter pages than asked for: a list goes on until it is full or there is no more.
async fn list_up_to(ledger: &Ledger, mut query: Query) -> Result<ichido_ledger::Page, Failure> {
    let mut all = ichido_ledger::Page::default();
    loop {
        let page = ledger.list(&query).await?;
        query.limit -= page.claims.len().min(query.limit);
        query.cursor.clone_from(&page.cursor);
        all.claims.extend(page.claims);
        all.cursor = page.cursor;
        if query.limit == 0 || all.cursor.is_none() {
            return Ok(all);
        }
    }
}

fn detail(claim: &Summary) -> String {
    match claim.state {
        StateName::Running => {
            claim.lease_until.map_or_else(String::new, |at| format!("lease until {}", output::time(at)))
        }
        StateName::InDoubt => claim.doubt_reason.clone().unwrap_or_default(),
        StateName::Done => match claim.outcome_bytes {
            Some(bytes) => format!("{bytes} bytes"),
            None => "answer not kept".to_owned(),
        },
    }
}

async fn show(ledger: &Ledger, args: &KeyArgs, json: bool) -> Result<(), Failure> {
    let (summary, key) = find(ledger, args, &[None]).await?;
    let record = ledger.look(&key).await?.ok_or_else(|| gone(args))?;
    let mut shown = serde_json::to_value(&summary).map_err(|error| Failure::internal(error.to_string()))?;
    if let Value::Object(fields) = &mut shown {
        fields.insert("fingerprint".to_owned(), json!(record.fingerprint));
        fields.insert("renewals".to_owned(), json!(record.renewals));
        fields.insert("lease_ms".to_owned(), json!(record.lease_ms));
        fields.insert("retention_ms".to_owned(), json!(record.retention_ms));
        fields.extend(outcome_of(&record));
    }
    if json {
        return output::json(&shown);
    }
    let mut table = output::table(&["field", "value"]);
    if let Value::Object(fields) = &shown {
        for (name, value) in fields {
            table.add_row([name.clone(), readable(name, value)]);
        }
    }
    println!("{table}");
    Ok(())
}

fn readable(name: &str, value: &Value) -> String {
    let is_time = name.ends_with("_at") || name.ends_with("_until") || name.ends_with("_since");
    if let (true, Some(ms)) = (is_time, value.as_u64()) {
        return output::time(ichido_core::Timestamp(ms));
    }
    value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned)
}

/// The outcome as JSON if it is JSON, as text if it is text, as its size otherwise.
fn outcome_of(record: &Record) -> Option<(String, Value)> {
    let RecordState::Done(done) = &record.state else { return None };
    Some(match &done.outcome {
        Outcome::Tombstone(reason) => ("answer_not_kept".to_owned(), json!(reason)),
        Outcome::Kept(bytes) => {
            let text = std::str::from_utf8(bytes).map(|text| json!(text));
            let value = serde_json::from_slice(bytes).or(text);
            ("outcome".to_owned(), value.unwrap_or_else(|_| json!(format!("{} bytes", bytes.len()))))
        }
    })
}

async fn resolve(
    ledger: &Ledger,
    args: &KeyArgs,
    end: End,
    outcome: Option<&str>,
    json: bool,
) -> Result<(), Failure> {
    let word = match (end, outcome) {
        (End::Done, Some(outcome)) => Resolution::Done(Outcome::kept(outcome.as_bytes().to_vec())),
        (End::Done, None) => Resolution::Done(Outcome::Tombstone("resolved by an operator".to_owned())),
        (End::Absent, None) => Resolution::Absent,
        (End::Absent, Some(_)) => return Err(Failure::usage("--outcome goes with --as done")),
    };
    let (_, key) = find(ledger, args, &[Some(StateName::InDoubt)]).await?;
    let said = match end {
        End::Done => "done",
        End::Absent => "absent",
    };
    settled(ledger.resolve(&key, &word).await?, args, said, json)
}

async fn release(ledger: &Ledger, args: &KeyArgs, force: bool, json: bool) -> Result<(), Failure> {
    let (summary, key) = find(ledger, args, &[Some(StateName::Running), Some(StateName::InDoubt)]).await?;
    if summary.state == StateName::Running && !force {
        return Err(Failure::usage(format!(
            "{:?} is running and its lease is good; --force if you know that its holder is gone and nothing happened",
            args.key
        )));
    }
    settled(ledger.resolve(&key, &Resolution::Release).await?, args, "released", json)
}

fn settled(resolved: Resolved, args: &KeyArgs, said: &str, json: bool) -> Result<(), Failure> {
    match resolved {
        Resolved::Applied if json => output::json(&json!({ "key": args.key, "state": said })),
        Resolved::Applied => {
            println!("{:?}: {said}", args.key);
            Ok(())
        }
        Resolved::Refused(now) => {
            let why = match now {
                Now::Absent => "there is no such claim any more",
                Now::Running => "it is running and its lease is good",
                Now::InDoubt => "it is in doubt",
                Now::Done(_) => "it is done, and a recorded outcome is not changed",
            };
            Err(Failure::internal(format!("{:?} was left as it is: {why}", args.key)))
        }
    }
}

async fn sweep(ledger: &Ledger, json: bool) -> Result<(), Failure> {
    let mut total = Swept::default();
    loop {
        let swept = ledger.sweep(SWEEP_STEP).await?;
        total.removed += swept.removed;
        total.doubts_ended += swept.doubts_ended;
        if !swept.more {
            break;
        }
        if total.removed % 100_000 < SWEEP_STEP as u64 {
            eprintln!("{} removed so far", total.removed);
        }
    }
    if json {
        return output::json(&total);
    }
    println!(
        "{} removed, {} of them claims whose doubt was never resolved",
        total.removed, total.doubts_ended
    );
    Ok(())
}

async fn stats(ledger: &Ledger, json: bool) -> Result<(), Failure> {
    let stats = ledger.stats().await?;
    if json {
        return output::json(&stats);
    }
    let Stats { running, in_doubt, done, marks } = stats;
    let mut table = output::table(&["what", "how many"]);
    for (what, count) in [("running", running), ("in doubt", in_doubt), ("done", done), ("marks", marks)] {
        let count =
            count.map_or_else(|| "not counted: it would mean a scan".to_owned(), |count| count.to_string());
        table.add_row([what.to_owned(), count]);
    }
    println!("{table}");
    Ok(())
}

/// The one claim with this text, in one of these states; tenant and route narrow the search.
///
/// With both given the key is known, and nothing is searched. Otherwise the states keep the search short where the
/// ledger has an index on them.
async fn find(
    ledger: &Ledger,
    args: &KeyArgs,
    states: &[Option<StateName>],
) -> Result<(Summary, Key), Failure> {
    let mut found = Vec::new();
    if let (Some(tenant), Some(route)) = (&args.tenant, &args.route) {
        let key = Key::new(Scope::new(tenant, route), args.key.clone())?;
        let now = ledger.settings().clock.now();
        found.extend(ledger.look(&key).await?.and_then(|record| Summary::of(&record, now)));
    } else {
        for state in states {
            search(ledger, args, *state, &mut found).await?;
        }
    }
    match found.len() {
        0 => Err(gone(args)),
        1 => {
            let summary = found.remove(0);
            let key = Key::new(Scope::new(&summary.tenant, &summary.route), summary.key.clone())?;
            Ok((summary, key))
        }
        several => Err(Failure::usage(format!(
            "{several} claims have the key {:?}; say which with --tenant and --route (`ichido ledger list --prefix …` shows them)",
            args.key
        ))),
    }
}

async fn search(
    ledger: &Ledger,
    args: &KeyArgs,
    state: Option<StateName>,
    found: &mut Vec<Summary>,
) -> Result<(), Failure> {
    let mut query = Query { state, prefix: Some(args.key.clone()), limit: 1_000, cursor: None };
    loop {
        let page = ledger.list(&query).await?;
        found.extend(page.claims.into_iter().filter(|claim| {
            claim.key == args.key
                && args.tenant.as_ref().is_none_or(|tenant| *tenant == claim.tenant)
                && args.route.as_ref().is_none_or(|route| *route == claim.route)
        }));
        match page.cursor {
            Some(cursor) => query.cursor = Some(cursor),
            None => return Ok(()),
        }
    }
}

fn gone(args: &KeyArgs) -> Failure {
    Failure::internal(format!(
        "there is no such claim with the key {:?} (`ichido ledger list --prefix …` shows claims in every state)",
        args.key
    ))
}

fn state_name(state: State) -> StateName {
    match state {
        State::Running => StateName::Running,
        State::InDoubt => StateName::InDoubt,
        State::Done => StateName::Done,
    }
}
