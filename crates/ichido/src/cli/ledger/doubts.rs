//! `ichido ledger triage`, `ask` and `resolve`: what to do with claims in doubt.

use std::time::Duration;

use ichido_admin::operator::{
    AskedClaim, ClaimSelector, Confirmed, Operator, ResolveAs, ResolveKind, SCANNED_MAX, SeenClaim,
    SeenResult, Triage, TriageFilter,
};
use ichido_core::{Clock, SystemClock, Timestamp};
use ichido_ledger::Summary;
use ichido_serve::Failure;
use serde_json::json;

use super::print_settled;
use crate::args::{End, FilterArgs, ResolveArgs};
use crate::cli::confirm::confirm;
use crate::output;

/// What resolving a claim as absent means.
const ABSENT_RISK: &str = "the next retry runs the effect";
/// What resolving a claim as done means.
const DONE_RISK: &str = "it will never run";

pub(super) async fn triage(
    operator: &impl Operator,
    args: &FilterArgs,
    limit: u32,
    json: bool,
) -> Result<(), Failure> {
    let triage = read(operator, &filter(args), limit).await?;
    if json {
        return output::json(&triage);
    }
    if triage.matched == 0 {
        outln!("no claims in doubt{}", if args.is_empty() { "" } else { " match" });
        return print_limits(&triage);
    }
    let now = SystemClock::default().now();
    let mut groups = output::table(&["count", "route", "reason", "oldest"]);
    for group in &triage.groups {
        let (count, oldest) = (group.count.to_string(), age(group.oldest, now));
        groups.add_row([count, group.route.clone(), group.reason.clone(), oldest]);
    }
    outln!("{groups}");
    print_claims(&triage.claims, now);
    print_limits(&triage)
}

pub(super) async fn ask(
    operator: &impl Operator,
    selector: &ClaimSelector,
    resolve: bool,
    yes: bool,
    json: bool,
) -> Result<(), Failure> {
    let refused = |refusal: ichido_admin::operator::Refusal| refusal.into_failure(&selector.key);
    let asked = operator.ask(selector, None).await.map_err(refused)?;
    let follows = match asked.follows {
        Some(follows) if resolve => follows,
        None if resolve => {
            return Err(Failure::internal(format!("{:?}: {}; {}", asked.key, asked.detail, asked.means)));
        }
        Some(_) | None => return print_asked(&asked, json),
    };
    if !yes {
        outln!("{:?}: {}; {}", asked.key, asked.detail, asked.means);
        let (name, risk) = match follows {
            ResolveKind::Done => ("done", DONE_RISK),
            ResolveKind::Absent => ("absent", ABSENT_RISK),
        };
        confirm(&format!("Resolve it as {name}?"), risk)?;
    }
    let confirmed = Confirmed { resolve: follows, version: asked.version };
    print_asked(&operator.ask(selector, Some(&confirmed)).await.map_err(refused)?, json)
}

pub(super) async fn resolve(operator: &impl Operator, args: &ResolveArgs, json: bool) -> Result<(), Failure> {
    let resolve_as = match (args.end, &args.outcome) {
        (End::Done, outcome) => ResolveAs::Done(outcome.clone()),
        (End::Absent, None) => ResolveAs::Absent,
        (End::Absent, Some(_)) => return Err(Failure::usage("--outcome can only be used with --as done")),
    };
    let Some(key) = &args.key else { return resolve_all(operator, args, &resolve_as, json).await };
    if args.filter.reason.is_some() || args.filter.older_than.is_some() {
        return Err(Failure::usage("--reason and --older-than select claims without a key"));
    }
    let FilterArgs { tenant, route, .. } = args.filter.clone();
    let selector = ClaimSelector { key: key.clone(), tenant, route };
    let settled = operator.resolve(&selector, &resolve_as).await;
    print_settled(&settled.map_err(|refusal| refusal.into_failure(key))?, json)
}

