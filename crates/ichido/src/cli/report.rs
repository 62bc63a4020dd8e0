//! `ichido report`: statements about a period.

mod usage;

use crate::args::{ReportArgs, ReportVerb};
use crate::settings::Settings;
use ichido_serve::Failure;

pub(super) async fn run(args: &ReportArgs) -> Result<(), Failure> {
    let settings = Settings::load(args.common.config.as_deref(), &args.flags())?;
    match &args.report {
        ReportVerb::Usage(usage) => usage::run(&settings, usage, args.common.json).await,
    }
}
