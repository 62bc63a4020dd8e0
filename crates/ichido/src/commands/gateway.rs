//! `ichido gateway`: start, serve, stop in good order.

use ichido_ledger::{Ledger, OpenOptions, open_backend};
use tokio_util::sync::CancellationToken;

use crate::args::GatewayArgs;
use crate::exit::Failure;
use crate::gateway::Bound;
use crate::settings::Settings;
use crate::settings::gateway::Flags;

pub(crate) async fn run(args: &GatewayArgs) -> Result<(), Failure> {
    let mut settings = Settings::load(&args.common)?;
    let flags = Flags {
        upstream: args.upstream.clone(),
        listen: args.listen.clone(),
        optional_key: args.optional_key,
    };
    let bound = Bound::bind(settings.gateway(&flags)?).await?;
    let address = bound.address();
    let handle = settings.ledger.handle();
    let options = OpenOptions { clock: handle.clock.clone(), admin: None };
    let place = settings.ledger.place();
    let backend = open_backend(&settings.ledger.url, &options)
        .await
        .map_err(|error| Failure::from(error).at(&place))?;
    let ledger = Ledger::new(backend, handle);
    ledger.init().await.map_err(|error| Failure::from(error).at(&place))?;
    let gateway = bound.assemble(ledger.clone(), &settings.ledger).await?;
    eprintln!("ichido gateway: http://{address}, ledger {place}");
    let stop = CancellationToken::new();
    let signal = stop.clone();
    tokio::spawn(async move {
        let _ = tokio::signal::ctrl_c().await;
        signal.cancel();
    });
    gateway.serve(stop).await;
    ledger.close().await.map_err(Failure::from)
}