/// Resolves the claims that match: lists them, asks once, and resolves exactly these.
async fn resolve_all(
    operator: &impl Operator,
    args: &ResolveArgs,
    resolve_as: &ResolveAs,
    json: bool,
) -> Result<(), Failure> {
    let filter = filter(&args.filter);
    if filter.is_empty() {
        return Err(Failure::usage(
            "name a key, or select claims with --route, --tenant, --reason or --older-than",
        ));
    }
    let triage = read(operator, &filter, args.limit).await?;
    if triage.claims.is_empty() {
        return match json {
            true => output::json(&json!({ "claims": [] })),
            false => {
                outln!("no claims in doubt match; nothing was done");
                print_limits(&triage)
            }
        };
    }
    if !json {
        print_claims(&triage.claims, SystemClock::default().now());
        print_limits(&triage)?;
    }
    let count = output::count(triage.claims.len() as u64, "claim", "claims");
    if !args.yes {
        let (name, risk) = match args.end {
            End::Done => ("done", "none of them will ever run"),
            End::Absent => ("absent", "the next retry of each runs its effect"),
        };
        confirm(&format!("Resolve {count} as {name}?"), risk)?;
    }
    let claims: Vec<SeenClaim> = triage.claims.iter().map(SeenClaim::from).collect();
    let reason = format!("resolved together with others ({count}): {}", filter.describe());
    let reason: String = reason.chars().take(ichido_admin::operator::REASON_CHARS_MAX).collect();
    let results = operator.resolve_all(&claims, resolve_as, Some(&reason)).await;
    print_results(&results.map_err(|refusal| refusal.into_failure(""))?, json)
}

fn print_results(results: &[SeenResult], json: bool) -> Result<(), Failure> {
    let left: Vec<&SeenResult> = results.iter().filter(|result| !result.resolved).collect();
    if json {
        output::json(&json!({ "claims": results }))?;
    } else {
        outln!("{} resolved", output::count((results.len() - left.len()) as u64, "claim", "claims"));
        for result in &left {
            outln!("{:?} on {}: not resolved ({})", result.key, result.route, result.result);
        }
    }
    match left.len() {
        0 => Ok(()),
        count => Err(Failure::internal(format!(
            "{} not resolved; look at them again",
            output::count(count as u64, "claim was", "claims were")
        ))),
    }
}

async fn read(operator: &impl Operator, filter: &TriageFilter, limit: u32) -> Result<Triage, Failure> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    operator.triage(filter, limit).await.map_err(|refusal| refusal.into_failure(""))
}

impl FilterArgs {
    fn is_empty(&self) -> bool {
        filter(self).is_empty()
    }
}

fn filter(args: &FilterArgs) -> TriageFilter {
    let FilterArgs { route, tenant, reason, older_than } = args.clone();
    TriageFilter { route, reason, tenant, older_than }
}

fn print_claims(claims: &[Summary], now: Timestamp) {
    let mut table = output::table(&["in doubt for", "key", "caller", "route", "reason"]);
    for claim in claims {
        table.add_row([
            claim.doubt_since.map_or_else(String::new, |since| age(since, now)),
            claim.key.clone(),
            claim.tenant.clone(),
            claim.route.clone(),
            claim.doubt_reason.clone().unwrap_or_default(),
        ]);
    }
    table.print();
}

/// What the list does not show.
fn print_limits(triage: &Triage) -> Result<(), Failure> {
    let shown = triage.claims.len() as u64;
    if triage.degraded {
        outln!("the ledger is unavailable: these are only the claims in the fallback of this process");
    }
    if !triage.complete {
        outln!("only {SCANNED_MAX} claims in doubt were read; there are more");
    }
    match shown < triage.matched {
        true => outln!(
            "the oldest {shown} of {}",
            output::count(triage.matched, "claim in doubt", "claims in doubt")
        ),
        false if shown > 0 => outln!("{}", output::count(shown, "claim in doubt", "claims in doubt")),
        false => {}
    }
    Ok(())
}

fn print_asked(asked: &AskedClaim, json: bool) -> Result<(), Failure> {
    if json {
        return output::json(asked);
    }
    outln!("{:?}: {}", asked.key, asked.detail);
    match &asked.resolved {
        Some(state) => outln!("{:?}: {state}", asked.key),
        None if asked.follows.is_some() => outln!("{}; --resolve does that", asked.means),
        None => outln!("{}", asked.means),
    }
    Ok(())
}

/// How long ago something was, in its largest unit.
fn age(since: Timestamp, now: Timestamp) -> String {
    let seconds = Duration::from_millis(now.ms_since(since)).as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}
