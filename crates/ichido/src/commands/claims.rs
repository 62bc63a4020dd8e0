//! `ichido claims`: a ledger with an admin port, and nothing else.

use ichido_ledger::{Ledger, OpenOptions, open_backend};

use crate::admin::{Admin, AdminToken, Bound, Readiness, install_meters};
use crate::args::ClaimsArgs;
use crate::exit::Failure;
use crate::settings::Settings;
use crate::shutdown;

pub(crate) async fn run(args: &ClaimsArgs) -> Result<(), Failure> {
    let settings = Settings::load(&args.common)?;
    let meters = install_meters()?;
    let bound = Bound::bind(args.listen, AdminToken::from_env()?).await?;
    let stop = shutdown::on_signals()?;
    let place = settings.ledger.place();
    let handle = settings.ledger.handle();
    let options = OpenOptions { clock: handle.clock.clone(), admin: Some(bound.reach()) };
    let backend =
        open_backend(&settings.ledger.url, &options).await.map_err(|error| settings.ledger.failed(error))?;
    let ledger = Ledger::new(backend, handle);
    eprintln!("ichido claims: http://{} on {place} ({})", bound.address(), ledger.capabilities());
    if settings.ledger.url.starts_with("memory:") {
        eprintln!("ichido claims: memory: forgets everything when this process ends");
    }
    bound.serve(Admin { ledger: ledger.clone(), readiness: Readiness::of(&ledger), meters }, stop).await;
    ledger.close().await.map_err(|error| settings.ledger.failed(error))
}
