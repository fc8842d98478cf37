//! `wigwag migrate`: migrates a run to changed workflow code.

use wigwag_core::Run;
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
                "use `--rename OLD=NEW` for a renamed step and `--skip STEP` for a removed one; `{}` lists the recorded steps",
                see("steps")
            ),
            _ => format!("check its status with `{}`", see("status")),
        };
        failed.or_hint(|| hint)
    })
}

/// Returns the only definition hash of the run's type that starts with `start`.
async fn whole_hash(target: &dyn Target, run: &Run, start: &str) -> Result<String, Failed> {
    let known = target.definitions(run.of.as_str()).await?;
    let mut fitting = known.iter().filter(|known| bare(&known.hash).starts_with(bare(start)));
    let listed = || match known.is_empty() {
        true => "no worker has registered this workflow yet".to_owned(),
        false => {
            let hashes: Vec<_> = known.iter().rev().map(|known| format!("`{}`", short_hash(&known.hash))).collect();
            format!("known definitions, newest first: {}", hashes.join(", "))
        }
    };
    match (fitting.next(), fitting.next()) {
        (Some(one), None) => Ok(one.hash.clone()),
        (Some(_), Some(_)) => {
            Err(Failed::wrong(format!("ambiguous hash: several definitions of `{}` start with `{start}`", run.of))
                .hint("use more characters of the hash"))
        }
        _ => Err(Failed::not_found(format!("no definition of `{}` starts with `{start}`", run.of)).hint(listed())),
    }
}

/// Returns a hash without its `sha256:` prefix.
fn bare(hash: &str) -> &str {
    hash.strip_prefix("sha256:").unwrap_or(hash)
}

/// Returns a short hash, which `--to` accepts.
pub(super) fn short_hash(hash: &str) -> &str {
    let bare = bare(hash);
    bare.get(..12).unwrap_or(bare)
}
