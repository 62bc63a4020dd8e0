//! `ichido reconcile`: the source, what was sent, and what the receiver counted.

use ichido_delivery::store::Layout;

use crate::args::{DeliveryFlags, ReconcileArgs};
use crate::exit::Failure;
use crate::export::{Asked, Export, Receiver, reconcile};
use crate::output;
use crate::settings::Settings;
use crate::settings::export::Flags;

pub(crate) async fn run(args: &ReconcileArgs) -> Result<(), Failure> {
    let mut settings = Settings::load(&args.common)?;
    let dify = settings.export(&Flags::default())?;
    let values = settings.delivery(&DeliveryFlags::default());
    let of_delivery = values.settings()?;
    let receiver = Receiver::new(&of_delivery).map_err(|failure| values.named(failure))?;
    let mut export = Export::new(dify, &of_delivery.data_dir)?;
    let asked = Asked { from: args.days.from.clone(), to: args.days.to.clone(), ..Asked::default() };
    let days = export.days(&asked)?;
    let layout = Layout::new(&of_delivery.data_dir);
    let findings = reconcile(&mut export, days, &receiver, &layout).await?;
    match args.common.json {
        true => output::json(&findings)?,
        false => findings.print(),
    }
    match findings.differences.len() {
        0 => Ok(()),
        found => Err(Failure::internal(format!("{found} differences"))),
    }
}
