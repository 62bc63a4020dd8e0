//! Whether the process can do its work: each part with its verdict.
//!
//! Whoever asks `/readyz` shows no token, so a verdict says what is wrong and no more, and asking often costs nothing:
//! answers are kept for a moment.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use ichido_ledger::Ledger;
use serde::Serialize;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

/// The longest that one part may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long an answer is good for.
const FRESH: Duration = Duration::from_millis(500);

/// What one part is asked: nothing is wrong, or what is.
pub type Probe = Arc<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// Who must know what a probe finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// `/readyz`, and people.
    Ready,
    /// People only: the process is ready without this part.
    People,
}

/// The parts that must work.
#[derive(Clone, Default)]
pub struct Readiness {
    probes: Vec<(&'static str, Audience, Probe)>,
    last: Arc<Mutex<Option<Asked>>>,
}

/// When the parts were last asked, and what was found.
type Asked = (Instant, Vec<Verdict>);

/// What was found of one part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    pub name: &'static str,
    pub ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl Readiness {
    /// The ledger answers.
    pub fn of(ledger: &Ledger) -> Self {
        let ledger = ledger.clone();
        let probe: Probe = Arc::new(move || {
            let ledger = ledger.clone();
            Box::pin(async move { ledger.check().await.map(drop).map_err(|error| error.to_string()) })
        });
        Self::default().and("ledger", Audience::Ready, probe)
    }

    /// And this works as well.
    #[must_use]
    pub fn and(mut self, name: &'static str, audience: Audience, probe: Probe) -> Self {
        self.probes.push((name, audience, probe));
        self
    }

    /// The names of all parts, in the order in which they are shown.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.probes.iter().map(|(name, ..)| *name)
    }

    /// Asks every part, for people: also those that the process is ready without.
    pub async fn all_verdicts(&self) -> Vec<Verdict> {
        let (mut verdicts, others) = tokio::join!(self.verdicts(), self.ask(Audience::People));
        verdicts.extend(others);
        verdicts
    }

    /// Asks every part that the process is not ready without, all at once.
    pub async fn verdicts(&self) -> Vec<Verdict> {
        // Held while asking: those who come meanwhile get the same answer.
        let mut last = self.last.lock().await;
        if let Some((at, verdicts)) = &*last
            && at.elapsed() < FRESH
        {
            return verdicts.clone();
        }
        let verdicts = self.ask(Audience::Ready).await;
        for Verdict { name, detail, .. } in verdicts.iter().filter(|verdict| !verdict.ok) {
            tracing::warn!(part = name, detail, "not ready");
        }
        *last = Some((Instant::now(), verdicts.clone()));
        verdicts
    }

    async fn ask(&self, audience: Audience) -> Vec<Verdict> {
        let meant = self.probes.iter().filter(|(_, of, _)| *of == audience);
        join_all(meant.map(|(name, _, probe)| ask(name, probe()))).await
    }
}

async fn ask(name: &'static str, answer: BoxFuture<'static, Result<(), String>>) -> Verdict {
    let answer = timeout(PATIENCE, answer).await;
    let answer = answer.unwrap_or_else(|_| Err(format!("no answer within {} s", PATIENCE.as_secs())));
    Verdict { name, ok: answer.is_ok(), detail: answer.err() }
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.probes.iter().map(|(name, ..)| name)).finish()
    }
}
