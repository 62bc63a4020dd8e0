//! What must always hold, and what must be seen to happen at least once.

use ichido_core::rules::Change;
use ichido_core::{Caller, Claim, ClaimRequest, Fingerprint, InDoubtPolicy, Phase, Record, State, Timestamp};
use stateright::Property;

use crate::world::{Call, End, Mint, Past, Place, Setting, Told, World, operators_outcome, outcome, token};

pub(crate) const NO_SECOND_EFFECT_UNSAID: &str = "no second effect unless doubt was said";
pub(crate) const ONE_EFFECT_AT_ALL: &str = "one effect at all where nobody may override";
pub(crate) const OUTCOME_STAYS: &str = "an outcome once recorded stays and is answered";
pub(crate) const APPLIED_IS_RECORDED: &str = "a holder told that it completed has its outcome recorded";
pub(crate) const NONCE_REPAIRS: &str = "asking again with the same nonce repairs a lost reply";
pub(crate) const DECLARED_DOUBT_STAYS: &str = "a declared doubt is not granted again to its own nonce";
pub(crate) const ONE_NONCE_ONE_TOKEN: &str = "one nonce never has two tokens of one open claim";
pub(crate) const REUSE_IS_REFUSED: &str = "another request under the key is refused";
pub(crate) const OTHERS_LEARN_NOTHING: &str = "another caller under the key learns nothing";
pub(crate) const ATTEMPTS_COUNT_TAKEOVERS: &str = "the attempt counts the takeovers";

pub(crate) const LOST_REPLY_IS_REPAIRED: &str = "a lost reply is repaired by the nonce";

/// The promises that apply to a setting, and the sights that show that the model is not empty.
pub(crate) fn of(setting: &Setting) -> Vec<Property<Setting>> {
    let mut properties = vec![
        Property::always(NO_SECOND_EFFECT_UNSAID, no_second_effect_unsaid),
        Property::always(OUTCOME_STAYS, outcome_stays),
        Property::always(APPLIED_IS_RECORDED, applied_is_recorded),
        Property::always(NONCE_REPAIRS, nonce_repairs),
        Property::always(DECLARED_DOUBT_STAYS, declared_doubt_stays),
        Property::always(ONE_NONCE_ONE_TOKEN, one_nonce_one_token),
        Property::always(REUSE_IS_REFUSED, reuse_is_refused),
        Property::always(OTHERS_LEARN_NOTHING, others_learn_nothing),
        Property::always(ATTEMPTS_COUNT_TAKEOVERS, attempts_count_takeovers),
        Property::sometimes(LOST_REPLY_IS_REPAIRED, a_lost_reply_is_repaired),
        Property::sometimes("a second caller is told the first outcome", a_repeat_is_answered),
        Property::sometimes("an effect is done and nobody knows", an_effect_is_in_doubt),
        Property::sometimes("a holder completes after its lease", a_holder_comes_back_in_time),
    ];
    if setting.is_strict() {
        properties.push(Property::always(ONE_EFFECT_AT_ALL, one_effect_at_all));
    } else {
        properties.push(Property::sometimes("a zombie is refused", a_zombie_is_refused));
        properties.push(Property::sometimes("the effect runs twice, with doubt said", two_effects));
    }
    if setting.in_doubt != InDoubtPolicy::Reject {
        properties.push(Property::sometimes("a takeover happens", a_takeover_happens));
    }
    if setting.retention_ms <= setting.ticks {
        properties.push(Property::sometimes("retention ends", retention_ends));
    }
    if setting.callers.iter().any(|request| *request != setting.callers[0]) {
        properties.push(Property::sometimes("a reuse of the key is seen", a_reuse_is_seen));
    }
    if setting.credentials.iter().any(|other| *other != setting.credentials[0]) {
        properties.push(Property::sometimes("another caller is refused", another_caller_is_refused));
    }
    properties
}

