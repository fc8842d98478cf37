//! Slightly malformed frames to the hub: each gets a JSON answer or a rejection, none causes a panic; and
//! globs in linear time.

use std::path::Path;

use serde_json::{Value, json};
use wigwag_fuzz::{Choices, body, fuzz, text};
use wigwag_hub::testing::{Vector, World};
use wigwag_hub::{Glob, Settings};

/// Valid frames, used as seeds: those of the conformance vectors.
fn seeds() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/hub");
    let frames = Vector::all(&folder).into_iter().flat_map(|vector| vector.frames());
    let sent = frames.filter(|frame| frame["pattern"].is_string());
    let filled = |frame: Value| {
        let text = frame.to_string().replace("\"$now\"", "1763251200000").replace("$run", "x");
        text.replace("\"$a\"", "\"@(a)\"").replace("\"$b\"", "\"@(b)\"").into_bytes()
    };
    sent.map(filled).collect()
}

#[test]
fn a_frame_is_answered_or_rejected() {
    let seeds = seeds();
    assert!(seeds.len() > 100, "{}", seeds.len());
    fuzz!(4_000, |input: &[u8]| {
        let mut choices = Choices::new(input);
        let mut world = World::new(Settings::default());
        world.join_as("a", "@(a)");
        world.join_as("b", "@(b)");
        for _ in 0..8 {
            let name = *choices.pick(&["a", "b"]);
            let frame = body(&mut choices, &seeds);
            if world.closed(name).is_none() {
                world.text(name, &String::from_utf8_lossy(&frame));
            }
            world.pass(choices.number() % 40_000);
            if choices.is_empty() {
                break;
            }
        }
        for name in ["a", "b"] {
            while let Some(frame) = world.next_text(name) {
                let value: Value = serde_json::from_str(&frame).unwrap_or_else(|error| panic!("{error}: {frame}"));
                assert!(value["type"].is_string(), "{frame}");
            }
        }
        // The hub works for other sessions regardless of the earlier input.
        world.join_as("c", "@(c)");
        let own = world.ask("c", "@(c)", "hub:send", json!({"to": "@(c)", "type": "note"}));
        assert_eq!(own["payload"]["status"], "delivered", "{own}");
    });
}

#[test]
fn raw_bytes_are_no_frame() {
    fuzz!(20_000, |input: &[u8]| {
        let _ = wigwag_hub::read(&String::from_utf8_lossy(input));
    });
}

#[test]
fn a_glob_takes_linear_time() {
    fuzz!(20_000, |input: &[u8]| {
        let mut choices = Choices::new(input);
        let pattern = text(&mut choices, &["@(a*a*a*b)", "*", "@(browser/*)", "a*b*a*b*"]);
        let address = text(&mut choices, &["@(aaaaaaaaaaaaaaaa)", "@(browser/widget-7)", "abababababab"]);
        if let Ok(glob) = Glob::new(&pattern) {
            assert!(glob.comparisons(&address) <= 2 * (pattern.len() + address.len()), "{pattern} {address}");
        }
    });
}
