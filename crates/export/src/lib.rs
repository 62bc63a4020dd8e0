//! The export: usage is read period by period, summed, compared with what was sent, and handed to the sender.
//!
//! What must stay true: a period is remembered as sent only when each of its records has arrived or lies on disk, in the
//! spool or in failed; the watermark never passes a period that is not; one export works at a time; and no total goes
//! while an older one of the same id is on its way to a receiver that would let it win.

mod collect;
mod days;
mod deliver;
pub mod jsonl;
mod plan;
mod reconcile;
mod report;
mod schedule;
pub mod settings;
mod source;
mod state;
pub mod superseded;
mod waiting;

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use ichido_core::{Clock, SystemClock};
use ichido_delivery::conflict::Conflict;
use ichido_delivery::request::Envelope;
use ichido_delivery::sender::{Error, Selection, Sender};
use ichido_delivery::settings::{Identity, Settings as Delivery};
use ichido_usage::Profile;
use ichido_usage::dify::Source;
use jiff::ToSpan;
use jiff::civil::Date;
use tokio_util::sync::CancellationToken;

use crate::settings::Dify;
use ichido_core::error_chain;
use ichido_serve::Failure;

pub use self::collect::{Collected, Refused};
pub use self::days::{Asked, Calendar, Days, Stretch};
pub use self::plan::{Outgoing, Plan, Word, plan};
pub use self::reconcile::{Difference, Findings, Receiver, reconcile};
use self::report::Period;
pub use self::report::Report;
pub use self::schedule::Scheduled;
pub use self::state::{Sent, State, Watermark};

/// Late changes are looked for from so long before the last look: clocks differ, and transactions take their time.
const OVERLAP: jiff::SignedDuration = jiff::SignedDuration::from_mins(10);

/// An export of Dify's usage.
#[derive(Debug)]
pub struct Export {
    pub settings: Dify,
    pub state: State,
    source: Source,
    clock: Arc<dyn Clock>,
    /// Days that are not over are exported as well.
    pub include_open: bool,
}

impl Export {
    /// Prepares an export. Nothing is connected yet.
    pub fn new(settings: Dify, data_dir: &Path) -> Result<Self, Failure> {
        let source = source::open(&settings)?;
        Ok(Self {
            settings,
            state: State::new(data_dir),
            source,
            clock: Arc::new(SystemClock::default()),
            include_open: false,
        })
    }

    /// Days that were asked for.
    pub fn days(&self, asked: &Asked) -> Result<Option<Days>, Failure> {
        asked.days(&self.settings.calendar, self.clock.now())
    }

    /// Exports what was asked for, or what is new.
    pub async fn run(
        &mut self,
        asked: Option<Days>,
        sender: &mut Sender,
        batch_size: usize,
        stop: &CancellationToken,
    ) -> Result<Report, Failure> {
        let mut report = Report::default();
        self.run_into(&mut report, asked, sender, batch_size, stop).await.map(|()| report)
    }

    /// The same; what was done is told also when it ends early.
    pub async fn run_into(
        &mut self,
        report: &mut Report,
        asked: Option<Days>,
        sender: &mut Sender,
        batch_size: usize,
        stop: &CancellationToken,
    ) -> Result<(), Failure> {
        let begun = self.clock.now();
        let _lock = self.state.lock(begun)?;
        let mut watermark = self.watermark()?;
        let is_first = watermark.through.is_none();
        let days = self.choose(asked, &watermark, report).await?;
        resend(sender).await?;
        let waiting = waiting_ids(sender, self.settings.profile).await?;
        let Some(days) = days else { return Ok(()) };
        let mut whole = true;
        for stretch in self.settings.calendar.stretches(days)? {
            let collected = tokio::select! {
                collected = self.collect(&stretch) => collected?,
                () = stop.cancelled() => return Err(deliver::stopped()),
            };
            let done =
                settle(&self.state, &stretch, collected, sender, self.settings.profile, &waiting, batch_size);
            let (period, plan) = done.await?;
            whole &= period.withheld == 0;
            report.add(period, &plan);
            if whole && stretch.last <= self.last_closed()? {
                watermark.pass(&stretch)?;
                self.state.set_watermark(&watermark)?;
            }
        }
        // Days that were asked for are a part of what was exported; only the first time they are all of it.
        if whole && (asked.is_none() || is_first) {
            watermark.read_at = Some(days::moment(begun)?);
            self.state.set_watermark(&watermark)?;
        }
        Ok(())
    }

    /// What an export would send, period by period.
    pub async fn preview(
        &mut self,
        asked: Option<Days>,
        mut see: impl FnMut(&Stretch, Collected, Sent),
    ) -> Result<Report, Failure> {
        let mut report = Report::default();
        let watermark = self.state.watermark()?.unwrap_or_else(|| Watermark::new(self.settings.rules()));
        if let Some(days) = self.choose(asked, &watermark, &mut report).await? {
            for stretch in self.settings.calendar.stretches(days)? {
                let collected = self.collect(&stretch).await?;
                see(&stretch, collected, self.state.sent(&stretch.name())?);
            }
        }
        Ok(report)
    }

    /// What the source has of a period.
    pub async fn collect(&mut self, stretch: &Stretch) -> Result<Collected, Failure> {
        collect::from_dify(&mut self.source, &self.settings, stretch).await
    }

