//! What can happen in the world, and what it leads to. Every decision of the ledger is asked of the rules.

use ichido_core::rules::{self, Change};
use ichido_core::{Claim, InDoubtPolicy, Phase, Record, Resolution, Resolved, Settle, Settled, Timestamp};
use stateright::{Model, Property};

use crate::promises;
use crate::world::{
    Call, Caller, End, GRANTS_MAX, Kept, LEASE_MS, Message, Mint, Past, Place, Setting, Tokens, Told, Word,
    World, operators_outcome, outcome, token,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Heard,
    Lost,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Tick,
    Ask(u8),
    RunEffect(u8),
    Say(u8, Word),
    /// The caller forgets everything and comes back as a new one.
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
            callers: vec![Caller { life: 0, at: Place::Idle }; self.callers.len()],
            sent: Vec::new(),
            words_left: self.words,
            past: Vec::new(),
            kept: None,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.now < self.ticks {
            actions.push(Action::Tick);
        }
        for (index, caller) in (0..).zip(&world.callers) {
            match caller.at {
                Place::Idle => actions.push(Action::Ask(index)),
                Place::Holding { ran, .. } => {
                    actions.extend([Action::Say(index, Word::Renew), Action::Say(index, Word::Doubt)]);
                    if ran {
                        actions.push(Action::Say(index, Word::Complete));
                    } else {
                        actions.extend([Action::RunEffect(index), Action::Say(index, Word::Release)]);
                    }
                }
                Place::Asking | Place::Completing { .. } | Place::Finished(_) => {}
            }
            if caller.at != Place::Idle && caller.life + 1 < self.lives {
                actions.push(Action::Restart(index));
            }
        }
        for message in &world.sent {
            actions.push(Action::Deliver(*message, Reply::Heard));
            actions.push(Action::Deliver(*message, Reply::Lost));
        }
        if world.words_left > 0 {
            let done = Resolution::Done(operators_outcome());
            actions.extend([done, Resolution::Absent, Resolution::Release].map(Action::Resolve));
        }
    }

    fn next_state(&self, before: &World, action: Action) -> Option<World> {
        let mut world = before.clone();
        match action {
            Action::Tick => world.now += 1,
            Action::Ask(index) => {
                let caller = &mut world.callers[usize::from(index)];
                caller.at = Place::Asking;
                let call = Call { caller: index, life: caller.life };
                world.send(Message::Claim(call));
            }
            Action::RunEffect(index) => {
                if let Place::Holding { mint, ran, .. } = &mut world.callers[usize::from(index)].at {
                    *ran = true;
                    let mint = *mint;
                    world.past_of(mint).ran = true;
                }
            }
            Action::Say(index, word) => self.say(&mut world, index, word),
            Action::Restart(index) => {
                let caller = &mut world.callers[usize::from(index)];
                *caller = Caller { life: caller.life + 1, at: Place::Idle };
            }
            Action::Deliver(Message::Claim(call), reply) => self.deliver_claim(&mut world, call, reply),
            Action::Deliver(Message::Word(mint, word), reply) => {
                self.deliver_word(&mut world, mint, word, reply);
            }
            Action::Resolve(word) => self.resolve(&mut world, &word),
        }
        (world != *before).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        promises::of(self)
    }

    /// Only reached where a released call can be granted its old token again, without end.
    fn within_boundary(&self, world: &World) -> bool {
        world.past.len() <= GRANTS_MAX
    }
}

impl Setting {
    fn mint_for(&self, world: &World, call: Call) -> Mint {
        match self.tokens {
            Tokens::PerDelivery => u8::try_from(world.past.len()).unwrap() + 1,
            Tokens::PerCall => call.caller * self.lives + call.life + 1,
        }
    }

    fn deliver_claim(&self, world: &mut World, call: Call, reply: Reply) {
        let mint = self.mint_for(world, call);
        let step = self.rules.claim(world.record.as_ref(), &self.request(call, mint), Timestamp(world.now));
        let repaired = step.change == Change::Keep;
        match step.change {
            Change::Put(record) => self.begin_grant(world, call, record),
            Change::Keep => {}
            Change::Remove => unreachable!("a claim removes nothing"),
        }
        let caller = &mut world.callers[usize::from(call.caller)];
        if reply == Reply::Lost || caller.life != call.life || caller.at != Place::Asking {
            return;
        }
        caller.at = match step.answer {
            Claim::Granted(grant) => Place::Holding { mint: grant.token.as_bytes()[0], ran: false, repaired },
            Claim::Held { .. } | Claim::InDoubt(_) => Place::Asking,
            Claim::Done(outcome) => Place::Finished(Told::Done(outcome)),
            Claim::Mismatch => Place::Finished(Told::Mismatch),
            Claim::CallerChanged => Place::Finished(Told::CallerChanged),
        };
    }

