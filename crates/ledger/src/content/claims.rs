//! Checks the content of an event whose id is claimed: the claim says whether the event was handled.

use ichido_core::mark::{Forgotten, Mark};
use ichido_core::{Key, Phase, State};

use super::{ContentHit, ContentKey, ContentMode, Ownership, sorted};
use crate::{Ledger, Result};

/// How often an unhandled owner is replaced before its key is left alone. More than one means that others replace it too.
const REPLACEMENTS_MAX: usize = 8;

/// What the content of a claimed event says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContentCheck {
    /// The event is to be handled. With [`ContentMode::Observe`], these are the hits.
    Handle(Vec<ContentHit>),
    /// The content was handled with another event.
    Handled(ContentHit),
    /// Another event with this content is being handled. Release the claim and let the sender retry.
    InFlight(ContentHit),
}

/// What the claim of an owner says.
enum Owner {
    Handled,
    Running,
    /// Released, in doubt, expired, or never claimed.
    Unhandled,
}

impl Ledger {
    /// Makes a claimed event the owner of its content, unless another event with this content was handled or is running.
    /// Call this only while the claim is held. Owners are keys in the same scope.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave content marked. That does not refuse other events, because this one is not handled.
    pub async fn check_content(
        &self,
        event: &Key,
        content: Vec<ContentKey>,
        retention_ms: u64,
        mode: ContentMode,
    ) -> Result<ContentCheck> {
        let keys = sorted(content);
        let mut hits = Vec::new();
        for (at, key) in keys.iter().enumerate() {
            let (hit, owner) = match self.own(event, key, retention_ms).await? {
                None => continue,
                Some(other) => other,
            };
            match (mode, owner) {
                (_, Owner::Unhandled) => {}
                (ContentMode::Observe, Owner::Handled | Owner::Running) => hits.push(hit),
                (ContentMode::Enforce, Owner::Handled) => {
                    // Once this claim is done, a key that it owns would say that the content was handled.
                    for key in &keys[..at] {
                        self.disown(key, event.text()).await?;
                    }
                    return Ok(ContentCheck::Handled(hit));
                }
                (ContentMode::Enforce, Owner::Running) => return Ok(ContentCheck::InFlight(hit)),
            }
        }
        Ok(ContentCheck::Handle(hits))
    }

    /// Marks a key. Returns its owner if that is another event which was handled or is running.
    ///
    /// The mark is read before the claim of its owner, and only that mark is replaced. An owner that comes back makes a new
    /// mark. So it is never replaced because of what its claim was before. A mark that is still there once its owner is done
    /// belongs to an event that was handled: a refused one removes its marks first.
    async fn own(
        &self,
        event: &Key,
        key: &ContentKey,
        retention_ms: u64,
    ) -> Result<Option<(ContentHit, Owner)>> {
        for _ in 0..REPLACEMENTS_MAX {
            let request = self.own_request(key, event.text(), retention_ms)?;
            let Some(marked) = self.mark_unobserved(std::slice::from_ref(&request)).await?.pop() else {
                return Ok(None);
            };
            if marked.mark == Mark::New {
                return Ok(None);
            }
            let Some(record) = self.get_mark(&key.key).await? else { continue };
            let seen = Mark::Seen { first_seen: record.marked_at, metadata: record.metadata.clone() };
            if let Ownership::Other(hit) = Ownership::of(key, event.text(), seen) {
                match self.owner(event, &hit.event).await? {
                    Owner::Unhandled => {}
                    Owner::Running => return Ok(Some((hit, Owner::Running))),
                    // The claim of a refused event is done as well, but its marks were removed before.
                    Owner::Handled => match self.get_mark(&key.key).await?.as_ref() == Some(&record) {
                        true => return Ok(Some((hit, Owner::Handled))),
                        false => continue,
                    },
                }
            }
            match self.forget_unobserved(&record).await? {
                Forgotten::Removed | Forgotten::Gone => {}
            }
        }
        Ok(None)
    }

    async fn owner(&self, event: &Key, owner: &str) -> Result<Owner> {
        let Ok(key) = Key::new(event.scope().clone(), owner) else { return Ok(Owner::Unhandled) };
        let Some(record) = self.get(&key).await? else { return Ok(Owner::Unhandled) };
        Ok(match record.state {
            State::Done(_) => Owner::Handled,
            State::InDoubt(_) => Owner::Unhandled,
            State::Running => match record.phase(self.settings().clock.now()) {
                Phase::Running { .. } => Owner::Running,
                Phase::InDoubt(_) | Phase::Done(_) | Phase::Expired { .. } => Owner::Unhandled,
            },
        })
    }
}
