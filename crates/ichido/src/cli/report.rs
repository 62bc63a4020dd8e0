//! `ichido report`: figures about a period.

mod slo;
mod usage;

use ichido_admin::slo::Days;
use ichido_serve::Failure;
use jiff::civil::Date;

use crate::args::{PeriodArgs, ReportArgs, ReportVerb};
use crate::settings::Settings;

pub(super) async fn run(args: &ReportArgs) -> Result<(), Failure> {
    let settings = Settings::load(args.common.config.as_deref(), &args.flags())?;
    match &args.verb {
        ReportVerb::Slo(slo) => slo::run(&settings, days(&slo.period)?, args.common.json),
        ReportVerb::Usage(usage) => usage::run(&settings, usage, args.common.json).await,
    }
}

/// The days that were asked for.
fn days(period: &PeriodArgs) -> Result<Days, Failure> {
    let day = |name: &str, text: &Option<String>| -> Result<Date, Failure> {
        let text = text.as_deref().unwrap_or_default();
        let wrong = || Failure::usage(format!("{name}: {text:?} is not a day in the form YYYY-MM-DD"));
        ichido_usage::record::day::parse(text).ok_or_else(wrong)
    };
    if let Some(month) = &period.month {
        let wrong = || Failure::usage(format!("--month: {month:?} is not a month in the form YYYY-MM"));
        return Days::month(month).ok_or_else(wrong);
    }
    let (from, to) = (day("--from", &period.from)?, day("--to", &period.to)?);
    match from <= to {
        true => Ok(Days { from, to }),
        false => Err(Failure::usage("--to must not be before --from")),
    }
}
