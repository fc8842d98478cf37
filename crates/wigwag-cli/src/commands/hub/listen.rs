//! `wigwag hub listen`: receives and prints messages.

use std::io::Write as _;

use futures_util::stream::{SelectAll, StreamExt as _};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use wigwag_hub_client::{Client, Delivery, Event, Gap, Message, Position, Subscription};

use super::{Door, moment, soon};
use crate::args::Listen;
use crate::error::Failed;
use crate::output::{line, talk};

pub(super) async fn run(door: &Door, wanted: &Listen, json: bool) -> Result<(), Failed> {
    if wanted.after.is_some() && wanted.topic.len() > 1 {
        return Err(Failed::wrong("`--after` needs exactly one `--topic`").hint("run one `hub listen` per topic"));
    }
    let mut connect = door.connect();
    if let Some(address) = &wanted.address {
        connect = connect.register(address, wanted.capability.clone());
    }
    let client = connect.await.map_err(|error| door.failed(&error))?;
    let topics = subscribe(door, &client, wanted).await?;
    talk(&format!("listening as `{}`", wanted.address.clone().unwrap_or_else(|| client.address())));
    let outcome = listen(door, &client, topics, wanted, json).await;
    client.close().await;
    outcome
}

/// Deliveries of all subscriptions, each with the name of its topic.
type Topics = SelectAll<std::pin::Pin<Box<dyn futures_util::Stream<Item = (String, Delivery)>>>>;

async fn subscribe(door: &Door, client: &Client, wanted: &Listen) -> Result<Topics, Failed> {
    let mut topics = SelectAll::new();
    for name in &wanted.topic {
        let mut subscribe = client.subscribe(name);
        if let Some((epoch, seq)) = wanted.after {
            subscribe = subscribe.after(Position { epoch, seq });
        }
        let subscription: Subscription = subscribe.await.map_err(|error| door.failed(&error))?;
        let name = name.clone();
        topics.push(subscription.map(move |delivery| (name.clone(), delivery)).boxed_local());
    }
    Ok(topics)
}

async fn listen(door: &Door, client: &Client, mut topics: Topics, wanted: &Listen, json: bool) -> Result<(), Failed> {
    let mut messages = client.messages();
    let mut events = client.events();
    let mut left = wanted.limit.unwrap_or(u64::MAX);
    let mut open = wanted.topic.len();
    while left > 0 {
        tokio::select! {
            biased;
            stopped = tokio::signal::ctrl_c() => return stopped.map_err(Failed::from),
            Some(event) = events.next() => say(&event),
            Some(message) = messages.next() => {
                show(&message, json)?;
                message.ack();
                left -= 1;
            }
            Some((topic, delivery)) = topics.next() => {
                open -= usize::from(matches!(delivery, Delivery::Ended(_)));
                left -= deliver(&topic, delivery, json)?;
                // All topics have ended and there is no address to receive on.
                if open == 0 && wanted.address.is_none() {
                    return Ok(());
                }
            }
            error = client.closed() => return Err(door.failed(&error)),
        }
    }
    Ok(())
}

/// Prints a delivery; returns the number of messages in it.
fn deliver(topic: &str, delivery: Delivery, json: bool) -> Result<u64, Failed> {
    match delivery {
        Delivery::Message(message) => show(&message, json).map(|()| 1),
        Delivery::Gap(gap) => show_gap(topic, gap, json).map(|()| 0),
        Delivery::Ended(why) => {
            talk(&format!("topic `{topic}` ended: {}", line(&why)));
            Ok(0)
        }
        _ => Ok(0),
    }
}

fn say(event: &Event) {
    match event {
        Event::Disconnected { error, retry_in } => talk(&format!("{error}; reconnecting {}", soon(*retry_in))),
        Event::Connected { .. } => talk("reconnected"),
        Event::Unregistered { address, error } => talk(&format!("lost address `{address}`: {error}")),
        _ => {}
    }
}

fn show(message: &Message, json: bool) -> Result<(), Failed> {
    let mut stdout = std::io::stdout().lock();
    match json {
        true => writeln!(stdout, "{}", as_json(message)?)?,
        false => {
            let place = message.position().map(|at| format!("  {}:{}", at.epoch, at.seq)).unwrap_or_default();
            let (from, to, kind, data) = (message.from(), message.to(), line(message.kind()), line(message.json()));
            writeln!(stdout, "{}  {from} -> {to}{place}  {kind}  {data}", moment(message.timestamp()))?;
        }
    }
    stdout.flush()?;
    Ok(())
}

/// Formats a message as JSON; the payload is passed through unchanged.
pub(super) fn as_json(message: &Message) -> Result<String, Failed> {
    #[derive(serde::Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Shown<'a> {
        id: &'a str,
        from: &'a str,
        to: &'a str,
        #[serde(rename = "type")]
        kind: &'a str,
        data: &'a RawValue,
        timestamp: u64,
        expects_reply: bool,
        #[serde(flatten)]
        position: Option<Position>,
        original_message_id: Option<&'a Value>,
    }
    let unreadable = |error: serde_json::Error| Failed::new(error.to_string());
    let shown = Shown {
        id: message.id(),
        from: message.from(),
        to: message.to(),
        kind: message.kind(),
        data: serde_json::from_str(message.json()).map_err(unreadable)?,
        timestamp: message.timestamp(),
        expects_reply: message.expects_reply(),
        position: message.position(),
        original_message_id: message.metadata("originalMessageId"),
    };
    serde_json::to_string(&shown).map_err(unreadable)
}

fn show_gap(topic: &str, gap: Gap, json: bool) -> Result<(), Failed> {
    if json {
        let shown = json!({"gap": {"topic": topic, "epoch": gap.epoch, "from": gap.from, "to": gap.to}});
        writeln!(std::io::stdout().lock(), "{shown}")?;
        return Ok(());
    }
    talk(&match gap.from {
        Some(from) => format!("gap in `{topic}`: messages {from} to {} are no longer available", gap.to),
        None => format!("topic `{topic}` was reset: messages may have been missed"),
    });
    Ok(())
}
