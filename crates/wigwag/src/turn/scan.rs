//! Scans the inboxes of a run: lists them, reads signals as far as a decision needs them, and names their index keys.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::try_join_all;
use tracing::warn;
use wigwag_core::{
    Decision, Inbox, Inboxes, Key, Mode, Name, Path, Point, Run, Seen, Signal, Time, Wait, limits, prefix,
};
use wigwag_store::Listed;

use crate::engine_core::EngineCore;
use crate::error::Result;
use crate::pages::Pages;

/// The names that open waits wait for.
pub(crate) fn names_waited_for(run: &Run) -> BTreeSet<Name> {
    run.waits().filter_map(|(_, point)| Some(point.wait.as_ref()?.name.clone())).collect()
}

/// Returns the inboxes of these names, from a listing below `signals/`.
pub(crate) fn sort_inboxes(run: &Run, names: &BTreeSet<Name>, since: Time, listed: &[Listed]) -> Inboxes {
    let mut found = Inboxes { since, names: names.iter().map(|name| (name.clone(), Seen::default())).collect() };
    for listed in listed {
        if let Ok(Key::Signal { name, suffix, .. }) = listed.key.parse::<Key>()
            && let Some(seen) = found.names.get_mut(&name)
        {
            note(run, &name, suffix, seen);
        }
    }
    add_late(run, &mut found);
    found
}

/// The same by one listing for each name, from where it was read before.
pub(crate) async fn list_inboxes(
    inner: &EngineCore,
    run: &Run,
    names: &BTreeSet<Name>,
    since: Time,
) -> Result<Inboxes> {
    let mut found = Inboxes { since, ..Inboxes::default() };
    for name in names {
        let prefix = prefix::inbox(&run.run, name);
        let floor = run.signals.get(name).map(|inbox| inbox.floor.as_str()).unwrap_or_default();
        let mut seen = Seen::default();
        let mut pages = Pages::after(&*inner.store, &prefix, &format!("{prefix}{floor}"));
        while let Some(entries) = pages.next().await? {
            for listed in entries {
                if let Ok(Key::Signal { suffix, .. }) = listed.key.parse::<Key>() {
                    note(run, name, suffix, &mut seen);
                }
            }
        }
        found.names.insert(name.clone(), seen);
    }
    add_late(run, &mut found);
    Ok(found)
}

fn note(run: &Run, name: &Name, suffix: String, seen: &mut Seen) {
    let floor = run.signals.get(name).map(|inbox| inbox.floor.as_str()).unwrap_or_default();
    let is_taken = || run.signals.get(name).is_some_and(|inbox| !inbox.offers(&suffix, Mode::Queue));
    if suffix.as_str() > floor && !is_taken() {
        if wigwag_core::stamp_of(&suffix).is_some() {
            seen.suffixes.insert(suffix);
        } else {
            warn!(run = %run.run, %name, suffix, "skipped an object whose name is not a signal key");
        }
    }
}

fn add_late(run: &Run, found: &mut Inboxes) {
    for (name, seen) in &mut found.names {
        if let Some(inbox) = run.signals.get(name) {
            seen.suffixes.extend(inbox.late.iter().cloned());
        }
    }
}

/// Decides the next signal or timeout of a run; reads as many signals as the decision needs.
pub(crate) async fn decide(
    inner: &EngineCore,
    run: &Run,
    found: &mut Inboxes,
    asked: impl Fn(&Path) -> bool,
) -> Result<Option<Decision>> {
    let fits = |_: &Path, wait: &Wait, signal: &Signal| match (wait.rejects_sender(&signal.source), &wait.schema) {
        (Some(_), _) => false,
        (None, Some(schema)) => inner.caches.schemas.check(schema, &signal.payload).is_ok(),
        (None, None) => true,
    };
    loop {
        let decision = run.decide(found, &asked, fits);
        // A timeout counts only after all signals that arrived have been read.
        let settled = matches!(decision, Some(Decision::Receive { .. }));
        if settled {
            return Ok(decision);
        }
        if !read_more(inner, run, found, &asked).await? {
            inner.caches.misfits.remember(run, found, fits);
            return Ok(decision);
        }
    }
}

/// Reads further signals that open waits may consume; returns whether there were any.
async fn read_more(inner: &EngineCore, run: &Run, found: &mut Inboxes, asked: impl Fn(&Path) -> bool) -> Result<bool> {
    let mut wanted: BTreeSet<(Name, String)> = BTreeSet::new();
    for (_, point, wait) in run.waits_in_order().into_iter().filter(|(path, ..)| asked(path)) {
        let Some(seen) = found.names.get(&wait.name) else { continue };
        let empty = Inbox::default();
        let inbox = run.signals.get(&wait.name).unwrap_or(&empty);
        let is_known = |one: &String| seen.signals.contains_key(one) || seen.misfits.contains(one);
        let is_unread = |one: &&String| !is_known(one) && wait.is_offered(point, inbox, one);
        let unread = seen.suffixes.iter().filter(is_unread);
        let some: Vec<&String> = match wait.mode {
            Mode::Queue => unread.take(limits::current().signals_read_at_once).collect(),
            Mode::Latest => unread.rev().take(limits::current().signals_read_at_once).collect(),
        };
        wanted.extend(some.into_iter().map(|suffix| (wait.name.clone(), suffix.clone())));
    }
    let reads = wanted.iter().map(|(name, suffix)| read_signal(inner, run, name, suffix));
    for ((name, suffix), signal) in wanted.iter().zip(try_join_all(reads).await?) {
        let Some(seen) = found.names.get_mut(name) else { continue };
        match signal {
            Some(signal) => _ = seen.signals.insert(suffix.clone(), signal),
            None => _ = seen.suffixes.remove(suffix),
        }
    }
    Ok(!wanted.is_empty())
}

async fn read_signal(inner: &EngineCore, run: &Run, name: &Name, suffix: &str) -> Result<Option<Arc<Signal>>> {
    let key = Key::Signal { run: run.run.clone(), name: name.clone(), suffix: suffix.into() }.to_string();
    let Some(object) = crate::log::get_named(&*inner.store, &key).await? else { return Ok(None) };
    match Signal::read(&object.body) {
        Ok(signal) => Ok(Some(Arc::new(signal))),
        Err(refusal) => {
            warn!(key, %refusal, "skipped an unreadable signal");
            Ok(None)
        }
    }
}

/// Key of a wait in the index of waits.
pub(crate) fn waiting_key(run: &Run, wait: &Wait) -> String {
    Key::Waiting { name: wait.name.clone(), run: run.run.id.clone(), seq: wait.seq }.to_string()
}

/// Returns the body of a wait's object in the index.
pub(crate) fn waiting_facts(run: &Run, path: &Path, point: &Point) -> bytes::Bytes {
    let mut facts = serde_json::json!({
        "type": run.of,
        "run": run.run,
        "point": path,
        "since": point.started_at,
    });
    if let Some(until) = point.until {
        facts["deadline"] = serde_json::json!(until);
    }
    if let Some(about) = point.wait.as_ref().and_then(|wait| wait.about.as_ref()) {
        facts["about"] = serde_json::json!(about);
    }
    format!("{facts}\n").into()
}