/// Of two grants whose effects ran, the earlier one was given up for a reason that someone stated.
fn no_second_effect_unsaid(_: &Setting, world: &World) -> bool {
    let Some(last) = world.past.iter().rposition(|past| past.ran) else { return true };
    world.past[..last].iter().filter(|past| past.ran).all(|past| match past.end {
        Some(End::TakenOver | End::Resolved | End::Expired) => true,
        Some(End::Released | End::Silently) | None => false,
    })
}

fn one_effect_at_all(_: &Setting, world: &World) -> bool {
    effects(world) <= 1
}

/// As long as an outcome is kept, the record has it and every claim for the same request is answered with it.
fn outcome_stays(setting: &Setting, world: &World) -> bool {
    let Some(kept) = world.kept.as_ref().filter(|kept| world.now < kept.at + setting.retention_ms) else {
        return true;
    };
    let Some(record) = &world.record else { return false };
    let State::Done(done) = &record.state else { return false };
    if done.outcome != kept.outcome || done.completed_at != Timestamp(kept.at) {
        return false;
    }
    let same = |call: &Call| {
        setting.fingerprint(call.caller) == record.fingerprint
            && setting.credentials(call.caller) == record.caller
    };
    calls(setting).filter(same).all(|call| {
        let request = setting.request(call, UNUSED);
        let step = setting.rules.claim(world.record.as_ref(), &request, Timestamp(world.now));
        step.answer == Claim::Done(kept.outcome.clone()) && step.change == Change::Keep
    })
}

/// Its own outcome, or that of an operator who spoke first; until retention is over.
fn applied_is_recorded(setting: &Setting, world: &World) -> bool {
    world.callers.iter().all(|caller| {
        let Place::Finished(Told::Completed { mint }) = caller.at else { return true };
        let expired = grant(world, mint).end == Some(End::Expired);
        expired
            || world.kept.as_ref().is_some_and(|kept| {
                let own = kept.outcome == outcome(mint) || kept.outcome == operators_outcome();
                let over = world.now >= kept.at + setting.retention_ms;
                over || (kept.mint == mint && own)
            })
    })
}

/// While a grant is open and its holder has not declared doubt, its call is granted the same token again, and nothing
/// is written.
fn nonce_repairs(setting: &Setting, world: &World) -> bool {
    let Some(record) = &world.record else { return true };
    if record.state != State::Running {
        return true;
    }
    let Some(open) = world.past.last() else { return false };
    let step = setting.rules.claim(Some(record), &setting.request(open.call, UNUSED), Timestamp(world.now));
    let same = matches!(step.answer, Claim::Granted(grant) if grant.token == token(open.mint));
    same && step.change == Change::Keep
}

/// Once the holder said that the effect may have happened, asking again under its nonce gets that answer.
fn declared_doubt_stays(setting: &Setting, world: &World) -> bool {
    let Some(record) = &world.record else { return true };
    let State::InDoubt(doubt) = &record.state else { return true };
    let Some(open) = world.past.last() else { return false };
    let step = setting.rules.claim(Some(record), &setting.request(open.call, UNUSED), Timestamp(world.now));
    step.answer == Claim::InDoubt(doubt.clone()) && step.change == Change::Keep
}

/// A call is granted anew only after its first grant was given back, resolved or forgotten.
fn one_nonce_one_token(_: &Setting, world: &World) -> bool {
    world.past.windows(2).all(|pair| {
        pair[0].call != pair[1].call
            || match pair[0].end {
                Some(End::Released | End::Resolved | End::Expired) => true,
                Some(End::TakenOver | End::Silently) | None => false,
            }
    })
}

/// Whatever is remembered of the key, another request learns nothing of it and changes nothing.
fn reuse_is_refused(setting: &Setting, world: &World) -> bool {
    all_refused(setting, world, &Claim::Mismatch, |request, record| {
        request.fingerprint = Fingerprint::NONE;
        request.caller = record.caller;
    })
}

