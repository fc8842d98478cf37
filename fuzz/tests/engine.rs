//! Input to the engine from outside: tokens of links, and schemas with payloads.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json as value};
use wigwag::testing::ManualClock;
use wigwag::{Client, Engine, ErrorKind, Graph, LinkSecret, Payload, Settings};
use wigwag_fuzz::{Choices, fuzz, json, text, without_panics};
use wigwag_store::{Clock as _, Memory, System};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

async fn client(secret: &str) -> Client {
    let clock = ManualClock::default();
    let store = Arc::new(Memory::with_clock(Arc::new(clock.clone())));
    let mut settings = Settings::default();
    settings.link_secret = Some(LinkSecret::new(secret).unwrap());
    Engine::builder(store).clock(Arc::new(clock)).settings(settings).client().await.unwrap()
}

#[test]
fn a_changed_token_is_rejected() {
    let runtime = runtime();
    let client = runtime.block_on(client("a secret of some length"));
    let hour = Duration::from_secs(3_600);
    let tokens = runtime.block_on(async {
        let plain = client.link("order-1", "approval", hour).token().await.unwrap();
        let once = client.link("order-1", "approval", hour).once().token().await.unwrap();
        let long = client.link("x".repeat(100), "y".repeat(64), Duration::MAX).once().token().await.unwrap();
        let foreign = self::client("another secret of that length").await;
        [plain, once, long, foreign.link("order-1", "approval", hour).token().await.unwrap()]
    });
    let known: Vec<&str> = tokens.iter().map(String::as_str).collect();
    fuzz!(20_000, |input: &[u8]| {
        let mut choices = Choices::new(input);
        let mut token = text(&mut choices, &known);
        if choices.once_in(4) {
            // Swap one letter for another, including letters that differ only in bits that base64 ignores.
            let place = choices.below(token.len().max(1));
            if token.is_char_boundary(place) && token.is_char_boundary(place + 1) {
                let letter =
                    char::from(*choices.pick(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=. "));
                token.replace_range(place..(place + 1).min(token.len()), &letter.to_string());
            }
        }
        if choices.once_in(4) {
            // Truncate the token: a signature must be complete.
            let place = token.len().saturating_sub(choices.below(44));
            token.truncate((0..=place).rev().find(|place| token.is_char_boundary(*place)).unwrap_or(0));
        }
        match runtime.block_on(client.read_link(&token)) {
            Ok(_) => assert!(known[..3].contains(&token.as_str()), "accepted, but it is a changed token: {token}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Invalid, "{token}: {error}");
                assert!(!known[..3].contains(&token.as_str()) && error.advice().is_some());
            }
        }
    });
}

fn schemas() -> Vec<Vec<u8>> {
    let schemas = [
        value!({"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"], "additionalProperties": false}),
        value!({"$defs": {"tree": {"type": "object", "properties": {"left": {"$ref": "#/$defs/tree"}}}}, "$ref": "#/$defs/tree"}),
        value!({"$ref": "#"}),
        value!({"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
        value!({"type": "string", "pattern": "^(a+)+$", "maxLength": 18_446_744_073_709_551_615_u64, "format": "date-time"}),
        value!({"type": "array", "items": {"type": "integer", "minimum": 0, "multipleOf": 0.1}, "uniqueItems": true, "contains": {"const": 3}}),
        value!({"oneOf": [{"type": "null"}, {"enum": [1, "two", [3]]}], "not": {"const": {}}}),
        value!({"$schema": "http://json-schema.org/draft-07/schema#", "$id": "http://example.com/a", "definitions": {"x": true}}),
        value!({"$dynamicRef": "#node", "$dynamicAnchor": "node", "unevaluatedProperties": false, "propertyNames": {"pattern": "^[a-z]"}}),
        value!({"if": {"type": "object"}, "then": {"minProperties": 1}, "else": {"exclusiveMaximum": 10}, "dependentRequired": {"a": ["b"]}}),
        value!(true),
    ];
    schemas.iter().map(|schema| schema.to_string().into_bytes()).collect()
}

fn payloads() -> Vec<Vec<u8>> {
    let texts = [
        "{\"yes\":true}",
        "{\"left\":{\"left\":{\"left\":{}}}}",
        "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!\"",
        "[1,2,3,1e300]",
        "null",
        "12345678901234567890123",
    ];
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// Sends one payload under one schema, through every stage of a sender.
async fn send(schema: Value, payload: &Payload) {
    let store = Arc::new(Memory::new());
    let graph = Graph::<Value>::new("asks").signal("go").schema(schema.clone());
    let client = match Engine::builder(store).workflow(graph).client().await {
        Ok(client) => client,
        Err(error) => return assert_eq!(error.kind(), ErrorKind::Invalid, "{schema}: {error}"),
    };
    let sent = client.signal("asks-1", "go", payload).start_if_absent("asks", &Value::Null).await;
    if let Err(error) = sent {
        assert_eq!(error.kind(), ErrorKind::InvalidPayload, "{schema} {}: {error}", payload.text());
        assert!(error.advice().is_some());
    }
}

#[test]
fn a_schema_is_rejected_or_validates_any_payload() {
    let (schemas, payloads) = (schemas(), payloads());
    fuzz!(1_500, |input: &[u8]| {
        let mut choices = Choices::new(input);
        let mut any = |seeds: &[Vec<u8>]| {
            let seed: Value = serde_json::from_slice(choices.pick(seeds).as_slice()).unwrap();
            if choices.once_in(4) { seed.to_string().into_bytes() } else { json(&mut choices, seed, seeds) }
        };
        let Ok(schema) = serde_json::from_slice(&any(&schemas)) else { return };
        let Ok(payload) = Payload::parse(String::from_utf8_lossy(&any(&payloads))) else { return };
        let began = System.boot();
        without_panics(|| runtime().block_on(send(schema, &payload)));
        assert!(System.boot() - began < Duration::from_secs(5), "it took {:?}", System.boot() - began);
    });
}
