//! `wigwag migrate`: a run is brought to changed code.

use wigwag::core::Run;
use wigwag_server::Code;

use super::{ask, command, find, target};
use crate::args::{Migrate, StoreArgs};
use crate::error::Failed;
use crate::target::{Ask, Target};

pub(super) async fn run(args: &StoreArgs, wanted: &Migrate, json: bool) -> Result<(), Failed> {
    let target = target(args).await?;
    let run = find(&*target, &wanted.id).await?;
    let to = match &wanted.to {
        Some(start) => Some(whole_hash(&*target, &run, start).await?),
        None => None,
    };
    let migrate = Ask::Migrate { rename: wanted.rename.clone(), skip: wanted.skip.clone(), to };
    ask(&*target, &run.run, &migrate, json).await.map_err(|failed| {
        let see = |what: &str| command(args, &format!("{what} {}", wanted.id));
        let hint = match failed.code() {
            Some(Code::Invalid) => format!(
                "give `--rename OLD=NEW` for a step that has another name, `--skip STEP` for one to be passed over; `{}` shows what was done",
                see("steps")
            ),
            _ => format!("see how it is with `{}`", see("status")),
        };
        failed.or_hint(|| hint)
    })
}

/// The one hash of the run's type that begins so.
async fn whole_hash(target: &dyn Target, run: &Run, start: &str) -> Result<String, Failed> {
    let known = target.definitions(run.of.as_str()).await?;
    let mut fitting = known.iter().filter(|known| bare(&known.hash).starts_with(bare(start)));
    let listed = || match known.is_empty() {
        true => "no worker with its code has run on this store yet".to_owned(),
        false => {
            let hashes: Vec<_> = known.iter().rev().map(|known| format!("`{}`", short_hash(&known.hash))).collect();
            format!("those are known, the newest first: {}", hashes.join(", "))
        }
    };
    match (fitting.next(), fitting.next()) {
        (Some(one), None) => Ok(one.hash.clone()),
        (Some(_), Some(_)) => Err(Failed::wrong(format!("several definitions of `{}` begin with `{start}`", run.of))
            .hint("give more of the hash")),
        _ => Err(Failed::not_found(format!("no definition of `{}` begins with `{start}`", run.of)).hint(listed())),
    }
}

/// A hash without the name of its function.
fn bare(hash: &str) -> &str {
    hash.strip_prefix("sha256:").unwrap_or(hash)
}

/// As much of a hash as tells it from others; `--to` takes it.
pub(super) fn short_hash(hash: &str) -> &str {
    let bare = bare(hash);
    bare.get(..12).unwrap_or(bare)
}
