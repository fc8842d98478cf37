//! Slightly damaged bodies: a stored form with a few changes to its JSON or its bytes.
//!
//! Random bytes hardly ever get past the JSON parser; a slightly damaged body reaches the code behind it.

use serde_json::{Map, Value, json as value};

use crate::Choices;

/// Returns a form with few, many or no changes.
pub fn body(choices: &mut Choices<'_>, seeds: &[Vec<u8>]) -> Vec<u8> {
    let seed = choices.pick(seeds);
    let mut bytes = match choices.below(8) {
        0 => seed.clone(),
        7 => choices.bytes(256).to_vec(),
        _ => match serde_json::from_slice(seed) {
            Ok(value) => json(choices, value, seeds),
            Err(_) => seed.clone(),
        },
    };
    for _ in 0..choices.below(4).saturating_sub(1) {
        edit_bytes(choices, &mut bytes, seeds);
    }
    bytes
}

/// Returns the text of a JSON value with some values changed.
pub fn json(choices: &mut Choices<'_>, mut value: Value, seeds: &[Vec<u8>]) -> Vec<u8> {
    for _ in 0..=choices.below(3) {
        edit_json(choices, &mut value, seeds);
    }
    let text = value.to_string();
    RAW.iter().fold(text, |text, (mark, raw)| text.replace(&format!("\"{mark}\""), &raw())).into_bytes()
}

type Raw = fn() -> String;

/// JSON that a [`Value`] cannot hold, with placeholders that are replaced when the text is written.
const RAW: [(&str, Raw); 6] = [
    ("@exponent", || "1e999".into()),
    ("@surrogate", || "\"\\ud800\"".into()),
    ("@long-number", || "9".repeat(400)),
    ("@twice", || "{\"a\":1,\"a\":2,\"$blob\":\"x\"}".into()),
    ("@deep", || format!("{}{}", "[".repeat(2_000), "]".repeat(2_000))),
    ("@blob", || " {\"$blob\" : \"x\", \"bytes\":18446744073709551615}".into()),
];

fn edit_json(choices: &mut Choices<'_>, root: &mut Value, seeds: &[Vec<u8>]) {
    let other = any(&mut choices.clone(), root).clone();
    let found = any(choices, root);
    match (choices.below(10), &mut *found) {
        (0, Value::Object(map)) => _ = any_name(choices, map).and_then(|name| map.remove(&name)),
        (0, Value::Array(list)) if !list.is_empty() => _ = list.remove(choices.below(list.len())),
        (1, Value::Object(map)) => {
            let moved = any_name(choices, map).and_then(|name| map.remove(&name));
            map.insert(odd_text(choices), moved.unwrap_or_default());
        }
        (1, Value::Array(list)) if !list.is_empty() => {
            let again = list[choices.below(list.len())].clone();
            list.push(again);
        }
        (2, _) => *found = other,
        (3, Value::String(text)) => *text = crate::text(choices, &[text.as_str()]),
        (3 | 4, Value::Number(_)) => *found = odd_number(choices),
        (5, _) => {
            let other = choices.pick(seeds).as_slice();
            *found = serde_json::from_slice(other).unwrap_or_default();
        }
        (6, Value::Object(map)) => _ = map.insert(odd_text(choices), odd_value(choices)),
        _ => *found = odd_value(choices),
    }
}

fn any_name(choices: &mut Choices<'_>, map: &Map<String, Value>) -> Option<String> {
    map.keys().nth(choices.below(map.len().max(1))).cloned()
}

/// Picks any value of the tree, with a bias towards deeper ones.
fn any<'a>(choices: &mut Choices<'_>, mut value: &'a mut Value) -> &'a mut Value {
    for _ in 0..choices.below(6) {
        let within = match value {
            Value::Array(list) => list.len(),
            Value::Object(map) => map.len(),
            _ => 0,
        };
        if within == 0 {
            break;
        }
        let place = choices.below(within);
        value = match value {
            Value::Array(list) => &mut list[place],
            Value::Object(map) => map.values_mut().nth(place).expect("there are so many"),
            other => other,
        };
    }
    value
}

