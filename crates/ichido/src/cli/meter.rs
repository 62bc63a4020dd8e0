//! `ichido meter`: the meter and an admin port.

use crate::args::MeterArgs;
use crate::components::admin_port::{self, Serving};
use crate::components::meter::Bound;
use crate::components::telemetry;
use crate::log::Reader;
use crate::settings::Settings;
use ichido_admin::Health;
use ichido_serve::shutdown;
use ichido_serve::{Audience, Failure, Readiness};

pub(super) async fn run(args: &MeterArgs, log: Reader) -> Result<(), Failure> {
    let settings = Settings::load(args.common.config.as_deref(), &args.flags())?;
    let meter = settings.meter()?;
    let admin_at = settings.admin_listen(admin_port::DEFAULT)?;
    let (metrics, telemetry) = telemetry::start(&settings, admin_at.is_some())?;
    let bound = Bound::bind(meter).await?;
    let admin = admin_port::bind(&settings, admin_at).await?;
    let stop = shutdown::on_signals()?;
    let described = bound.describe();
    let meter = bound.open(&settings, &stop).await?;
    let admin_port = admin_port::describe(admin.as_ref());
    log.report_start(&format!("ichido meter: listening on {described}, {admin_port}"));
    let readiness = Readiness::default().with("meter", Audience::Readyz, meter.probe());
    let usage = meter.usage();
    let serving = admin.zip(metrics).map(|(admin, metrics)| {
        let health = Health { readiness, metrics };
        Serving::start(|stop| admin.serve_meter(health, usage, stop))
    });
    meter.serve(stop).await;
    if let Some(serving) = serving {
        serving.stop().await;
    }
    telemetry.close().await;
    Ok(())
}
