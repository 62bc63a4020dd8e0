//! What can happen in the world, and its consequences. The rules make every decision of the ledger.

use ichido_core::rules::{self, Change};
use ichido_core::{Claim, InDoubtPolicy, Phase, Record, Resolution, Resolved, Settle, Settled, Timestamp};
use stateright::{Model, Property};

use super::promises;
use super::world::{
    Call, Caller, End, GRANTS_MAX, LEASE_MS, Learned, Message, PastGrant, Progress, RecordedOutcome, Setting,
    TokenId, Tokens, Verb, World, erased_outcome, operators_outcome, outcome, token,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Received,
    Lost,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Tick,
    Claim(u8),
    RunEffect(u8),
    Settle(u8, Verb),
    /// The caller loses its memory and starts again with a new nonce.
    Restart(u8),
    Deliver(Message, Reply),
    Resolve(Resolution),
}

impl Model for Setting {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            now: 0,
            record: None,
            callers: vec![Caller { life: 0, progress: Progress::Idle }; self.callers.len()],
            sent: Vec::new(),
            resolutions_left: self.resolutions,
            past: Vec::new(),
            recorded: None,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.now < self.ticks {
            actions.push(Action::Tick);
        }
        for (index, caller) in (0..).zip(&world.callers) {
            match caller.progress {
                Progress::Idle => actions.push(Action::Claim(index)),
                Progress::Holding { ran, .. } => {
                    actions.extend([Action::Settle(index, Verb::Renew), Action::Settle(index, Verb::Doubt)]);
                    if ran {
                        actions.push(Action::Settle(index, Verb::Complete));
                    } else {
                        actions.extend([Action::RunEffect(index), Action::Settle(index, Verb::Release)]);
                    }
                }
                Progress::Claiming | Progress::Completing { .. } | Progress::Finished(_) => {}
            }
            if caller.progress != Progress::Idle && caller.life + 1 < self.lives {
                actions.push(Action::Restart(index));
            }
        }
        for message in &world.sent {
            actions.push(Action::Deliver(*message, Reply::Received));
            actions.push(Action::Deliver(*message, Reply::Lost));
        }
        if world.resolutions_left > 0 {
            let done = Resolution::Done(operators_outcome());
            actions.extend([done, Resolution::Absent, Resolution::Release].map(Action::Resolve));
            // Of another claim, an operator would have seen another token.
            actions
                .extend(world.record.as_ref().map(|record| Action::Resolve(Resolution::Erase(record.token))));
        }
    }

    fn next_state(&self, before: &World, action: Action) -> Option<World> {
        let mut world = before.clone();
        match action {
            Action::Tick => world.now += 1,
            Action::Claim(index) => {
                let caller = &mut world.callers[usize::from(index)];
                caller.progress = Progress::Claiming;
                let call = Call { caller: index, life: caller.life };
                world.send(Message::Claim(call));
            }
            Action::RunEffect(index) => {
                if let Progress::Holding { token_id, ran, .. } =
                    &mut world.callers[usize::from(index)].progress
                {
                    *ran = true;
                    let token_id = *token_id;
                    world.past_of(token_id).ran = true;
                }
            }
            Action::Settle(index, verb) => self.send_settle(&mut world, index, verb),
            Action::Restart(index) => {
                let caller = &mut world.callers[usize::from(index)];
                *caller = Caller { life: caller.life + 1, progress: Progress::Idle };
            }
            Action::Deliver(Message::Claim(call), reply) => self.deliver_claim(&mut world, call, reply),
            Action::Deliver(Message::Settle(token_id, verb), reply) => {
                self.deliver_settle(&mut world, token_id, verb, reply);
            }
            Action::Resolve(resolution) => self.resolve(&mut world, &resolution),
        }
        (world != *before).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        promises::of(self)
    }

    /// Only reached if a released call can be granted its old token again and again.
    fn within_boundary(&self, world: &World) -> bool {
        world.past.len() <= GRANTS_MAX
    }
}

impl Setting {
    fn token_id_for(&self, world: &World, call: Call) -> TokenId {
        match self.tokens {
            Tokens::PerDelivery => u8::try_from(world.past.len()).unwrap() + 1,
            Tokens::PerCall => call.caller * self.lives + call.life + 1,
        }
    }

    fn deliver_claim(&self, world: &mut World, call: Call, reply: Reply) {
        let token_id = self.token_id_for(world, call);
        let decision =
            self.rules.claim(world.record.as_ref(), &self.request(call, token_id), Timestamp(world.now));
        let is_retry = decision.change == Change::Keep;
        match decision.change {
            Change::Put(record) => self.begin_grant(world, call, record),
            Change::Keep => {}
            Change::Remove => unreachable!("a claim removes no record"),
        }
        let caller = &mut world.callers[usize::from(call.caller)];
        if reply == Reply::Lost || caller.life != call.life || caller.progress != Progress::Claiming {
            return;
        }
        caller.progress = match decision.result {
            Claim::Granted(grant) => {
                Progress::Holding { token_id: grant.token.as_bytes()[0], ran: false, repaired: is_retry }
            }
            Claim::Held { .. } | Claim::InDoubt(_) => Progress::Claiming,
            Claim::Done(outcome) => Progress::Finished(Learned::Done(outcome)),
            Claim::Mismatch => Progress::Finished(Learned::Mismatch),
            Claim::CallerChanged => Progress::Finished(Learned::CallerChanged),
        };
    }

