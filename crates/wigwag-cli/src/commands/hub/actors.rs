//! `wigwag hub actors`: lists registered actors.

use std::io::{BufWriter, Write as _};

use wigwag::Time;
use wigwag_hub_client::Actor;

use super::Door;
use crate::args::{HubActors, StoreArgs};
use crate::commands::command;
use crate::error::Failed;
use crate::output::{line, now, quoted, span, table, talk};

pub(super) async fn run(door: &Door, args: &StoreArgs, wanted: &HubActors, json: bool) -> Result<(), Failed> {
    let client = door.connect().await.map_err(|error| door.failed(&error))?;
    let mut find = match &wanted.pattern {
        Some(pattern) => client.discover(pattern),
        None => client.actors(),
    };
    find = find.limit(wanted.limit);
    if let Some(capability) = &wanted.capability {
        find = find.capability(capability);
    }
    if let Some(after) = &wanted.after {
        find = find.after(after);
    }
    let page = find.await;
    client.close().await;
    let page = page.map_err(|error| door.failed(&error))?;
    match json {
        true => show_json(&page.actors)?,
        false => table(&["ADDRESS", "CAPABILITIES", "VERSION", "SINCE"], page.actors.iter().map(row).collect())?,
    }
    match page.next {
        Some(next) => talk(&format!("next page: `{}`", again(args, wanted, &next))),
        None if page.actors.is_empty() && !json => talk("no actors"),
        None => {}
    }
    Ok(())
}

fn show_json(actors: &[Actor]) -> Result<(), Failed> {
    let mut stdout = BufWriter::new(std::io::stdout().lock());
    for actor in actors {
        writeln!(stdout, "{}", serde_json::to_string(actor).map_err(|error| Failed::new(error.to_string()))?)?;
    }
    stdout.flush()?;
    Ok(())
}

fn row(actor: &Actor) -> Vec<String> {
    let since = now().since(Time::from_micros(actor.registered_at.saturating_mul(1_000)));
    let capabilities = line(&actor.capabilities.join(","));
    let capabilities = if capabilities.is_empty() { "-".to_owned() } else { capabilities };
    vec![actor.address.clone(), capabilities, actor.version.to_string(), span(since)]
}

fn again(args: &StoreArgs, wanted: &HubActors, next: &str) -> String {
    let mut rest = "hub actors".to_owned();
    if let Some(pattern) = &wanted.pattern {
        rest += &format!(" {}", quoted(pattern));
    }
    if let Some(capability) = &wanted.capability {
        rest += &format!(" --capability {}", quoted(capability));
    }
    rest += &format!(" --limit {} --after {}", wanted.limit, quoted(next));
    command(args, &rest)
}
