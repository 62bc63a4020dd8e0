//! What must always hold, and what must happen at least once.

use ichido_core::rules::Change;
use ichido_core::{Caller, Claim, ClaimRequest, Fingerprint, InDoubtPolicy, Phase, Record, State, Timestamp};
use stateright::Property;

use super::world::{
    Call, End, Learned, PastGrant, Progress, Setting, TokenId, World, erased_outcome, operators_outcome,
    outcome, token,
};

pub(crate) const NO_UNEXPLAINED_SECOND_EFFECT: &str = "no second effect unless doubt was reported";
pub(crate) const AT_MOST_ONE_EFFECT: &str = "at most one effect if nobody may override";
pub(crate) const OUTCOME_STAYS: &str = "a recorded outcome stays and is replayed";
pub(crate) const APPLIED_IS_RECORDED: &str = "an applied completion is recorded";
pub(crate) const NONCE_REPAIRS: &str = "a retry with the same nonce repairs a lost reply";
pub(crate) const DECLARED_DOUBT_STAYS: &str = "a declared doubt is not granted again to its own nonce";
pub(crate) const ONE_NONCE_ONE_TOKEN: &str = "a nonce never has two tokens for one open claim";
pub(crate) const REUSE_IS_REFUSED: &str = "a different request with the key is refused";
pub(crate) const OTHERS_LEARN_NOTHING: &str = "a different caller with the key learns nothing";
pub(crate) const ATTEMPTS_COUNT_TAKEOVERS: &str = "the attempt counts takeovers";

pub(crate) const LOST_REPLY_IS_REPAIRED: &str = "a lost reply is repaired by the nonce";

/// The promises that apply to a setting, and the events that show that the model is not empty.
pub(crate) fn of(setting: &Setting) -> Vec<Property<Setting>> {
    let mut properties = vec![
        Property::always(NO_UNEXPLAINED_SECOND_EFFECT, no_unexplained_second_effect),
        Property::always(OUTCOME_STAYS, outcome_stays),
        Property::always(APPLIED_IS_RECORDED, applied_is_recorded),
        Property::always(NONCE_REPAIRS, nonce_repairs),
        Property::always(DECLARED_DOUBT_STAYS, declared_doubt_stays),
        Property::always(ONE_NONCE_ONE_TOKEN, one_nonce_one_token),
        Property::always(REUSE_IS_REFUSED, reuse_is_refused),
        Property::always(OTHERS_LEARN_NOTHING, others_learn_nothing),
        Property::always(ATTEMPTS_COUNT_TAKEOVERS, attempts_count_takeovers),
        Property::sometimes(LOST_REPLY_IS_REPAIRED, a_lost_reply_is_repaired),
        Property::sometimes("a second caller gets the first outcome", a_retry_is_replayed),
        Property::sometimes("an effect happened and is in doubt", an_effect_is_in_doubt),
        Property::sometimes("a holder completes after its lease", a_late_holder_completes),
    ];
    if setting.is_strict() {
        properties.push(Property::always(AT_MOST_ONE_EFFECT, at_most_one_effect));
    } else {
        properties.push(Property::sometimes("a zombie is refused", a_zombie_is_refused));
        properties.push(Property::sometimes("the effect runs twice after doubt", two_effects));
    }
    if setting.in_doubt != InDoubtPolicy::Reject {
        properties.push(Property::sometimes("a takeover happens", a_takeover_happens));
    }
    if setting.retention_ms <= setting.ticks {
        properties.push(Property::sometimes("retention ends", retention_ends));
    }
    if setting.callers.iter().any(|request| *request != setting.callers[0]) {
        properties.push(Property::sometimes("the key is reused", the_key_is_reused));
    }
    if setting.credentials.iter().any(|other| *other != setting.credentials[0]) {
        properties.push(Property::sometimes("a different caller is refused", a_different_caller_is_refused));
    }
    properties
}

/// If the effects of two grants ran, the earlier grant was ended by a takeover, a resolution or its expiry.
fn no_unexplained_second_effect(_: &Setting, world: &World) -> bool {
    let Some(last) = world.past.iter().rposition(|past| past.ran) else { return true };
    world.past[..last].iter().filter(|past| past.ran).all(|past| match past.end {
        Some(End::TakenOver | End::Resolved | End::Expired) => true,
        Some(End::Released | End::Unexplained) | None => false,
    })
}

