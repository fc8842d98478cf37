//! The test vectors of `conformance/hub`: frames sent and expected. `conformance/hub/README.md` explains the format.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value, json};

/// Named sockets to a hub.
pub trait Sockets {
    /// Opens a socket.
    fn open(&mut self, name: &str);
    /// Sends a frame.
    fn send(&mut self, name: &str, text: &str, binary: bool);
    /// Returns the next frame received, or the reason why there is none.
    fn receive(&mut self, name: &str) -> Result<String, String>;
    /// Closes the socket from this side.
    fn close(&mut self, name: &str);
    /// Returns the close code from the other side, after all frames before it.
    fn closed(&mut self, name: &str) -> Result<u16, String>;
    /// Returns the time in milliseconds.
    fn now(&self) -> u64;
}

/// One rule of the protocol.
#[derive(Clone, Debug)]
pub struct Vector {
    /// Name of the file.
    pub name: String,
    /// The rule in words.
    pub rule: String,
    steps: Vec<Value>,
}

impl Vector {
    /// Returns all vectors of a folder, sorted by name.
    ///
    /// # Panics
    /// If a file cannot be parsed.
    #[must_use]
    pub fn all(folder: &Path) -> Vec<Self> {
        let files = std::fs::read_dir(folder).expect("the folder of the vectors");
        let mut all: Vec<Self> = files
            .map(|file| file.expect("a file").path())
            .filter(|path| path.extension().is_some_and(|end| end == "json"))
            .map(|path| Self::read(&path))
            .collect();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).expect("a vector");
        let value: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let field = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        let steps = value["steps"].as_array().cloned().unwrap_or_default();
        Self { name: field("name"), rule: field("rule"), steps }
    }

    /// Returns all frames that are sent or expected.
    #[must_use]
    pub fn frames(&self) -> Vec<Value> {
        self.steps.iter().map(|step| step["frame"].clone()).filter(|frame| !frame.is_null()).collect()
    }

    /// Runs the vector and returns the first difference. `unique` distinguishes it from other runs on the same hub.
    pub fn run(&self, sockets: &mut dyn Sockets, unique: &str) -> Result<(), String> {
        let mut names = Names { all: BTreeMap::new(), unique: unique.to_owned(), count: 0 };
        run_steps(&self.steps, sockets, &mut names).map_err(|why| format!("{}: {why}\n({})", self.name, self.rule))
    }
}

fn run_steps(steps: &[Value], sockets: &mut dyn Sockets, names: &mut Names) -> Result<(), String> {
    for (place, step) in steps.iter().enumerate() {
        run_step(step, sockets, names).map_err(|why| format!("step {place}: {why}"))?;
    }
    Ok(())
}

fn run_step(step: &Value, sockets: &mut dyn Sockets, names: &mut Names) -> Result<(), String> {
    let text = |key: &str| step[key].as_str();
    if let Some(times) = step["times"].as_u64() {
        let steps = step["steps"].as_array().cloned().unwrap_or_default();
        for _ in 0..times {
            run_steps(&steps, sockets, names)?;
        }
    } else if let Some(name) = text("open") {
        sockets.open(name);
    } else if let Some(name) = text("close") {
        sockets.close(name);
    } else if let Some(name) = text("closed") {
        let code = sockets.closed(name)?;
        if step["code"] != json!(code) {
            return Err(format!("`{name}` was closed with {code}, not {}", step["code"]));
        }
    } else if let Some(name) = text("silent") {
        sockets.send(name, "{\"type\":\"ping\"}", false);
        let got = sockets.receive(name)?;
        if got != "{\"type\":\"pong\"}" {
            return Err(format!("`{name}` is not silent: {got}"));
        }
    } else if let Some(name) = text("from") {
        let now = sockets.now();
        let sent = match text("text") {
            Some(text) => names.inside(text),
            None => names.filled(&step["frame"], now).to_string(),
        };
        sockets.send(name, &sent, step["binary"] == json!(true));
    } else if let Some(name) = text("to") {
        let got = sockets.receive(name)?;
        let value: Value = serde_json::from_str(&got).map_err(|error| format!("not JSON ({error}): {got}"))?;
        names.fits(&step["frame"], Some(&value), "").map_err(|why| format!("{why} in {got}"))?;
    } else {
        return Err(format!("no such step: {step}"));
    }
    Ok(())
}

