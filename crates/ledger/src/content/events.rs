//! Marks events by their content and their id, in rounds: each round is one call for all events of a batch.

use std::collections::HashMap;

use futures_util::future::try_join_all;
use ichido_core::mark::{self, Mark};
use ichido_core::{MarkKey, Metadata, Timestamp};
use tokio::time::{Instant, sleep};

use super::{ContentHit, ContentKey, ContentMode, Ownership, PATIENCE, sorted};
use crate::{Ledger, Marked, Result};

/// The pause between two looks at an undecided owner.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(20);
/// The most calls at once that look up owners.
const LOOKUPS_MAX: usize = 32;

/// An event with its id and content.
#[derive(Clone, Debug)]
pub struct Event {
    /// The id.
    pub id: mark::Request,
    /// Parts of the content, in any order.
    pub content: Vec<ContentKey>,
}

/// The result of checking an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedEvent {
    /// Whether it is to be handled.
    pub result: EventResult,
    /// The content that was seen in other events.
    pub content_hits: Vec<ContentHit>,
    /// The primary was unreachable, and the fallback answered.
    pub degraded: bool,
}

/// Whether an event is to be handled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventResult {
    /// The event was not seen before. Its id is marked.
    New,
    /// The id was seen before.
    Seen {
        /// When it was first seen.
        first_seen: Timestamp,
        /// The metadata of the first caller.
        metadata: Metadata,
    },
    /// The content was handled with another event. The id is not marked.
    SameContent,
}

/// An event whose id is not marked yet.
struct Undecided {
    /// Its position in the batch.
    at: usize,
    keys: Vec<ContentKey>,
    /// How many keys it is past.
    passed: usize,
    /// The keys that it marked itself.
    fresh: Vec<usize>,
    hits: Vec<ContentHit>,
    /// Since when it waits for the owner of the next key.
    waiting: Option<(ContentHit, Instant)>,
    degraded: bool,
}

impl Undecided {
    /// Passes the next key.
    fn pass(&mut self) {
        self.passed += 1;
        self.waiting = None;
    }

    fn next_key(&self) -> Option<&ContentKey> {
        self.keys.get(self.passed)
    }
}

impl Ledger {
    /// Marks events by content and id, and reports for each whether it is new. A key that occurs twice in one batch is new
    /// once.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave events marked. Call again with the same requests to get the same results.
    pub async fn check_events(&self, events: Vec<Event>, mode: ContentMode) -> Result<Vec<CheckedEvent>> {
        if events.iter().all(|event| event.content.is_empty()) {
            let ids: Vec<mark::Request> = events.into_iter().map(|event| event.id).collect();
            return Ok(self.mark(&ids).await?.into_iter().map(without_content).collect());
        }
        let ids: Vec<mark::Request> = events.iter().map(|event| event.id.clone()).collect();
        let mut checked: Vec<Option<CheckedEvent>> = vec![None; events.len()];
        let undecided = |(at, event): (usize, Event)| Undecided {
            at,
            keys: sorted(event.content),
            passed: 0,
            fresh: Vec::new(),
            hits: Vec::new(),
            waiting: None,
            degraded: false,
        };
        let mut undecided: Vec<Undecided> = events.into_iter().enumerate().map(undecided).collect();
        while !undecided.is_empty() {
            let before = remaining(&undecided);
            self.mark_next_keys(&mut undecided, &ids, mode).await?;
            undecided = self.decide(undecided, &ids, &mut checked).await?;
            if remaining(&undecided) == before {
                sleep(PAUSE).await;
            }
        }
        Ok(checked.into_iter().flatten().collect())
    }

    /// Marks the next key of each event.
    async fn mark_next_keys(
        &self,
        undecided: &mut [Undecided],
        ids: &[mark::Request],
        mode: ContentMode,
    ) -> Result<()> {
        let waiting: Vec<&mut Undecided> =
            undecided.iter_mut().filter(|event| event.next_key().is_some()).collect();
        let requests = waiting.iter().filter_map(|event| {
            let id = &ids[event.at];
            Some(self.own_request(event.next_key()?, id.key.text(), id.retention_ms))
        });
        let requests = requests.collect::<Result<Vec<_>>>()?;
        let marked = self.mark_unobserved(&requests).await?;
        for (event, Marked { mark, degraded }) in waiting.into_iter().zip(marked) {
            event.degraded |= degraded;
            let Some(key) = event.next_key() else { continue };
            match (Ownership::of(key, ids[event.at].key.text(), mark), mode) {
                (Ownership::Own { is_fresh }, _) => {
                    event.fresh.extend(is_fresh.then_some(event.passed));
                    event.pass();
                }
                (Ownership::Other(hit), ContentMode::Observe) => {
                    event.hits.push(hit);
                    event.pass();
                }
                (Ownership::Other(hit), ContentMode::Enforce) => {
                    let since = match event.waiting.take() {
                        Some((known, since)) if known == hit => since,
                        Some(_) | None => Instant::now(),
                    };
                    event.waiting = Some((hit, since));
                }
            }
        }
        Ok(())
    }

