//! Resume links: a token that may send one signal to one run, until a moment.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use serde_json::{Value, json};
use wigwag::{Builder, Client, Ctx, Engine, ErrorKind, Failure, LinkSecret, Settings, SignalState, Status};

use crate::world::*;

async fn approvals(ctx: Ctx, (): ()) -> Result<Value, Failure> {
    let first: Value = ctx.wait("approval").await?;
    let second: Value = ctx.wait("approval").await?;
    Ok(json!([first, second]))
}

fn with_secret(secret: &str) -> Settings {
    let mut settings = Settings::default();
    (settings.linger, settings.sweep_every) = (Duration::ZERO, None);
    settings.link_secret = Some(LinkSecret::new(secret).unwrap());
    settings
}

fn code(engine: Builder) -> Builder {
    engine.settings(with_secret("a secret of some length")).function("f", 1, approvals)
}

/// Returns a client of another process, with this secret.
async fn client_with(world: &World, secret: &str) -> Client {
    let clock = std::sync::Arc::new(world.kit().clock().clone());
    let store = std::sync::Arc::new(world.store.clone());
    Engine::builder(store).clock(clock).settings(with_secret(secret)).client().await.unwrap()
}

#[tokio::test]
async fn a_link_is_a_url_that_sends_exactly_this_signal_to_this_run() {
    for kind in KINDS {
        let world = World::start(kind, code).await;
        let (run, other) = (world.begin("f", "r").await, world.begin("f", "other").await);
        let url = world.client().link("r", "approval", HOUR).url("https://wigwag.example.com/").await.unwrap();
        let token = url.strip_prefix("https://wigwag.example.com/v1/links/").unwrap();
        assert!(token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)), "{token}");
        let link = world.client().read_link(token).await.unwrap();
        assert_eq!((link.run.as_str(), link.name.as_str(), link.once), ("r", "approval", false));
        assert!(run.signals(None).await.unwrap().is_empty(), "reading a link sends no signal");
        let receipt = client_with(&world, "a secret of some length").await.use_link(token, "yes").await.unwrap();
        assert_eq!(receipt.state, SignalState::Waiting);
        world.settle().await;
        let sent = signal_with(&run, "yes").await;
        assert_eq!(
            (sent.suffix, sent.name.as_str(), sent.source.via.as_deref()),
            (receipt.suffix, "approval", Some("link"))
        );
        assert!(other.signals(None).await.unwrap().is_empty());
        world.end().await;
    }
}

#[tokio::test]
async fn a_link_can_be_used_until_it_expires_and_not_after() {
    for kind in KINDS {
        let world = World::start(kind, code).await;
        let run = world.begin("f", "r").await;
        let token = world.client().link("r", "approval", HOUR).token().await.unwrap();
        world.advance(HOUR - SECOND).await;
        world.client().use_link(&token, &1).await.unwrap();
        world.advance(SECOND * 2).await;
        for outcome in
            [world.client().read_link(&token).await.map(drop), world.client().use_link(&token, &2).await.map(drop)]
        {
            let error = outcome.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Gone);
            assert!(error.advice().is_some());
        }
        assert_eq!(run.signals(None).await.unwrap().len(), 1);
        world.end().await;
    }
}

#[tokio::test]
async fn a_link_that_is_not_single_use_can_be_used_again() {
    for kind in KINDS {
        let world = World::start(kind, code).await;
        let run = world.begin("f", "r").await;
        let token = world.client().link("r", "approval", HOUR).token().await.unwrap();
        for number in [1, 2] {
            world.client().use_link(&token, &number).await.unwrap();
        }
        world.settle().await;
        assert_eq!(result(&run).await, json!([1, 2]));
        world.end().await;
    }
}

#[tokio::test]
async fn a_single_use_link_sends_once() {
    for kind in KINDS {
        let world = World::start(kind, code).await;
        let run = world.begin("f", "r").await;
        let token = world.client().link("r", "approval", DAY).once().token().await.unwrap();
        world.client().use_link(&token, &1).await.unwrap();
        world.settle().await;
        for payload in [1, 2] {
            let error = world.client().use_link(&token, &payload).await.unwrap_err();
            assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Conflict, "this link was used before"));
        }
        world.advance(HOUR).await;
        assert_eq!(world.client().use_link(&token, &1).await.unwrap_err().kind(), ErrorKind::Conflict);
        world.settle().await;
        assert_eq!(run.signals(None).await.unwrap().len(), 1);
        assert_eq!(run.status().await.unwrap(), Status::WaitingSignal);
        let another = world.client().link("r", "approval", DAY).once().token().await.unwrap();
        world.client().use_link(&another, &2).await.unwrap();
        world.settle().await;
        assert_eq!(result(&run).await, json!([1, 2]), "another link is another use");
        world.end().await;
    }
}

