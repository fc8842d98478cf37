//! Rejected signals: each with a specific error kind, a message with the cause, and a hint.

use serde_json::{Value, json};
use wigwag::{ErrorKind, Graph, SignalCall};

use crate::world::*;

/// A rejected signal: its description, the call, the error kind, and expected words of the message
/// and the hint.
struct Refused {
    what: &'static str,
    call: SignalCall,
    kind: ErrorKind,
    says: &'static [&'static str],
    advises: &'static str,
}

fn refusals(world: &World) -> Vec<Refused> {
    let client = world.client();
    let refused = |what, call, kind, says, advises| Refused { what, call, kind, says, advises };
    vec![
        refused(
            "unknown run",
            client.signal("nobody", "approval", &1),
            ErrorKind::NotFound,
            &["`nobody`"],
            "wigwag list",
        ),
        refused(
            "finished run",
            client.signal("finished", "approval", &1),
            ErrorKind::NotRunning,
            &["`finished`", "`cancelled`"],
            "start",
        ),
        refused(
            "a name that is not allowed",
            client.signal("r", "my approval", &1),
            ErrorKind::InvalidName,
            &["`my approval`", "A-Za-z0-9"],
            "`payment.received`",
        ),
        refused(
            "a payload over the limit",
            client.signal("r", "other", &"x".repeat(1_100_000)),
            ErrorKind::InvalidPayload,
            &["1048576", "1100002"],
            "store the data elsewhere",
        ),
        refused(
            "a payload against the schema",
            client.signal("r", "approval", &json!({"by": {"name": 7}})),
            ErrorKind::InvalidPayload,
            &["`approval`", "/by/name", "7", "string"],
            "want: {",
        ),
        refused(
            "not waiting in strict mode",
            client.signal("r", "payment", &1).only_if_waiting(),
            ErrorKind::NotWaiting,
            &["`r`", "`payment`", "known: `approval`"],
            "without `only_if_waiting`",
        ),
        refused(
            "an unknown point",
            client.signal("r", "approval", &json!({})).point("legal"),
            ErrorKind::UnknownPoint,
            &["`approval`", "`legal`", "it waits at: `ask`"],
            "omit the step",
        ),
        refused(
            "a key that was used for something else",
            client.signal("r", "other", &2).key("click-1"),
            ErrorKind::Conflict,
            &["`click-1`", "`other`"],
            "a new message needs a new key",
        ),
    ]
}

#[tokio::test]
async fn each_rejection_has_a_kind_a_cause_and_a_hint() {
    for kind in KINDS {
        let schema = json!({"properties": {"by": {"properties": {"name": {"type": "string"}}}}});
        let graph = Graph::<Value>::new("g").signal_at("ask", "approval").schema(schema);
        let world = World::start(kind, |engine| engine.workflow(graph)).await;
        let run = world.begin_with("g", "r", &json!({})).await;
        let finished = world.begin_with("g", "finished", &json!({})).await;
        finished.cancel().await.unwrap();
        world.settle().await;
        run.signal("other", &1).key("click-1").await.unwrap();
        let before = world.keys("workflow/").await;
        for refused in refusals(&world) {
            let error = refused.call.await.unwrap_err();
            assert_eq!(error.kind(), refused.kind, "{}: {error}", refused.what);
            for part in refused.says {
                assert!(error.to_string().contains(part), "{}: `{error}` does not say {part}", refused.what);
            }
            let advice = error.advice().unwrap_or_else(|| panic!("{}: no hint", refused.what));
            assert!(advice.contains(refused.advises), "{}: {advice}", refused.what);
        }
        assert_eq!(world.keys("workflow/").await, before, "a rejected signal stores nothing");
        world.end().await;
    }
}

#[tokio::test]
async fn invalid_ids_steps_senders_and_keys_are_rejected_before_any_read() {
    let graph = Graph::<Value>::new("g").signal("approval");
    let world = World::start(Kind::Atomic, |engine| engine.workflow(graph)).await;
    let client = world.client();
    let (long, empty) = ("x".repeat(257), "");
    let calls = [
        (client.signal("no id!", "approval", &1), "no id!"),
        (client.signal("r", "approval", &1).point("//"), "//"),
        (client.signal("r", "approval", &1).by(empty), "sender"),
        (client.signal("r", "approval", &1).by(&long), "257"),
        (client.signal("r", "approval", &1).key(empty), "key"),
        (client.signal("r", "approval", &1).key(&long), "257"),
    ];
    for (call, says) in calls {
        let error = call.await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
    for name in ["", ".control", "a/b", "a#2", "x.json", "ä", &"x".repeat(65)] {
        let error = client.signal("r", name, &1).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidName, "`{name}`");
    }
    world.end().await;
}

#[tokio::test]
async fn a_payload_of_exactly_the_limit_is_accepted() {
    for kind in KINDS {
        let graph = Graph::<Value>::new("g").signal("approval");
        let world = World::start(kind, |engine| engine.workflow(graph)).await;
        let run = world.begin_with("g", "r", &json!({})).await;
        let text = "x".repeat(1_048_576 - 2);
        run.signal("approval", &text).await.unwrap();
        world.settle().await;
        assert_eq!(result(&run).await, json!(text));
        world.end().await;
    }
}