    fn begin_grant(&self, world: &mut World, call: Call, record: Record) {
        if let Some(old) = world.record.take() {
            world.end_grant(&old, self.overwritten(&old, world.now));
        }
        if world.recorded.as_ref().is_some_and(|recorded| world.now >= recorded.at + self.retention_ms) {
            world.recorded = None;
        }
        world.past.push(PastGrant { token_id: record.token.as_bytes()[0], call, ran: false, end: None });
        world.record = Some(without_unread_fields(record));
    }

    /// How a grant ended whose record was overwritten, judged by what the old record meant.
    fn overwritten(&self, old: &Record, now: u64) -> End {
        match (old.phase(Timestamp(now)), self.in_doubt) {
            (Phase::Expired { .. }, _) => End::Expired,
            (Phase::InDoubt(_), InDoubtPolicy::Retry { silent_ms })
                if now >= old.renewed_at.0 + silent_ms =>
            {
                End::TakenOver
            }
            (Phase::Running { .. } | Phase::InDoubt(_) | Phase::Done(_), _) => End::Unexplained,
        }
    }

    fn deliver_settle(&self, world: &mut World, token_id: TokenId, verb: Verb, reply: Reply) {
        let decision = self.rules.settle(
            world.record.as_ref(),
            token(token_id),
            &settle_action(token_id, verb),
            Timestamp(world.now),
        );
        if verb == Verb::Complete && decision.result == Settled::Applied && world.recorded.is_none() {
            world.recorded = Some(RecordedOutcome { outcome: outcome(token_id), token_id, at: world.now });
        }
        match decision.change {
            Change::Put(record) => world.record = Some(without_unread_fields(record)),
            Change::Keep => {}
            Change::Remove => {
                if let Some(old) = world.record.take() {
                    let is_own = old.token == token(token_id);
                    world.end_grant(&old, if is_own { End::Released } else { End::Unexplained });
                }
            }
        }
        if verb == Verb::Complete && reply == Reply::Received {
            let completing = Progress::Completing { token_id };
            for caller in world.callers.iter_mut().filter(|caller| caller.progress == completing) {
                caller.progress = Progress::Finished(match decision.result {
                    Settled::Applied => Learned::Completed { token_id },
                    Settled::Stale(_) => Learned::Refused,
                });
            }
        }
    }

    fn resolve(&self, world: &mut World, resolution: &Resolution) {
        let decision = rules::resolve(world.record.as_ref(), resolution, Timestamp(world.now));
        if decision.result != Resolved::Applied {
            return;
        }
        world.resolutions_left -= 1;
        match (decision.change, resolution) {
            (Change::Put(record), Resolution::Done(outcome) | Resolution::DoneAsSeen(_, outcome)) => {
                let token_id = record.token.as_bytes()[0];
                world.recorded = Some(RecordedOutcome { outcome: outcome.clone(), token_id, at: world.now });
                world.record = Some(without_unread_fields(record));
            }
            (Change::Put(record), Resolution::Erase(_)) => {
                // The effect stays recorded; from now on, retries learn that its outcome was not kept.
                if let Some(recorded) = &mut world.recorded {
                    recorded.outcome = erased_outcome();
                }
                world.record = Some(without_unread_fields(record));
            }
            (Change::Keep, Resolution::Erase(_)) => {}
            (Change::Remove, Resolution::Absent | Resolution::AbsentAsSeen(_) | Resolution::Release) => {
                if let Some(old) = world.record.take() {
                    world.end_grant(&old, End::Resolved);
                }
            }
            (change, resolution) => unreachable!("{resolution:?} was applied and led to {change:?}"),
        }
    }

    fn send_settle(&self, world: &mut World, caller: u8, verb: Verb) {
        let progress = &mut world.callers[usize::from(caller)].progress;
        let Progress::Holding { token_id, .. } = *progress else { return };
        match verb {
            Verb::Complete => *progress = Progress::Completing { token_id },
            Verb::Release => *progress = Progress::Finished(Learned::Released),
            Verb::Renew | Verb::Doubt => {}
        }
        world.send(Message::Settle(token_id, verb));
    }
}

fn settle_action(token_id: TokenId, verb: Verb) -> Settle {
    match verb {
        Verb::Renew => Settle::Renew { lease_ms: LEASE_MS },
        Verb::Complete => Settle::Complete(outcome(token_id)),
        Verb::Release => Settle::Release,
        Verb::Doubt => Settle::Doubt(String::new()),
    }
}

/// Removes what the rules write but never read, so that states that behave alike are equal.
fn without_unread_fields(record: Record) -> Record {
    Record { claimed_at: Timestamp(0), renewals: 0, ..record }
}