fn at_most_one_effect(_: &Setting, world: &World) -> bool {
    effects(world) <= 1
}

/// While an outcome is kept, the record has it, and every claim for the same request gets it.
fn outcome_stays(setting: &Setting, world: &World) -> bool {
    let Some(recorded) =
        world.recorded.as_ref().filter(|recorded| world.now < recorded.at + setting.retention_ms)
    else {
        return true;
    };
    let Some(record) = &world.record else { return false };
    let State::Done(done) = &record.state else { return false };
    if done.outcome != recorded.outcome || done.completed_at != Timestamp(recorded.at) {
        return false;
    }
    let is_same = |call: &Call| {
        setting.fingerprint(call.caller) == record.fingerprint
            && setting.credentials(call.caller) == record.caller
    };
    calls(setting).filter(is_same).all(|call| {
        let request = setting.request(call, UNUSED);
        let decision = setting.rules.claim(world.record.as_ref(), &request, Timestamp(world.now));
        decision.result == Claim::Done(recorded.outcome.clone()) && decision.change == Change::Keep
    })
}

/// A completed holder finds its own outcome, or that of an operator who resolved first, until it expires.
fn applied_is_recorded(setting: &Setting, world: &World) -> bool {
    world.callers.iter().all(|caller| {
        let Progress::Finished(Learned::Completed { token_id }) = caller.progress else { return true };
        let expired = grant(world, token_id).end == Some(End::Expired);
        expired
            || world.recorded.as_ref().is_some_and(|recorded| {
                let is_own =
                    [outcome(token_id), operators_outcome(), erased_outcome()].contains(&recorded.outcome);
                let is_expired = world.now >= recorded.at + setting.retention_ms;
                is_expired || (recorded.token_id == token_id && is_own)
            })
    })
}

/// While a grant is open and its holder has not declared doubt, a retry of its call is granted the same token, and nothing
/// is written.
fn nonce_repairs(setting: &Setting, world: &World) -> bool {
    let Some(record) = &world.record else { return true };
    if record.state != State::Running {
        return true;
    }
    let Some(open) = world.past.last() else { return false };
    let decision =
        setting.rules.claim(Some(record), &setting.request(open.call, UNUSED), Timestamp(world.now));
    let same = matches!(decision.result, Claim::Granted(grant) if grant.token == token(open.token_id));
    same && decision.change == Change::Keep
}

/// Once the holder has declared doubt, a retry with its nonce gets that result.
fn declared_doubt_stays(setting: &Setting, world: &World) -> bool {
    let Some(record) = &world.record else { return true };
    let State::InDoubt(doubt) = &record.state else { return true };
    let Some(open) = world.past.last() else { return false };
    let decision =
        setting.rules.claim(Some(record), &setting.request(open.call, UNUSED), Timestamp(world.now));
    decision.result == Claim::InDoubt(doubt.clone()) && decision.change == Change::Keep
}

/// A call is granted again only after its first grant was released, resolved or has expired.
fn one_nonce_one_token(_: &Setting, world: &World) -> bool {
    world.past.windows(2).all(|pair| {
        pair[0].call != pair[1].call
            || match pair[0].end {
                Some(End::Released | End::Resolved | End::Expired) => true,
                Some(End::TakenOver | End::Unexplained) | None => false,
            }
    })
}

/// A different request learns nothing about the record and changes nothing.
fn reuse_is_refused(setting: &Setting, world: &World) -> bool {
    all_refused(setting, world, &Claim::Mismatch, |request, record| {
        request.fingerprint = Fingerprint::NONE;
        request.caller = record.caller;
    })
}

/// The same holds for the same request with different credentials, and for a different request with them.
fn others_learn_nothing(setting: &Setting, world: &World) -> bool {
    let other = Some(Caller::from_bytes([0xff; 32]));
    all_refused(setting, world, &Claim::CallerChanged, |request, _| request.caller = other)
        && all_refused(setting, world, &Claim::CallerChanged, |request, _| {
            request.caller = other;
            request.fingerprint = Fingerprint::NONE;
        })
}

