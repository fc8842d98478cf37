//! `wigwag cat`: prints one stored object.

use std::io::Write as _;

use serde_json::{Value, json};

use super::open;
use crate::args::StoreArgs;
use crate::error::Failed;

pub(super) async fn run(args: &StoreArgs, key: &str, json: bool) -> Result<(), Failed> {
    let opened = open(args)?;
    let Some(object) = opened.store.get(key).await? else {
        let folder = key.rsplit_once('/').map_or("", |(folder, _)| folder);
        return Err(Failed::not_found(format!("object not found: `{key}` in `{}`", args.store))
            .hint(format!("list the keys with `wigwag ls --store {} {folder}`", args.store)));
    };
    let mut stdout = std::io::stdout().lock();
    if json {
        let text = || Value::String(String::from_utf8_lossy(&object.body).into_owned());
        let body = serde_json::from_slice(&object.body).unwrap_or_else(|_| text());
        let shown =
            json!({"key": key, "size": object.body.len(), "modified": object.modified.to_string(), "body": body});
        writeln!(stdout, "{shown:#}")?;
    } else {
        stdout.write_all(&object.body)?;
    }
    stdout.flush()?;
    Ok(())
}
