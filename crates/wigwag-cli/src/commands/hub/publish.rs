//! `wigwag hub publish`: publishes a message to a topic.

use std::io::Write as _;

use serde_json::json;

use super::Door;
use crate::args::HubPublish;
use crate::error::Failed;
use crate::input;
use crate::output::count;

pub(super) async fn run(door: &Door, wanted: &HubPublish, json: bool) -> Result<(), Failed> {
    let data = input::data(&wanted.data)?;
    let client = door.connect().await.map_err(|error| door.failed(&error))?;
    let published = client.publish(&wanted.topic, &wanted.of, &data).await;
    client.close().await;
    let published = published.map_err(|error| door.failed(&error))?;
    let (topic, at, subscribers) = (&published.topic, published.position, published.subscriber_count);
    let mut stdout = std::io::stdout().lock();
    if json {
        let shown = json!({"topic": topic, "epoch": at.epoch, "seq": at.seq, "subscribers": subscribers});
        writeln!(stdout, "{shown}")?;
        return Ok(());
    }
    let who = count(usize::try_from(subscribers).unwrap_or(usize::MAX), "subscriber");
    writeln!(stdout, "`{}` published to `{topic}` at {}:{} ({who})", wanted.of, at.epoch, at.seq)?;
    Ok(())
}
