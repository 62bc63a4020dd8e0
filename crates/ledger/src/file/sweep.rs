//! Forgetting: small bites inside the group commits, so that claims go on.
//!
//! `ends` is ordered by time. A sweep walks it from where the last one stopped (not from its beginning, where the
//! engine would wade through what was removed before) up to the present. A member of `ends` is a hint only: the
//! record itself says whether it is over, because its key may have been claimed anew.
//!
//! Doubt is not in `ends`. Claims in `open` are few, but among them lie the traces of all that were completed lately,
//! and walking over those takes time. So `open` is looked through by a reader ([`find_doubts`]), and the writer is told
//! which claims to look at.

use ichido_core::{Index, Phase, Timestamp};

use super::codec::{self, Kind};
use super::engine::guarded;
use super::fault;
use super::queue::Reply;
use super::replies::Answer;
use super::round::Round;
use super::view::View;
use crate::{Result, Swept};

/// Records that are looked at in one group commit, at least.
pub(super) const BITE: usize = 256;

/// What is over is left to those who sweep by hand for so long; then the writer takes it by itself.
pub(super) const GRACE_MS: u64 = 600_000;

/// A sweep that is under way.
#[derive(Debug)]
pub(super) struct Job {
    left: usize,
    swept: Swept,
    stage: Stage,
    doubts: Doubts,
    grace_ms: u64,
    reply: Option<Reply<Swept>>,
}

#[derive(Debug)]
enum Stage {
    Ends,
    Doubts,
    Over,
}

/// Claims whose doubt seems to be over.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    pub(super) found: Vec<Index>,
    /// There are more than were asked for.
    pub(super) more: bool,
}

impl Job {
    /// A sweep that someone asked for.
    pub(super) fn asked(limit: usize, doubts: Doubts, reply: Reply<Swept>) -> Self {
        Self { left: limit, reply: Some(reply), grace_ms: 0, ..Self::own(doubts) }
    }

    /// A sweep of the writer's own.
    pub(super) fn own(doubts: Doubts) -> Self {
        let (swept, stage) = (Swept::default(), Stage::Ends);
        Self { left: usize::MAX, swept, stage, doubts, grace_ms: GRACE_MS, reply: None }
    }

    /// Takes one bite of about `size`. Returns up to where `ends` is empty once the round is committed.
    pub(super) fn bite(
        &mut self,
        round: &mut Round<'_>,
        size: usize,
        swept_to: Timestamp,
    ) -> Result<Timestamp> {
        match self.stage {
            Stage::Ends => self.bite_ends(round, size, swept_to),
            Stage::Doubts => self.bite_doubts(round).map(|()| swept_to),
            Stage::Over => Ok(swept_to),
        }
    }

    fn bite_ends(
        &mut self,
        round: &mut Round<'_>,
        size: usize,
        mut swept_to: Timestamp,
    ) -> Result<Timestamp> {
        let view = round.view;
        let until = Timestamp(round.now.0.saturating_sub(self.grace_ms));
        let mut seen = 0;
        for guard in view.engine.ends.range(due(swept_to, until)) {
            let (key, value) = guarded(view.dir, || guard.into_inner())?;
            let flaw = |flaw| fault::flaw(view.dir, "ends", flaw);
            let members = codec::decode_ends(&value).map_err(flaw)?;
            swept_to = codec::end_of(&key).map_err(flaw)?;
            let mut rest = Vec::new();
            for &(kind, index) in &members {
                if self.left == 0 {
                    codec::push_end(&mut rest, kind, index);
                } else {
                    self.drop_over(round, kind, index)?;
                }
            }
            self.swept.more |= !rest.is_empty();
            round.spent.push((key, rest));
            if self.swept.more {
                self.stage = Stage::Over;
                return Ok(swept_to);
            }
            seen += members.len();
            if seen >= size {
                return Ok(swept_to);
            }
        }
        self.stage = Stage::Doubts;
        Ok(until.max(swept_to))
    }

    fn drop_over(&mut self, round: &mut Round<'_>, kind: Kind, index: Index) -> Result<()> {
        let dropped = match kind {
            Kind::Claim => round.drop_done(index)?,
            Kind::Mark => round.drop_mark(index)?,
        };
        if dropped {
            self.swept.removed += 1;
            self.left -= 1;
        }
        Ok(())
    }

    fn bite_doubts(&mut self, round: &mut Round<'_>) -> Result<()> {
        for _ in 0..BITE {
            let Some(index) = self.doubts.found.pop() else {
                self.swept.more |= self.doubts.more;
                self.stage = Stage::Over;
                return Ok(());
            };
            if self.left == 0 {
                (self.swept.more, self.stage) = (true, Stage::Over);
                return Ok(());
            }
            if round.drop_doubt(index)? {
                self.swept.removed += 1;
                self.swept.doubts_ended += 1;
                self.left -= 1;
            }
        }
        Ok(())
    }

    /// Whether there is nothing left to do.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    /// The answer, if someone asked.
    pub(super) fn answer(self) -> Option<Answer> {
        self.reply.map(|reply| Answer::Sweep(reply, self.swept))
    }

    /// Answers with an error, if someone asked.
    pub(super) fn fail(self, error: crate::Error) {
        match self.reply {
            Some(reply) => drop(reply.send(Err(error))),
            None => tracing::warn!(%error, "sweeping failed"),
        }
    }
}

/// Looks through `open` for at most `limit` claims whose doubt has been over for `grace_ms`, until told to stop.
pub(super) fn find_doubts(
    view: View<'_>,
    now: Timestamp,
    grace_ms: u64,
    limit: usize,
    stop: impl Fn() -> bool,
) -> Result<Doubts> {
    let mut doubts = Doubts::default();
    for guard in view.engine.open.iter() {
        let (key, value) = guarded(view.dir, || guard.into_inner())?;
        let record = view.revived(&key, &value)?;
        let over = record.phase(now) == (Phase::Over { in_doubt: true });
        if over && now >= record.over_at() + grace_ms {
            if doubts.found.len() == limit {
                doubts.more = true;
                break;
            }
            doubts.found.push(record.key.index());
        }
        if stop() {
            break;
        }
    }
    Ok(doubts)
}

/// Whether something in `ends` waits for the writer.
pub(super) fn is_due(view: View<'_>, swept_to: Timestamp, now: Timestamp) -> bool {
    let until = Timestamp(now.0.saturating_sub(GRACE_MS));
    swept_to <= until && view.engine.ends.range(due(swept_to, until)).next().is_some()
}

fn due(swept_to: Timestamp, until: Timestamp) -> std::ops::Range<[u8; 18]> {
    codec::end_key(swept_to, 0, 0)..codec::end_key((until + 1).max(swept_to), 0, 0)
}
