//! One file a command.

mod cat;
mod doctor;
mod ls;

use wigwag_store::{EmbeddedSettings, OpenSettings, Opened};

use crate::args::{Args, Command, StoreArgs};
use crate::error::Failed;

pub(crate) async fn run(args: Args) -> Result<(), Failed> {
    let Args { store, json, command } = args;
    match command {
        Command::Doctor => doctor::run(&store, json).await,
        Command::Ls { prefix, after, limit, long } => {
            ls::run(&store, &ls::Wanted { prefix, after, limit, long, json }).await
        }
        Command::Cat { key } => cat::run(&store, &key, json).await,
    }
}

/// Opens a store to look into it: one that does not exist is not made.
fn open(args: &StoreArgs) -> Result<Opened, Failed> {
    let mut settings = settings(args);
    settings.embedded = EmbeddedSettings::existing();
    Ok(wigwag_store::open(&args.store, &settings)?)
}

fn settings(args: &StoreArgs) -> OpenSettings {
    let mut settings = OpenSettings::default();
    settings.bucket.endpoint.clone_from(&args.endpoint);
    settings.bucket.region.clone_from(&args.region);
    settings.bucket.profile.clone_from(&args.profile);
    settings.bucket.virtual_hosted = args.virtual_hosted;
    settings
}
