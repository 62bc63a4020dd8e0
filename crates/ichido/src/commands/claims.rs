//! `ichido claims`: a ledger with an admin port, and nothing else.

use super::gateway::open;
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
    let ledger = open(&settings.ledger, Some(bound.reach())).await?;
    eprintln!(
        "ichido claims: listening on http://{}, ledger {} ({})",
        bound.address(),
        settings.ledger.place(),
        ledger.capabilities()
    );
    if settings.ledger.url.starts_with("memory:") {
        eprintln!("ichido claims: memory: forgets everything when this process ends");
    }
    bound.serve(Admin { ledger: ledger.clone(), readiness: Readiness::of(&ledger), meters }, stop).await;
    ledger.close().await.map_err(|error| settings.ledger.failed(error))
}