    /// Refuses events whose content was handled, marks the ids of those that are past all keys, and returns the others.
    async fn decide(
        &self,
        undecided: Vec<Undecided>,
        ids: &[mark::Request],
        checked: &mut [Option<CheckedEvent>],
    ) -> Result<Vec<Undecided>> {
        let handled = self.handled_owners(&undecided).await?;
        let (mut still, mut past) = (Vec::new(), Vec::new());
        for event in undecided {
            match &event.waiting {
                None if event.next_key().is_none() => past.push(event),
                Some((hit, _)) if handled.get(&hit.event).copied().unwrap_or_default() => {
                    let at = event.at;
                    checked[at] = Some(self.refuse(event, ids).await?);
                }
                Some((hit, since)) if since.elapsed() >= PATIENCE => {
                    if let Some(key) = event.next_key() {
                        self.disown(key, &hit.event).await?;
                    }
                    still.push(event);
                }
                None | Some(_) => still.push(event),
            }
        }
        let requests: Vec<mark::Request> = past.iter().map(|event| ids[event.at].clone()).collect();
        for (event, marked) in past.into_iter().zip(self.mark(&requests).await?) {
            let degraded = event.degraded || marked.degraded;
            checked[event.at] =
                Some(CheckedEvent { content_hits: event.hits, degraded, ..without_content(marked) });
        }
        Ok(still)
    }

    /// For each owner that an event waits for: whether its id is marked.
    async fn handled_owners(&self, undecided: &[Undecided]) -> Result<HashMap<String, bool>> {
        let mut owners: Vec<&str> = Vec::new();
        owners.extend(undecided.iter().filter_map(|event| Some(event.waiting.as_ref()?.0.event.as_str())));
        owners.sort_unstable();
        owners.dedup();
        let mut handled = HashMap::with_capacity(owners.len());
        for chunk in owners.chunks(LOOKUPS_MAX) {
            let look = chunk.iter().map(async |owner| {
                let is_handled = match MarkKey::new(*owner) {
                    Ok(key) => self.get_mark(&key).await?.is_some(),
                    // A mark without an owner was not made by an event. Nobody handles it.
                    Err(_) => false,
                };
                Ok::<_, crate::Error>(((*owner).to_owned(), is_handled))
            });
            handled.extend(try_join_all(look).await?);
        }
        Ok(handled)
    }

    /// Answers an event whose content was handled with another one.
    async fn refuse(&self, mut event: Undecided, ids: &[mark::Request]) -> Result<CheckedEvent> {
        self.disown_fresh(&event, ids).await?;
        let hit = event.waiting.take().map(|(hit, _)| hit);
        self.observe_same_content(&ids[event.at], hit.as_ref().map(|hit| hit.event.as_str()), event.degraded);
        event.hits.extend(hit);
        let result = EventResult::SameContent;
        Ok(CheckedEvent { result, content_hits: event.hits, degraded: event.degraded })
    }

    async fn disown_fresh(&self, event: &Undecided, ids: &[mark::Request]) -> Result<()> {
        for at in &event.fresh {
            self.disown(&event.keys[*at], ids[event.at].key.text()).await?;
        }
        Ok(())
    }
}

/// The marks that are still to be made.
fn remaining(undecided: &[Undecided]) -> usize {
    undecided.iter().map(|event| 1 + event.keys.len() - event.passed).sum()
}

fn without_content(Marked { mark, degraded }: Marked) -> CheckedEvent {
    let result = match mark {
        Mark::New => EventResult::New,
        Mark::Seen { first_seen, metadata } => EventResult::Seen { first_seen, metadata },
    };
    CheckedEvent { result, content_hits: Vec::new(), degraded }
}
