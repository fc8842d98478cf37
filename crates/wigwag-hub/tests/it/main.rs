//! The rules of the hub: each test is named after the rule that it checks.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod access;
mod bounds;
mod delivery;
mod documented;
mod fan_out;
mod frames;
mod kept;
mod leases;
mod pressure;
mod promises;
mod repeats;
mod servers;
mod topics;
mod ttl;
mod vectors;

use serde_json::{Value, json};
use wigwag_hub::Settings;
use wigwag_hub::testing::World;

/// A hub with two actors: `a` at `@(a)` and `b` at `@(b)`.
fn pair() -> World {
    pair_with(Settings::default())
}

fn pair_with(settings: Settings) -> World {
    let mut world = World::new(settings);
    world.join_as("a", "@(a)");
    world.join_as("b", "@(b)");
    world
}

/// Settings without a rate limit.
fn unlimited() -> Settings {
    let mut settings = Settings::default();
    settings.rate = None;
    settings
}

/// Returns the payload of a message to an address.
fn note(to: &str, data: impl Into<Value>) -> Value {
    json!({"to": to, "type": "note", "data": data.into()})
}

/// Returns the data of the actors' messages, without the hub's own frames.
fn notes(frames: &[Value]) -> Vec<Value> {
    let own = |frame: &&Value| !frame["type"].as_str().unwrap_or_default().starts_with("hub:");
    frames.iter().filter(own).map(|frame| frame["payload"].clone()).collect()
}

/// Returns the types of frames.
fn types(frames: &[Value]) -> Vec<&str> {
    frames.iter().map(|frame| frame["type"].as_str().unwrap_or_default()).collect()
}