    /// Whether the source can be read.
    pub async fn check(&mut self) -> Result<String, Failure> {
        self.source.check().await.map_err(source::failed)
    }

    pub fn last_closed(&self) -> Result<Date, Failure> {
        self.settings.calendar.last_closed(self.clock.now())
    }

    /// The watermark, if it was written under the same rules.
    fn watermark(&self) -> Result<Watermark, Failure> {
        let rules = self.settings.rules();
        let Some(watermark) = self.state.watermark()? else { return Ok(Watermark::new(rules)) };
        watermark.must_be_under(&rules)?;
        Ok(watermark)
    }

    /// Which days are exported.
    async fn choose(
        &mut self,
        asked: Option<Days>,
        watermark: &Watermark,
        report: &mut Report,
    ) -> Result<Option<Days>, Failure> {
        let last = self.last_closed()?;
        if let Some(days) = asked {
            if self.include_open || days.last <= last {
                return Ok(Some(days));
            }
            let open = self.settings.calendar.still_open();
            if days.first > last {
                return Err(Failure::usage(format!(
                    "{} is {open}: the last day that can be exported is {last}",
                    days.first
                )));
            }
            report.left_out = Some(format!("left out: {} to {}, {open}", days::after(last)?, days.last));
            return Ok(Some(Days { first: days.first, last }));
        }
        let Some(through) = watermark.through else {
            let first = self.settings.calendar.period.start(last);
            return Ok(Some(Days { first, last }));
        };
        let first = self.begin(through, watermark).await?;
        Ok((first <= last).then_some(Days { first, last }))
    }

    /// Where an export begins that goes on: a few closed days again, and as far back as messages were changed late. Never before
    /// what was exported first.
    async fn begin(&mut self, through: Date, watermark: &Watermark) -> Result<Date, Failure> {
        let calendar = self.settings.calendar.clone();
        let back = |days: u32| through.checked_sub(i64::from(days).days()).unwrap_or(Date::MIN);
        let mut first = days::after(back(self.settings.overlap_days))?;
        if let Some(read_at) = watermark.read_at
            && self.settings.late_days > 0
        {
            let since = read_at.checked_sub(OVERLAP).unwrap_or(read_at);
            let span = calendar.span(back(self.settings.late_days), through);
            let changed = self.source.changed_since(since, span).await.map_err(source::failed)?;
            if let Some(at) = changed {
                first = first.min(calendar.zone.day(at));
            }
        }
        let earliest = self.state.periods()?.first().copied().unwrap_or(through);
        Ok(calendar.period.start(first.max(earliest)))
    }
}

/// What waits goes first, as in every command that sends.
async fn resend(sender: &mut Sender) -> Result<(), Failure> {
    match sender.resend(&Selection::due()).await {
        Ok(_) => Ok(()),
        Err(Error::Stopped) => Err(deliver::stopped()),
        Err(error @ (Error::Store(_) | Error::Lost(_))) => Err(Failure::internal(error_chain(&error))),
    }
}

/// Ids that must not be sent now.
async fn waiting_ids(sender: &mut Sender, profile: Profile) -> Result<HashSet<String>, Failure> {
    if !profile.upserts() {
        return Ok(HashSet::new());
    }
    sender.finish().await;
    waiting::ids(sender.layout())
}

/// Sends what is to be sent of a period, and remembers it.
pub async fn settle(
    state: &State,
    stretch: &Stretch,
    collected: Collected,
    sender: &mut Sender,
    profile: Profile,
    waiting: &HashSet<String>,
    batch_size: usize,
) -> Result<(Period, Plan), Failure> {
    let name = stretch.name();
    let sent = state.sent(&name)?;
    let refused = collected.refused.len();
    let (rows, debugger) = (collected.rows.rows, collected.rows.debugger);
    let plan = plan(collected.records, &sent, profile, waiting);
    deliver::deliver(sender, &plan, profile, batch_size).await?;
    let mut known = plan.carried_out(sent.clone());
    for row in &collected.refused {
        if known.refused.insert(row.hash()) {
            sender
                .reject_input(&row.text, &row.reason)
                .map_err(|error| Failure::internal(error_chain(&error)))?;
        }
    }
    if known != sent || sent == Sent::default() {
        state.set_sent(&name, &known)?;
    }
    Ok((Period::new(stretch, rows, debugger, refused, &plan), plan))
}

/// How the sender presents itself to the receiver of usage records.
pub fn sender_identity() -> Identity {
    Identity {
        user_agent: format!("dify-usage-exporter/1.0.0 ichido/{}", env!("CARGO_PKG_VERSION")),
        source_system: ichido_usage::record::SOURCE_SYSTEM.to_owned(),
    }
}

/// Settings of the delivery that do not go with an export. What waits is sent again by other commands with the same
/// settings, so they must be right there and not only here.
pub fn check_delivery(delivery: &Delivery, settings: &Dify) -> Result<(), Failure> {
    if let Envelope::Plain = delivery.envelope {
        return Err(Failure::usage(
            "EXTERNAL_API_ENVELOPE must be api_meter, and EXTERNAL_API_TENANT_ID set: an export sends usage records",
        ));
    }
    if !settings.profile.upserts() && delivery.conflict == Conflict::Batch {
        return Err(Failure::usage(
            "EXTERNAL_API_CONFLICT must be auto or record with the profile first_wins: with batch, a 409 for one known record \
             would discard the others",
        ));
    }
    Ok(())
}