/// While there is a record, its own call and a new call, both changed, get this result.
fn all_refused(
    setting: &Setting,
    world: &World,
    result: &Claim,
    change: impl Fn(&mut ClaimRequest, &Record),
) -> bool {
    let Some(record) = &world.record else { return true };
    let now = Timestamp(world.now);
    if matches!(record.phase(now), Phase::Expired { .. }) {
        return true;
    }
    let new_call = Call { caller: 0, life: setting.lives };
    world.past.last().map(|past| past.call).into_iter().chain([new_call]).all(|call| {
        let mut request = setting.request(call, UNUSED);
        change(&mut request, record);
        let decision = setting.rules.claim(Some(record), &request, now);
        decision.result == *result && decision.change == Change::Keep
    })
}

fn attempts_count_takeovers(_: &Setting, world: &World) -> bool {
    let Some(record) = &world.record else { return true };
    let ended = &world.past[..world.past.len() - 1];
    let takeovers = ended.iter().rev().take_while(|past| past.end == Some(End::TakenOver)).count();
    usize::try_from(record.attempt) == Ok(1 + takeovers)
}

fn a_lost_reply_is_repaired(_: &Setting, world: &World) -> bool {
    any_caller(world, |progress| matches!(progress, Progress::Holding { repaired: true, ran: true, .. }))
}

fn a_retry_is_replayed(_: &Setting, world: &World) -> bool {
    any_caller(world, |progress| matches!(progress, Progress::Finished(Learned::Done(_))))
        && effects(world) == 1
}

fn an_effect_is_in_doubt(_: &Setting, world: &World) -> bool {
    let in_doubt = |record: &Record| matches!(record.phase(Timestamp(world.now)), Phase::InDoubt(_));
    world.record.as_ref().is_some_and(in_doubt) && world.past.last().is_some_and(|past| past.ran)
}

fn a_late_holder_completes(_: &Setting, world: &World) -> bool {
    let (Some(record), Some(recorded)) = (&world.record, &world.recorded) else { return false };
    let is_late = Timestamp(recorded.at) >= record.lease_until();
    is_late
        && any_caller(world, |progress| {
            *progress == Progress::Finished(Learned::Completed { token_id: recorded.token_id })
        })
}

fn a_zombie_is_refused(_: &Setting, world: &World) -> bool {
    any_caller(world, |progress| matches!(progress, Progress::Finished(Learned::Refused)))
}

fn two_effects(_: &Setting, world: &World) -> bool {
    effects(world) == 2
}

fn a_takeover_happens(_: &Setting, world: &World) -> bool {
    world.past.iter().any(|past| past.end == Some(End::TakenOver))
}

fn retention_ends(_: &Setting, world: &World) -> bool {
    world.past.iter().any(|past| past.end == Some(End::Expired))
}

fn the_key_is_reused(_: &Setting, world: &World) -> bool {
    any_caller(world, |progress| matches!(progress, Progress::Finished(Learned::Mismatch)))
}

fn a_different_caller_is_refused(_: &Setting, world: &World) -> bool {
    any_caller(world, |progress| matches!(progress, Progress::Finished(Learned::CallerChanged)))
}

/// A token that no grant of the model has, for claims that only probe the rules.
const UNUSED: TokenId = TokenId::MAX;

/// Every call that is ever made, and one new call.
fn calls(setting: &Setting) -> impl Iterator<Item = Call> {
    let callers = 0..u8::try_from(setting.callers.len()).unwrap();
    let lives = setting.lives;
    callers.flat_map(move |caller| (0..=lives).map(move |life| Call { caller, life }))
}

fn effects(world: &World) -> usize {
    world.past.iter().filter(|past| past.ran).count()
}

fn grant(world: &World, token_id: TokenId) -> &PastGrant {
    world.past.iter().rfind(|past| past.token_id == token_id).unwrap()
}

fn any_caller(world: &World, is: impl Fn(&Progress) -> bool) -> bool {
    world.callers.iter().any(|caller| is(&caller.progress))
}
