//! `wigwag migrate`: a run is brought to changed code.

use wigwag::core::Run;
use wigwag::{Client, ErrorKind};

use super::{client, command, find, show_asked};
use crate::args::{Migrate, StoreArgs};
use crate::error::Failed;

pub(super) async fn run(args: &StoreArgs, wanted: &Migrate, json: bool) -> Result<(), Failed> {
    let client = client(args).await?;
    let (handle, run) = find(&client, &wanted.id).await?;
    let mut call = handle.migrate();
    for (old, new) in &wanted.rename {
        call = call.rename(old, new);
    }
    for step in &wanted.skip {
        call = call.skip(step);
    }
    if let Some(start) = &wanted.to {
        call = call.to(whole_hash(&client, &run, start).await?);
    }
    let asked = call.await.map_err(|error| {
        let see = |what: &str| command(args, &format!("{what} {}", wanted.id));
        let hint = match error.kind() {
            ErrorKind::Invalid => format!(
                "give `--rename OLD=NEW` for a step that has another name, `--skip STEP` for one to be passed over; `{}` shows what was done",
                see("steps")
            ),
            _ => format!("see how it is with `{}`", see("status")),
        };
        Failed::from(error).or_hint(|| hint)
    })?;
    show_asked(&handle, "migrate", asked, json)
}

/// The one hash of the run's type that begins so.
async fn whole_hash(client: &Client, run: &Run, start: &str) -> Result<String, Failed> {
    let known = client.definitions(run.of.as_str()).await?;
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
