//! `ichido meter`: the meter and an admin port.

use crate::args::MeterArgs;
use crate::components::admin_port::{self, Serving};
use crate::components::meter::Bound;
use crate::settings::Settings;
use crate::settings::meter::Flags;
use ichido_admin::Health;
use ichido_serve::shutdown;
use ichido_serve::{Audience, Failure, Readiness, metrics};

pub(super) async fn run(args: &MeterArgs) -> Result<(), Failure> {
    let mut settings = Settings::load(&args.common)?;
    let meter = settings.meter(&Flags { listen: args.listen.clone(), db: args.db.clone() })?;
    let admin_at = admin_port::listen_address(args.admin.as_deref());
    let metrics = admin_at.map(|_| metrics::install()).transpose()?;
    let bound = Bound::bind(meter).await?;
    let admin = admin_port::bind(admin_at).await?;
    let stop = shutdown::on_signals()?;
    let described = bound.describe();
    let meter = bound.open().await?;
    errln!("ichido meter: listening on {described}, {}", admin_port::describe(admin.as_ref()));
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
    Ok(())
}
