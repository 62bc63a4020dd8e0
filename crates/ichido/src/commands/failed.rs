//! `ichido failed`: what was not delivered and needs a person.

use ichido_delivery::sender::Pick;
use ichido_delivery::store::{Layout, Place};

use super::spool::resend;
use crate::args::{FailedArgs, FailedVerb};
use crate::delivery;
use crate::exit::Failure;
use crate::export::superseded;

pub(crate) async fn run(args: &FailedArgs) -> Result<(), Failure> {
    let layout = Layout::new(&delivery::data_dir()?);
    match &args.verb {
        FailedVerb::List(list) => delivery::list(&layout, Place::Failed, list, args.json),
        FailedVerb::Show(batch) => delivery::show(&layout, Place::Failed, &batch.key),
        FailedVerb::Resend { keys, .. } => {
            let pick = Pick::of(Place::Failed, keys.clone(), true);
            let _no_export_meanwhile = superseded::refuse(&layout, &pick)?;
            resend(&pick, args.json).await
        }
    }
}