/// The same for the same request with other credentials, and for another request with them.
fn others_learn_nothing(setting: &Setting, world: &World) -> bool {
    let other = Some(Caller::from_bytes([0xff; 32]));
    all_refused(setting, world, &Claim::CallerChanged, |request, _| request.caller = other)
        && all_refused(setting, world, &Claim::CallerChanged, |request, _| {
            request.caller = other;
            request.fingerprint = Fingerprint::NONE;
        })
}

/// While something is remembered of the key, its own call and a newcomer's, changed in some way, get this answer.
fn all_refused(
    setting: &Setting,
    world: &World,
    answer: &Claim,
    change: impl Fn(&mut ClaimRequest, &Record),
) -> bool {
    let Some(record) = &world.record else { return true };
    let now = Timestamp(world.now);
    if matches!(record.phase(now), Phase::Over { .. }) {
        return true;
    }
    let newcomer = Call { caller: 0, life: setting.lives };
    world.past.last().map(|past| past.call).into_iter().chain([newcomer]).all(|call| {
        let mut request = setting.request(call, UNUSED);
        change(&mut request, record);
        let step = setting.rules.claim(Some(record), &request, now);
        step.answer == *answer && step.change == Change::Keep
    })
}

fn attempts_count_takeovers(_: &Setting, world: &World) -> bool {
    let Some(record) = &world.record else { return true };
    let ended = &world.past[..world.past.len() - 1];
    let takeovers = ended.iter().rev().take_while(|past| past.end == Some(End::TakenOver)).count();
    usize::try_from(record.attempt) == Ok(1 + takeovers)
}

fn a_lost_reply_is_repaired(_: &Setting, world: &World) -> bool {
    any_at(world, |place| matches!(place, Place::Holding { repaired: true, ran: true, .. }))
}

fn a_repeat_is_answered(_: &Setting, world: &World) -> bool {
    any_at(world, |place| matches!(place, Place::Finished(Told::Done(_)))) && effects(world) == 1
}

fn an_effect_is_in_doubt(_: &Setting, world: &World) -> bool {
    let in_doubt = |record: &Record| matches!(record.phase(Timestamp(world.now)), Phase::InDoubt(_));
    world.record.as_ref().is_some_and(in_doubt) && world.past.last().is_some_and(|past| past.ran)
}

fn a_holder_comes_back_in_time(_: &Setting, world: &World) -> bool {
    let (Some(record), Some(kept)) = (&world.record, &world.kept) else { return false };
    let late = Timestamp(kept.at) >= record.lease_until();
    late && any_at(world, |place| *place == Place::Finished(Told::Completed { mint: kept.mint }))
}

fn a_zombie_is_refused(_: &Setting, world: &World) -> bool {
    any_at(world, |place| matches!(place, Place::Finished(Told::Refused)))
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

fn a_reuse_is_seen(_: &Setting, world: &World) -> bool {
    any_at(world, |place| matches!(place, Place::Finished(Told::Mismatch)))
}

fn another_caller_is_refused(_: &Setting, world: &World) -> bool {
    any_at(world, |place| matches!(place, Place::Finished(Told::CallerChanged)))
}

/// A token that no grant of the model has; it is asked with where an answer is only looked at.
const UNUSED: Mint = Mint::MAX;

/// Every call that is ever made, and one more: a newcomer's.
fn calls(setting: &Setting) -> impl Iterator<Item = Call> {
    let callers = 0..u8::try_from(setting.callers.len()).unwrap();
    let lives = setting.lives;
    callers.flat_map(move |caller| (0..=lives).map(move |life| Call { caller, life }))
}

fn effects(world: &World) -> usize {
    world.past.iter().filter(|past| past.ran).count()
}

fn grant(world: &World, mint: Mint) -> &Past {
    world.past.iter().rfind(|past| past.mint == mint).unwrap()
}

fn any_at(world: &World, is: impl Fn(&Place) -> bool) -> bool {
    world.callers.iter().any(|caller| is(&caller.at))
}