fn odd_value(choices: &mut Choices<'_>) -> Value {
    match choices.below(9) {
        0 => Value::Null,
        1 => Value::Bool(true),
        2 | 3 => odd_number(choices),
        4 => value!([]),
        5 => value!({}),
        6 => value!(choices.pick(&RAW).0),
        7 => (0..choices.below(120)).fold(Value::Null, |inner, _| value!([inner])),
        _ => Value::String(odd_text(choices)),
    }
}

fn odd_number(choices: &mut Choices<'_>) -> Value {
    match choices.below(9) {
        0 => value!(0),
        1 => value!(1),
        2 => value!(-1),
        3 => value!(u64::MAX),
        4 => value!(i64::MIN),
        5 => value!(u32::MAX),
        6 => value!(1.5e300),
        7 => value!(u64::from(choices.byte())),
        _ => value!(choices.number()),
    }
}

/// Special strings: keywords of the formats, and strings that are often handled wrongly.
const TEXTS: [&str; 28] = [
    "",
    "a",
    "go",
    "approve",
    "task",
    "a/b#2",
    "a#4294967295",
    ".delay",
    "a/.delay",
    "..",
    "a.json",
    "workflow/order-1",
    "task/x",
    "2026-01-28T12:00:05.000000Z",
    "1970-01-01T00:00:00.000000Z",
    "9999-12-30T22:00:00.000000Z",
    "2026-01-28T12:00:05.000000Z_0a1b",
    "due/00/2026-01-28T12:00:05.000000Z~00000000~order-1~w+4294967295",
    "run.restarted",
    "signal.waiting",
    "completed",
    "waiting_signal",
    "\0",
    "\u{202e}é\u{10ffff}",
    "~",
    "a\nb",
    "sha256:old",
    "latest",
];

fn odd_text(choices: &mut Choices<'_>) -> String {
    match choices.below(8) {
        0 => "x".repeat(1 + choices.below(2_000)),
        1 => "é".repeat(1 + choices.below(600)),
        _ => (*choices.pick(&TEXTS)).to_owned(),
    }
}

/// Returns one of these strings, or a special one, with some characters changed.
pub fn text(choices: &mut Choices<'_>, of: &[&str]) -> String {
    let mut text = if of.is_empty() || choices.once_in(4) { odd_text(choices) } else { (*choices.pick(of)).to_owned() };
    for _ in 0..choices.below(4) {
        let places: Vec<usize> = text.char_indices().map(|(place, _)| place).chain([text.len()]).collect();
        let (from, to) = (choices.below(places.len()), choices.below(places.len()));
        let (from, to) = (places[from.min(to)], places[from.max(to)]);
        match choices.below(4) {
            0 => text.replace_range(from..to, ""),
            1 => {
                let known: &&str = choices.pick(&TEXTS);
                text.insert_str(from, known);
            }
            2 => text.insert(from, char::from(choices.byte())),
            _ => text.insert(from, *choices.pick(&['/', '~', '_', '#', '.', ':', '+', '=', '-', '0', ' ', '\0', 'é'])),
        }
    }
    text
}

fn edit_bytes(choices: &mut Choices<'_>, bytes: &mut Vec<u8>, seeds: &[Vec<u8>]) {
    let (from, to) = (choices.below(bytes.len() + 1), choices.below(bytes.len() + 1));
    let (from, to) = (from.min(to), from.max(to));
    match choices.below(6) {
        0 => bytes.truncate(from),
        1 => _ = bytes.drain(from..to),
        2 if from < bytes.len() => bytes[from] ^= 1 << choices.below(8),
        3 => bytes.insert(from, choices.byte()),
        4 => {
            let again = bytes[from..to.min(from + 512)].to_vec();
            bytes.splice(to..to, again);
        }
        _ => {
            let other = choices.pick(seeds);
            bytes.splice(from..to, other.iter().copied().take(512));
        }
    }
}
