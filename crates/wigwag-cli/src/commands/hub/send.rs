//! `wigwag hub send`: sends a message to an actor and prints the delivery receipt.

use std::io::Write as _;

use serde_json::json;
use wigwag::Payload;
use wigwag_hub_client::{Client, Event, Message, Receipt, Sending, Status};

use super::Door;
use super::listen::as_json;
use crate::args::HubSend;
use crate::error::Failed;
use crate::input;

pub(super) async fn run(door: &Door, wanted: &HubSend, json: bool) -> Result<(), Failed> {
    let data = input::data(&wanted.data)?;
    let mut connect = door.connect();
    if let Some(address) = &wanted.from {
        connect = connect.register::<String>(address, []);
    }
    let client = connect.await.map_err(|error| door.failed(&error))?;
    let outcome = match (wanted.tell, wanted.reply) {
        (true, _) => return tell(door, &client, wanted, &data, json).await,
        (_, true) => request(door, &client, wanted, &data, json).await,
        _ => ask(door, &client, wanted, &data, json).await,
    };
    client.close().await;
    outcome
}

/// Applies the options that all messages share.
fn with<'a, T>(mut sending: Sending<'a, T>, wanted: &HubSend) -> Sending<'a, T> {
    if let Some(ttl) = wanted.ttl {
        sending = sending.ttl(ttl);
    }
    match &wanted.id {
        Some(id) => sending.id(id),
        None => sending,
    }
}

async fn ask(door: &Door, client: &Client, wanted: &HubSend, data: &Payload, json: bool) -> Result<(), Failed> {
    let mut sending = with(client.ask(&wanted.to, &wanted.of, data), wanted);
    if wanted.require_ack {
        sending = sending.require_ack();
    }
    let receipt = sending.await.map_err(|error| door.failed(&error))?;
    show(wanted, &receipt, json)
}

async fn request(door: &Door, client: &Client, wanted: &HubSend, data: &Payload, json: bool) -> Result<(), Failed> {
    let mut sending = with(client.request(&wanted.to, &wanted.of, data), wanted);
    if wanted.require_ack {
        sending = sending.require_ack();
    }
    let reply: Message = sending.await.map_err(|error| door.failed(&error))?;
    let shown = if json { as_json(&reply)? } else { reply.json().to_owned() };
    writeln!(std::io::stdout().lock(), "{shown}")?;
    Ok(())
}

/// Sends a tell. The hub reports errors before it closes the connection.
async fn tell(door: &Door, client: &Client, wanted: &HubSend, data: &Payload, json: bool) -> Result<(), Failed> {
    let mut events = client.events();
    let sent = with(client.tell(&wanted.to, &wanted.of, data), wanted).await;
    sent.map_err(|error| door.failed(&error))?;
    client.close().await;
    while let Some(event) = events.try_next() {
        if let Event::Refused { error, .. } = event {
            return Err(door.failed(&error));
        }
    }
    let mut stdout = std::io::stdout().lock();
    match json {
        true => writeln!(stdout, "{}", json!({"to": wanted.to, "type": wanted.of, "status": "told"}))?,
        false => writeln!(stdout, "`{}` sent to `{}` without a receipt", wanted.of, wanted.to)?,
    }
    Ok(())
}

fn show(wanted: &HubSend, receipt: &Receipt, json: bool) -> Result<(), Failed> {
    let HubSend { to, of, .. } = wanted;
    let mut stdout = std::io::stdout().lock();
    if json {
        let Receipt { message_id, delivered_at, status, .. } = receipt;
        let shown =
            json!({"to": to, "type": of, "messageId": message_id, "deliveredAt": delivered_at, "status": status});
        writeln!(stdout, "{shown}")?;
        return Ok(());
    }
    match receipt.status {
        Status::Delivered if wanted.require_ack => writeln!(stdout, "`{of}` acknowledged by `{to}`")?,
        Status::Delivered => writeln!(stdout, "`{of}` delivered to `{to}`")?,
        Status::Queued if to.starts_with("@(workflow/") => {
            writeln!(stdout, "`{of}` queued until `{to}` waits for it")?;
        }
        Status::Queued => writeln!(stdout, "`{of}` queued until `{to}` reconnects")?,
        other => writeln!(stdout, "`{of}` to `{to}`: {other:?}")?,
    }
    Ok(())
}
