//! `ichido failed`: what was not delivered and needs a person.

use ichido_delivery::sender::Pick;
use ichido_delivery::store::{Layout, Place};

use super::spool::resend;
use crate::args::{FailedArgs, FailedVerb};
use crate::delivery::{self, Values};
use crate::exit::Failure;
use crate::export::superseded;

pub(crate) async fn run(args: &FailedArgs) -> Result<(), Failure> {
    let values = Values::load(&args.delivery)?;
    let seen = || values.existing_data_dir().map(|dir| Layout::new(&dir));
    match &args.verb {
        FailedVerb::List(list) => delivery::list(&seen()?, Place::Failed, list, args.json),
        FailedVerb::Show(batch) => delivery::show(&seen()?, Place::Failed, &batch.key),
        // Without keys it is every batch, with or without --all.
        FailedVerb::Resend { keys, .. } => {
            let pick = Pick::of(Place::Failed, keys.clone(), true);
            let _no_export_meanwhile = superseded::refuse(&Layout::new(&values.data_dir()?), &pick)?;
            resend(&values, &pick, args.json).await
        }
    }
}
