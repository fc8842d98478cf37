//! The hub's error answers.

use serde_json::{Value, json};

use crate::settings::Millis;

/// An error answer: its kind, reason and hint.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Refusal {
    pub(crate) kind: &'static str,
    pub(crate) payload: Value,
}

fn error(code: &str, message: &str, hint: &str, details: &Value, retryable: bool) -> Refusal {
    let payload = json!({"code": code, "message": message, "hint": hint, "details": details, "retryable": retryable});
    Refusal { kind: "hub:error", payload }
}

pub(crate) fn invalid(message: &str) -> Refusal {
    error("invalid_message", message, "see docs/reference/hub.md for the expected fields", &Value::Null, false)
}

pub(crate) fn version_mismatch(theirs: &str) -> Refusal {
    let message = format!("this hub speaks protocol {}, not `{theirs}`", crate::PROTOCOL_VERSION);
    error("version_mismatch", &message, "use a client of the same major version", &Value::Null, false)
}

pub(crate) fn expired(ttl: u64) -> Refusal {
    let message = format!("the message expired before delivery (ttl: {ttl} ms)");
    error("message_expired", &message, "send a new message with a longer ttl", &Value::Null, false)
}

pub(crate) fn expired_in_queue() -> Refusal {
    let message = "the queued message expired before its target reconnected";
    error("message_expired", message, "send a new message with a longer ttl", &Value::Null, false)
}

pub(crate) fn queue_full(address: &str, what: &str) -> Refusal {
    let details = json!({"targetAddress": address});
    error("queue_full", what, "try again later", &details, true)
}

pub(crate) fn timeout(address: &str, attempted: Millis, message: &str) -> Refusal {
    let details = json!({"targetAddress": address, "attemptedAt": attempted});
    error("timeout", message, "repeat it with the same id", &details, true)
}

pub(crate) fn no_reply(address: &str, attempted: Millis) -> Refusal {
    let details = json!({"targetAddress": address, "attemptedAt": attempted});
    let hint = "repeat it with the same id to wait longer; ask under a new id to have it delivered again";
    error("timeout", "no reply came in time", hint, &details, true)
}

pub(crate) fn conflict(message: &str) -> Refusal {
    error("conflict", message, "use a new id for a new message", &Value::Null, false)
}

pub(crate) fn elsewhere(address: &str, url: Option<&str>) -> Refusal {
    let message = format!("`{address}` is connected to another server");
    let details = json!({"targetAddress": address, "url": url});
    error(
        "elsewhere",
        &message,
        "connect to the server at `details.url` and repeat it there with the same id",
        &details,
        false,
    )
}

pub(crate) fn session_gone(address: &str) -> Refusal {
    unknown_actor(address, "this session is not connected", "it may reconnect under the same address", true)
}

pub(crate) fn nobody_waits(id: &str) -> Refusal {
    let message = format!("no acknowledgement or reply is expected for `{}`", shown(id));
    error("timeout", &message, "reply sooner, or send a message of your own", &Value::Null, false)
}

pub(crate) fn internal(message: &str) -> Refusal {
    error("internal_error", message, "repeat it with the same id", &Value::Null, true)
}

pub(crate) fn unknown_actor(address: &str, message: &str, hint: &str, retryable: bool) -> Refusal {
    let payload = json!({"actorAddress": address, "message": message, "hint": hint, "retryable": retryable});
    Refusal { kind: "hub:unknown_actor", payload }
}

pub(crate) fn never_registered(address: &str) -> Refusal {
    unknown_actor(
        address,
        "unknown actor: this address was never registered",
        "check the address; `hub:discover` lists the registered actors",
        false,
    )
}

pub(crate) fn unauthorized(message: &str, hint: &str) -> Refusal {
    let payload = json!({"message": message, "hint": hint, "retryable": false});
    Refusal { kind: "hub:unauthorized", payload }
}

pub(crate) fn rate_limited(retry_after: Millis) -> Refusal {
    let message = format!("rate limit exceeded: retry after {retry_after} ms");
    let payload =
        json!({"retryAfter": retry_after, "message": message, "hint": "wait for `retryAfter` ms", "retryable": true});
    Refusal { kind: "hub:rate_limited", payload }
}

pub(crate) fn too_many_sessions(max: usize) -> Refusal {
    let message = format!("session limit reached: this token has {max} sessions");
    let payload = json!({"retryAfter": 1_000, "message": message, "hint": "close one of them, or use another token", "retryable": true});
    Refusal { kind: "hub:rate_limited", payload }
}

pub(crate) fn too_large(size: usize, max: usize) -> Refusal {
    let message = format!("a message has at most {max} bytes, got: {size}");
    let hint = "split it, or send a reference to the data";
    let payload = json!({"messageSize": size, "maxSize": max, "message": message, "hint": hint, "retryable": false});
    Refusal { kind: "hub:message_too_large", payload }
}

/// Returns a client's text shortened and escaped for use in a message.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(80).flat_map(char::escape_debug).collect()
}
