//! Detects that Redis lost data: it was flushed, restored from a backup, or restarted without its last writes.
//!
//! One key, `PREFIX` + `identity`, holds `STATE ID SINCE BEAT`. A process creates it at first contact if it is
//! missing (`auto`), and `ichido ledger init` writes a new one (`init`). Every process checks it every
//! [`CHECK_INTERVAL`] and increments the beat. Data was lost if the key is missing, was created again, or is older
//! than this process has seen it. The process that notices writes that into the key, so that all others know it
//! too, including those that start later. From then on, new claims and marks are refused as in an outage until
//! `ichido ledger init` is run. Claims that were granted before can still be settled. A server that cannot be
//! reached changes nothing. The checks go on during an outage, even while a fallback leaves the primary alone.
//!
//! The limits: claims made between a flush and the next check are not protected. A flush while no process runs is
//! not noticed. After a failover, a loss of less than one interval is not noticed if other processes incremented
//! the beat meanwhile. In a cluster the key is on one node, so losses of the other nodes are not noticed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ichido_core::{Entropy as _, SystemEntropy, to_hex};
use metrics::{Counter, Gauge, counter, gauge};
use redis::Cmd;
use tokio::time::{sleep, timeout};

use super::connection::Connection;
use super::error::CallError;
use crate::{Error, Kind, Result};

/// How often each process checks. A flush may go unnoticed for this long.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// How long one check may take.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

const CHECK_SCRIPT: &str = concat!(include_str!("lua/clock.lua"), include_str!("lua/check_identity.lua"));
const RESET_SCRIPT: &str = concat!(include_str!("lua/clock.lua"), include_str!("lua/reset_identity.lua"));

/// Watches the identity of the ledger.
pub(super) struct LossDetector {
    connection: Arc<Connection>,
    key: String,
    seen: Mutex<Option<IdentityRecord>>,
    /// The same as in `seen`, for callers in a hurry.
    is_lost: AtomicBool,
    lost_total: Counter,
    lost: Gauge,
}

#[derive(Clone)]
struct IdentityRecord {
    state: State,
    id: String,
    since: u64,
    beat: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Created by a process that found none.
    Auto,
    /// Written by `ichido ledger init`.
    Init,
    Lost(Loss),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// The key was missing.
    Missing,
    /// The key was missing, and another process has created it again.
    Replaced,
    /// The key is in an earlier state than before.
    Older,
}

impl LossDetector {
    pub(super) fn new(connection: Arc<Connection>, prefix: &str) -> Self {
        let (lost_total, lost) = (
            counter!("ichido_ledger_lost_total", "backend" => "redis"),
            gauge!("ichido_ledger_lost", "backend" => "redis"),
        );
        lost.set(0.0);
        let key = format!("{prefix}identity");
        Self { connection, key, seen: Mutex::default(), is_lost: AtomicBool::new(false), lost_total, lost }
    }

    /// Checks periodically, for as long as the task runs.
    pub(super) async fn watch(&self) {
        let mut is_failing = false;
        loop {
            sleep(CHECK_INTERVAL).await;
            match self.check().await {
                Ok(()) => is_failing = false,
                Err(error) => {
                    if !is_failing {
                        tracing::warn!(%error, "cannot check whether the Redis ledger lost data; retrying");
                    }
                    is_failing = true;
                }
            }
        }
    }

    /// Checks once. A check that fails changes nothing.
    pub(super) async fn check(&self) -> Result<()> {
        const DOING: &str = "checking the identity of the Redis ledger";
        let mut command = self.script(CHECK_SCRIPT);
        if let Some(seen) = self.seen() {
            command.arg(seen.id).arg(seen.since).arg(seen.beat);
        }
        let answer = timeout(CHECK_TIMEOUT, self.ask(DOING, &command)).await;
        self.remember(answer.map_err(|_| Error::new(Kind::Timeout, DOING).with_unknown_effect())??);
        Ok(())
    }

    /// Gives the ledger a new identity: an operator accepts whatever was lost.
    pub(super) async fn reset(&self) -> Result<()> {
        self.remember(
            self.ask("writing the identity of the Redis ledger", &self.script(RESET_SCRIPT)).await?,
        );
        Ok(())
    }

    /// Fails if data was lost and no operator has accepted the loss since.
    pub(super) fn ensure_intact(&self, doing: &'static str) -> Result<()> {
        if !self.is_lost.load(Ordering::Relaxed) {
            return Ok(());
        }
        match self.seen().map(|seen| seen.state) {
            Some(State::Lost(loss)) => Err(Error::new(Kind::DataLost(loss.text()), doing)),
            Some(State::Auto | State::Init) | None => Ok(()),
        }
    }

    /// A script on the key, with an id for a new identity.
    fn script(&self, code: &str) -> Cmd {
        let mut command = redis::cmd("EVAL");
        command.arg(code).arg(1).arg(&self.key).arg(to_hex(&SystemEntropy.draw()));
        command
    }

    async fn ask(&self, doing: &'static str, command: &Cmd) -> Result<IdentityRecord> {
        let answer = self.connection.call(command).await.map_err(|failure| failure.into_error(doing))?;
        let (state, id, since, beat): (String, _, _, _) = redis::from_redis_value(answer)
            .map_err(|error| CallError::sent(error.into()).into_error(doing).with_unknown_effect())?;
        let state = State::parse(&state).ok_or_else(|| {
            let text =
                "the identity key of the Redis ledger was written by a newer version; update this ichido";
            Error::new(Kind::Schema(text.to_owned()), doing)
        })?;
        Ok(IdentityRecord { state, id, since, beat })
    }

    fn seen(&self) -> Option<IdentityRecord> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn remember(&self, now: IdentityRecord) {
        let state = now.state;
        let before = self.seen.lock().unwrap_or_else(PoisonError::into_inner).replace(now);
        let was_lost = before.is_some_and(|seen| matches!(seen.state, State::Lost(_)));
        match (was_lost, state) {
            (false, State::Lost(loss)) => {
                self.is_lost.store(true, Ordering::Relaxed);
                self.lost_total.increment(1);
                self.lost.set(1.0);
                tracing::error!(key = self.key, "{}", loss.text());
            }
            (true, State::Auto | State::Init) => {
                self.is_lost.store(false, Ordering::Relaxed);
                self.lost.set(0.0);
                tracing::warn!(
                    key = self.key,
                    "\"ichido ledger init\" was run; using the Redis ledger again"
                );
            }
            (true, State::Lost(_)) | (false, State::Auto | State::Init) => {}
        }
    }
}

impl State {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "auto" => Self::Auto,
            "init" => Self::Init,
            "missing" => Self::Lost(Loss::Missing),
            "replaced" => Self::Lost(Loss::Replaced),
            "older" => Self::Lost(Loss::Older),
            _ => return None,
        })
    }
}

impl Loss {
    fn text(self) -> String {
        let why = match self {
            Self::Missing => "its identity key is missing: Redis was flushed, or restarted without its data",
            Self::Replaced => {
                "its identity key was created again: Redis was flushed, or restarted without its data"
            }
            Self::Older => {
                "its identity key is older than before: Redis was restored from a backup, or lost its last writes \
                 in a crash or failover"
            }
        };
        format!(
            "the Redis ledger lost data ({why}); new requests are treated as an outage until \"ichido ledger init\" \
             is run"
        )
    }
}