    fn begin_grant(&self, world: &mut World, call: Call, record: Record) {
        if let Some(old) = world.record.take() {
            world.end_grant(&old, self.overwritten(&old, world.now));
        }
        if world.kept.as_ref().is_some_and(|kept| world.now >= kept.at + self.retention_ms) {
            world.kept = None;
        }
        world.past.push(Past { mint: record.token.as_bytes()[0], call, ran: false, end: None });
        world.record = Some(plain(record));
    }

    /// How a grant ended that another was written over, judged by what the old record meant.
    fn overwritten(&self, old: &Record, now: u64) -> End {
        match (old.phase(Timestamp(now)), self.in_doubt) {
            (Phase::Over { .. }, _) => End::Expired,
            (Phase::InDoubt(_), InDoubtPolicy::Retry { silent_ms })
                if now >= old.renewed_at.0 + silent_ms =>
            {
                End::TakenOver
            }
            (Phase::Running { .. } | Phase::InDoubt(_) | Phase::Done(_), _) => End::Silently,
        }
    }

    fn deliver_word(&self, world: &mut World, mint: Mint, word: Word, reply: Reply) {
        let step = self.rules.settle(
            world.record.as_ref(),
            token(mint),
            &settle_word(mint, word),
            Timestamp(world.now),
        );
        if word == Word::Complete && step.answer == Settled::Applied && world.kept.is_none() {
            world.kept = Some(Kept { outcome: outcome(mint), mint, at: world.now });
        }
        match step.change {
            Change::Put(record) => world.record = Some(plain(record)),
            Change::Keep => {}
            Change::Remove => {
                if let Some(old) = world.record.take() {
                    let own = old.token == token(mint);
                    world.end_grant(&old, if own { End::Released } else { End::Silently });
                }
            }
        }
        if word == Word::Complete && reply == Reply::Heard {
            let waiting = Place::Completing { mint };
            for caller in world.callers.iter_mut().filter(|caller| caller.at == waiting) {
                caller.at = Place::Finished(match step.answer {
                    Settled::Applied => Told::Completed { mint },
                    Settled::Stale(_) => Told::Refused,
                });
            }
        }
    }

    fn resolve(&self, world: &mut World, word: &Resolution) {
        let step = rules::resolve(world.record.as_ref(), word, Timestamp(world.now));
        if step.answer != Resolved::Applied {
            return;
        }
        world.words_left -= 1;
        match (step.change, word) {
            (Change::Put(record), Resolution::Done(outcome)) => {
                let mint = record.token.as_bytes()[0];
                world.kept = Some(Kept { outcome: outcome.clone(), mint, at: world.now });
                world.record = Some(plain(record));
            }
            (Change::Remove, Resolution::Absent | Resolution::Release) => {
                if let Some(old) = world.record.take() {
                    world.end_grant(&old, End::Resolved);
                }
            }
            (change, word) => unreachable!("{word:?} was taken and led to {change:?}"),
        }
    }

    fn say(&self, world: &mut World, caller: u8, word: Word) {
        let place = &mut world.callers[usize::from(caller)].at;
        let Place::Holding { mint, .. } = *place else { return };
        match word {
            Word::Complete => *place = Place::Completing { mint },
            Word::Release => *place = Place::Finished(Told::Released),
            Word::Renew | Word::Doubt => {}
        }
        world.send(Message::Word(mint, word));
    }
}

fn settle_word(mint: Mint, word: Word) -> Settle {
    match word {
        Word::Renew => Settle::Renew { lease_ms: LEASE_MS },
        Word::Complete => Settle::Complete(outcome(mint)),
        Word::Release => Settle::Release,
        Word::Doubt => Settle::Doubt(String::new()),
    }
}

/// Without what the rules write but never read, so that states that behave alike are one.
fn plain(record: Record) -> Record {
    Record { claimed_at: Timestamp(0), renewals: 0, ..record }
}