#[tokio::test]
async fn a_single_use_link_with_a_rejected_payload_can_still_be_used() {
    for kind in KINDS {
        let typed = |ctx: Ctx, (): ()| async move { ctx.wait::<u32>("approval").typed().await };
        let settings = with_secret("a secret of some length");
        let world = World::start(kind, |engine| engine.settings(settings).function("f", 1, typed)).await;
        let run = world.begin("f", "r").await;
        let token = world.client().link("r", "approval", HOUR).once().token().await.unwrap();
        assert_eq!(world.client().use_link(&token, "no").await.unwrap_err().kind(), ErrorKind::InvalidPayload);
        world.client().use_link(&token, &1).await.unwrap();
        world.settle().await;
        assert_eq!(result(&run).await, json!(1));
        world.end().await;
    }
}

/// Returns the token with a changed field and the old signature.
fn forged(token: &str, change: impl FnOnce(&mut Value)) -> String {
    let (body, signature) = token.split_once('.').unwrap();
    let mut link: Value = serde_json::from_slice(&BASE64.decode(body).unwrap()).unwrap();
    change(&mut link);
    format!("{}.{signature}", BASE64.encode(link.to_string()))
}

#[tokio::test]
async fn a_link_never_sends_another_name_nor_to_another_run_nor_longer() {
    for kind in KINDS {
        let world = World::start(kind, code).await;
        world.begin("f", "r").await;
        world.begin("f", "other").await;
        let token = world.client().link("r", "approval", HOUR).once().token().await.unwrap();
        let (body, signature) = token.split_once('.').unwrap();
        let tokens = [
            forged(&token, |link| link["run"] = json!("other")),
            forged(&token, |link| link["name"] = json!("payment")),
            forged(&token, |link| link["expires"] = json!("2030-01-01T00:00:00.000000Z")),
            forged(&token, |link| link["once"] = json!("another")),
            forged(&token, |link| _ = link.as_object_mut().unwrap().remove("once")),
            format!("{body}."),
            format!("{body}.{}", &signature[..signature.len() - 4]),
            format!("{body}.{signature}x"),
            format!("{body}.{}", BASE64.encode([0_u8; 32])),
            body.to_owned(),
            signature.to_owned(),
            String::new(),
            ".".into(),
        ];
        for forged in tokens {
            for outcome in [
                world.client().read_link(&forged).await.map(drop),
                world.client().use_link(&forged, &1).await.map(drop),
            ] {
                let error = outcome.unwrap_err();
                let said = (error.kind(), error.to_string());
                assert_eq!(said, (ErrorKind::Invalid, "this link is not valid".to_owned()), "{forged}");
                assert!(error.advice().is_some());
            }
        }
        for run in ["r", "other"] {
            assert!(world.run(run).signals(None).await.unwrap().is_empty());
        }
        world.end().await;
    }
}

#[tokio::test]
async fn a_link_that_another_secret_signed_is_not_valid() {
    for kind in KINDS {
        let world = World::start(kind, code).await;
        let run = world.begin("f", "r").await;
        let stranger = client_with(&world, "another secret of some length").await;
        let token = stranger.link("r", "approval", HOUR).token().await.unwrap();
        stranger.read_link(&token).await.unwrap();
        assert_eq!(world.client().use_link(&token, &1).await.unwrap_err().kind(), ErrorKind::Invalid);
        assert!(run.signals(None).await.unwrap().is_empty());
        world.end().await;
    }
}

#[tokio::test]
async fn a_link_is_rejected_for_the_same_reasons_as_its_signal() {
    for kind in KINDS {
        let world = World::start(kind, code).await;
        let token = world.client().link("nobody", "approval", HOUR).token().await.unwrap();
        assert_eq!(world.client().use_link(&token, &1).await.unwrap_err().kind(), ErrorKind::NotFound);
        let run = world.begin("f", "r").await;
        let token = world.client().link("r", "approval", HOUR).token().await.unwrap();
        run.cancel().await.unwrap();
        world.settle().await;
        assert_eq!(world.client().use_link(&token, &1).await.unwrap_err().kind(), ErrorKind::NotRunning);
        for (run, name, kind) in
            [("not an id!", "approval", ErrorKind::Invalid), ("r", "not a name", ErrorKind::InvalidName)]
        {
            let error = world.client().link(run, name, HOUR).token().await.unwrap_err();
            assert_eq!(error.kind(), kind);
        }
        world.end().await;
    }
}

