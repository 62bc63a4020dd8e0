//! `ichido meter`: a receiver of usage records, with an admin port beside it.

use tokio_util::sync::CancellationToken;

use super::gateway::{ADMIN, bind_admin};
use crate::args::MeterArgs;
use crate::components::meter::Bound;
use crate::settings::Settings;
use crate::settings::meter::Flags;
use ichido_admin::Health;
use ichido_serve::shutdown;
use ichido_serve::{Audience, Failure, Readiness, metrics};

pub(crate) async fn run(args: &MeterArgs) -> Result<(), Failure> {
    let mut settings = Settings::load(&args.common)?;
    let meter = settings.meter(&Flags { listen: args.listen.clone(), db: args.db.clone() })?;
    let admin_at = Some(args.admin.as_deref().unwrap_or(ADMIN)).filter(|text| *text != "off");
    let metrics = admin_at.map(|_| metrics::install()).transpose()?;
    let bound = Bound::bind(meter).await?;
    let admin = bind_admin(admin_at).await?;
    let stop = shutdown::on_signals()?;
    let described = bound.describe();
    let meter = bound.open().await?;
    let admin_place =
        admin.as_ref().map_or_else(|| "no port".to_owned(), |admin| format!("http://{}", admin.address()));
    errln!("ichido meter: listening on {described}, admin on {admin_place}");
    let readiness = Readiness::default().with("meter", Audience::Readyz, meter.probe());
    let serving_admin = admin.zip(metrics).map(|(admin, metrics)| {
        let admin_stop = CancellationToken::new();
        let health = Health { readiness, metrics };
        (tokio::spawn(admin.serve_meter(health, meter.usage(), admin_stop.clone())), admin_stop)
    });
    meter.serve(stop).await;
    // The operator's port goes last: it tells of the end.
    if let Some((serving, admin_stop)) = serving_admin {
        admin_stop.cancel();
        let _ = serving.await;
    }
    Ok(())
}
