//! `wigwag ls`: lists keys.

use std::io::{BufWriter, Write};

use serde_json::json;
use wigwag_store::{Listed, limits::LIST_PAGE};

use super::open;
use crate::args::StoreArgs;
use crate::error::Failed;

/// Arguments of `wigwag ls`.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) prefix: String,
    pub(super) after: String,
    pub(super) limit: Option<usize>,
    pub(super) long: bool,
    pub(super) json: bool,
}

pub(super) async fn run(args: &StoreArgs, wanted: &Wanted) -> Result<(), Failed> {
    let opened = open(args)?;
    let mut stdout = BufWriter::new(std::io::stdout().lock());
    let mut left = wanted.limit.unwrap_or(usize::MAX);
    let mut after = wanted.after.clone();
    while left > 0 {
        let page = opened.store.list(&wanted.prefix, &after, left.min(LIST_PAGE)).await?;
        for entry in &page.entries {
            show(&mut stdout, entry, wanted)?;
        }
        left -= page.entries.len();
        match page.entries.last() {
            Some(last) if page.more => after.clone_from(&last.key),
            _ => break,
        }
    }
    stdout.flush()?;
    Ok(())
}

fn show(stdout: &mut impl Write, entry: &Listed, wanted: &Wanted) -> std::io::Result<()> {
    let Listed { key, size, modified } = entry;
    if wanted.json {
        writeln!(stdout, "{}", json!({"key": key, "size": size, "modified": modified.to_string()}))
    } else if wanted.long {
        writeln!(stdout, "{size:>10}  {modified}  {key}")
    } else {
        writeln!(stdout, "{key}")
    }
}