#[tokio::test]
async fn the_secret_comes_from_the_settings_and_never_stands_in_the_bucket() {
    for kind in KINDS {
        let world = World::start(kind, |engine| engine.function("f", 1, approvals)).await;
        world.begin("f", "r").await;
        let error = world.client().link("r", "approval", HOUR).token().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.advice().unwrap().contains("WIGWAG_LINK_SECRET"));
        assert!(world.client().use_link("x.y", &1).await.is_err());
        let client = client_with(&world, "a secret of some length").await;
        let token = client.link("r", "approval", HOUR).once().token().await.unwrap();
        client.use_link(&token, &1).await.unwrap();
        for key in world.keys("").await {
            let object = wigwag_store::Store::get(&world.store, &key).await.unwrap().unwrap();
            let text = String::from_utf8_lossy(&object.body).into_owned();
            assert!(!text.contains("a secret of some length") && !text.contains(&token), "{key}");
        }
        world.settle().await;
        world.end().await;
    }
}

#[test]
fn a_secret_is_long_enough_and_is_not_shown() {
    let error = LinkSecret::new("short").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.advice().unwrap().contains("openssl"));
    let settings = with_secret("a secret of some length");
    assert!(!format!("{settings:?}").contains("some length"));
}

#[tokio::test]
async fn a_revoked_link_is_rejected_in_every_process_and_other_links_stay_valid() {
    for kind in KINDS {
        let world = World::start(kind, code).await;
        let run = world.begin("f", "r").await;
        let client = world.client();
        let revoked = client.link("r", "approval", HOUR).token().await.unwrap();
        let valid = client.link("r", "approval", HOUR).token().await.unwrap();
        let id = client.verify_link(&revoked).unwrap().id;
        assert!(client.revoke_link("r", &id).on_behalf_of("ada").await.unwrap());
        let key = world.keys("").await.into_iter().find(|key| key.contains(&id)).unwrap();
        let stored = wigwag_store::Store::get(&world.store, &key).await.unwrap().unwrap();
        let stored: Value = serde_json::from_slice(&stored.body).unwrap();
        assert_eq!(stored["by"], "ada", "{stored}");
        assert!(stored["revoked_at"].is_string(), "{stored}");
        assert!(!client.revoke_link("r", &id).await.unwrap(), "a second revocation changes nothing");
        for client in [world.client(), client_with(&world, "a secret of some length").await] {
            assert_eq!(client.read_link(&revoked).await.unwrap_err().kind(), ErrorKind::Gone);
            assert_eq!(client.use_link(&revoked, &1).await.unwrap_err().kind(), ErrorKind::Gone);
        }
        assert!(run.signals(None).await.unwrap().is_empty());
        client.use_link(&valid, &1).await.unwrap();
        for (run, id) in [("r", "not an id"), ("r", ""), ("nobody", id.as_str())] {
            assert!(client.revoke_link(run, id).await.is_err(), "{run} {id}");
        }
        world.end().await;
    }
}

#[tokio::test]
async fn the_sender_of_a_links_signal_is_signed_into_the_link() {
    for kind in KINDS {
        let world = World::start(kind, code).await;
        let run = world.begin("f", "r").await;
        let client = world.client();
        let token = client.link("r", "approval", HOUR).sender("ada").token().await.unwrap();
        client.use_link(&token, &"by ada").await.unwrap();
        let claimed = client.link("r", "other", HOUR).claimed_sender("bob").token().await.unwrap();
        client.use_link(&claimed, &"by bob").await.unwrap();
        let nameless = client.link("r", "approval", HOUR).token().await.unwrap();
        client.use_link(&nameless, &"nameless").await.unwrap();
        world.settle().await;
        let source = signal_with(&run, "by ada").await.source;
        assert_eq!((source.by.as_deref(), source.authenticated), (Some("ada"), true));
        let source = signal_with(&run, "by bob").await.source;
        assert_eq!((source.by.as_deref(), source.authenticated), (Some("bob"), false));
        assert_eq!(signal_with(&run, "nameless").await.source.by, None);
        assert!(client.link("r", "approval", HOUR).sender("").token().await.is_err());
        assert!(client.link("r", "approval", HOUR).sender("x".repeat(300)).token().await.is_err());
        world.end().await;
    }
}