/// Values bound to names.
struct Names {
    all: BTreeMap<String, Value>,
    unique: String,
    count: u64,
}

impl Names {
    /// Replaces names inside of strings.
    fn inside(&self, text: &str) -> String {
        let mut out = text.replace("$run", &self.unique);
        while let Some(start) = out.find("$fill:") {
            let digits: String = out[start + 6..].chars().take_while(char::is_ascii_digit).collect();
            let count = digits.parse().unwrap_or(0);
            out.replace_range(start..start + 6 + digits.len(), &"x".repeat(count));
        }
        out
    }

    /// Returns the frame to send, with names and times filled in.
    fn filled(&mut self, value: &Value, now: u64) -> Value {
        match value {
            Value::Object(fields) => {
                let filled: Map<_, _> =
                    fields.iter().map(|(key, value)| (self.inside(key), self.filled(value, now))).collect();
                Value::Object(filled)
            }
            Value::Array(values) => values.iter().map(|value| self.filled(value, now)).collect(),
            Value::String(text) => self.filled_text(text, now),
            other => other.clone(),
        }
    }

    fn filled_text(&mut self, text: &str, now: u64) -> Value {
        if text == "$now" {
            return json!(now);
        }
        if let Some(earlier) = text.strip_prefix("$now-").and_then(|earlier| earlier.parse::<u64>().ok()) {
            return json!(now - earlier);
        }
        if let Some(name) = text.strip_prefix("$new:") {
            self.count += 1;
            let fresh = json!(format!("{}-{}-{name}", self.unique, self.count));
            self.all.insert(name.to_owned(), fresh.clone());
            return fresh;
        }
        match text.strip_prefix('$').and_then(|name| self.all.get(name)) {
            Some(known) => known.clone(),
            None => json!(self.inside(text)),
        }
    }

    /// Compares a received frame with the expected one and binds names.
    fn fits(&mut self, expected: &Value, got: Option<&Value>, at: &str) -> Result<(), String> {
        let wrong = |want: &dyn std::fmt::Display| Err(format!("`{at}` is {}, want {want}", shown(got)));
        let null = Value::Null;
        if let Value::String(text) = expected {
            return self.fits_text(text, got, at);
        }
        let value = got.unwrap_or(&null);
        match (expected, value) {
            (Value::Object(fields), Value::Object(there)) => {
                for (key, expected) in fields {
                    self.fits(expected, there.get(key), &format!("{at}.{key}"))?;
                }
                Ok(())
            }
            (Value::Array(wanted), Value::Array(there)) if wanted.len() == there.len() => {
                for (place, (expected, value)) in wanted.iter().zip(there).enumerate() {
                    self.fits(expected, Some(value), &format!("{at}[{place}]"))?;
                }
                Ok(())
            }
            _ if expected == value => Ok(()),
            _ => wrong(expected),
        }
    }

    fn fits_text(&mut self, text: &str, got: Option<&Value>, at: &str) -> Result<(), String> {
        let wrong = |want: String| Err(format!("`{at}` is {}, want {want}", shown(got)));
        let null = Value::Null;
        let value = got.unwrap_or(&null);
        let known = |name: &str| self.all.get(name);
        let met = match text.split_once(':') {
            _ if text == "$any" => got.is_some(),
            _ if text == "$absent" => got.is_none(),
            Some(("$bind", name)) => match known(name) {
                Some(known) => known == value,
                None => {
                    self.all.insert(name.to_owned(), value.clone());
                    true
                }
            },
            Some(("$not", name)) => got.is_some() && known(name) != Some(value),
            Some(("$above", name)) => value.as_f64() > known(name).and_then(Value::as_f64),
            _ => match text.strip_prefix('$').and_then(known) {
                Some(known) => known == value,
                None => value.as_str() == Some(&self.inside(text)),
            },
        };
        if met { Ok(()) } else { wrong(text.to_owned()) }
    }
}

fn shown(got: Option<&Value>) -> String {
    got.map_or_else(|| "absent".to_owned(), ToString::to_string)
}
