//! The topic `waiting`: opened waits, closed waits, and batches that are too large to announce one by one.

use std::time::Duration;

use serde_json::{Value, json};
use wigwag_store::Batch;

use crate::hub_socket::Socket;
use crate::kit::Kit;

/// Subscribes, and returns the first run whose wait is announced: the topic compares listings, so that waits before the first one are not.
async fn subscribed(kit: &Kit) -> (Socket, String) {
    let mut socket = Socket::join(kit.server.addr()).await;
    assert_eq!(socket.ask("hub:subscribe", json!({"topic": "waiting"})).await["type"], "hub:subscribed");
    for number in 0..100 {
        kit.waiting(&format!("first-{number}")).await;
        if let Ok(message) = tokio::time::timeout(Duration::from_millis(500), socket.next()).await {
            let message = message.unwrap();
            assert_eq!(
                (&message["type"], &message["metadata"]["topic"]),
                (&json!("wait:opened"), &json!("waiting")),
                "{message}"
            );
            return (socket, message["payload"]["run"].as_str().unwrap().to_owned());
        }
    }
    panic!("no wait is announced");
}

/// The next message of this type about this run.
async fn next_of(socket: &mut Socket, kind: &str, run: &str) -> Value {
    loop {
        let message = socket.next().await.unwrap();
        if message["type"] == kind && message["payload"]["run"] == run {
            return message["payload"].clone();
        }
    }
}

#[tokio::test]
async fn opened_and_closed_waits_are_announced_with_sender_and_reason() {
    let kit = Kit::new().await;
    let (mut socket, _) = subscribed(&kit).await;
    for id in ["answered", "cancelled"] {
        kit.waiting(id).await;
        let opened = next_of(&mut socket, "wait:opened", id).await;
        assert_eq!(opened["name"], "approval", "{opened}");
        assert!(opened["seq"].as_u64().is_some(), "{opened}");
    }
    kit.post("/v1/runs/answered/signals/approval", json!({"payload": 1, "by": "ada"})).await.ok(200);
    let closed = next_of(&mut socket, "wait:closed", "answered").await;
    let facts = |closed: &Value| [&closed["name"], &closed["why"], &closed["by"], &closed["status"]].map(Clone::clone);
    assert_eq!(facts(&closed), [json!("approval"), json!("received"), json!("ada"), json!("completed")]);
    kit.post("/v1/runs/cancelled/cancel", json!({})).await.ok(202);
    let closed = next_of(&mut socket, "wait:closed", "cancelled").await;
    assert_eq!(facts(&closed), [json!("approval"), json!("closed"), json!(null), json!("cancelled")]);
}

#[tokio::test]
async fn a_large_batch_of_changes_is_one_message_to_reload_the_list() {
    let kit = Kit::new().await;
    let (mut socket, _) = subscribed(&kit).await;
    let many =
        (0..60).fold(Batch::new(), |batch, run| batch.put(format!("waiting/review/run-{run:03}~0000000004"), "{}"));
    kit.store.write(many).await.unwrap();
    loop {
        let message = socket.next().await.unwrap();
        assert!(
            !message["payload"]["run"].as_str().unwrap_or_default().starts_with("run-"),
            "no wait of the batch is announced: {message}"
        );
        if message["type"] == "waits:missed" {
            break;
        }
    }
    // Later waits are announced one by one again.
    kit.waiting("after").await;
    assert_eq!(next_of(&mut socket, "wait:opened", "after").await["name"], "approval");
}
