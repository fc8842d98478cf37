//! The Rust client of the hub: sending, retrying, resuming and giving up.

use std::time::Duration;

use serde_json::{Value, json};
use wigwag_hub_client::{
    Client, Delivery, ErrorKind, Event, Events, Gap, Message, Messages, Settings, Status, Subscription,
};
use wigwag_server::{Auth, HubSettings, Scope};

use crate::place::Place;
use crate::process::Serving;
use crate::relay::Relay;

/// Time limit of every wait: exceeding it means a hang.
const LONG: Duration = Duration::from_secs(60);

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, what).await.expect("timed out")
}

fn hub(place: &Place) -> String {
    place.url().replace("http://", "ws://") + "/hub"
}

async fn served_with(change: impl FnOnce(&mut HubSettings)) -> Place {
    let mut settings = wigwag_server::Settings::default();
    settings.hub.rate = None;
    change(&mut settings.hub);
    Place::served_with(|server| server.settings(settings)).await
}

async fn served() -> Place {
    served_with(|_| {}).await
}

async fn client(place: &Place) -> Client {
    soon(async { Client::connect(hub(place)).await.unwrap() }).await
}

async fn actor(place: &Place, address: &str) -> Client {
    soon(async { Client::connect(hub(place)).register(address, ["test"]).await.unwrap() }).await
}

async fn next(messages: &mut Messages) -> Message {
    soon(messages.next()).await.expect("the client has not ended")
}

async fn next_of(subscription: &mut Subscription) -> (u64, Value) {
    match soon(subscription.next()).await {
        Some(Delivery::Message(message)) => (message.position().unwrap().seq, message.data().unwrap()),
        other => panic!("{other:?}"),
    }
}

async fn event(events: &mut Events, wanted: impl Fn(&Event) -> bool) -> Event {
    soon(async {
        loop {
            let event = events.next().await.expect("the client has not ended");
            if wanted(&event) {
                return event;
            }
        }
    })
    .await
}

fn is_connected(event: &Event) -> bool {
    matches!(event, Event::Connected { .. })
}

/// Settings with short timeouts for tests.
fn quick() -> Settings {
    let mut settings = Settings::default();
    settings.answer_timeout = Duration::from_secs(5);
    settings.backoff_min = Duration::from_millis(20);
    settings.backoff_max = Duration::from_millis(200);
    settings
}

#[tokio::test]
async fn tells_asks_and_requests_arrive_and_are_answered() {
    let place = served().await;
    let worker = actor(&place, "@(worker/a)").await;
    let client = actor(&place, "@(page/1)").await;
    let mut inbox = worker.messages();

    client.tell("@(worker/a)", "job:tell", &json!({"n": 1})).await.unwrap();
    let message = next(&mut inbox).await;
    assert_eq!((message.kind(), message.from(), message.to()), ("job:tell", "@(page/1)", "@(worker/a)"));
    assert_eq!(message.data::<Value>().unwrap(), json!({"n": 1}));
    assert!(!message.expects_reply() && !message.requires_ack());

    let receipt = client.ask("@(worker/a)", "job:ask", &2).id("my-id").metadata("traceId", "t").await.unwrap();
    assert_eq!(receipt.status, Status::Delivered);
    let message = next(&mut inbox).await;
    assert_eq!(message.metadata("originalMessageId"), Some(&json!("my-id")));
    assert_eq!(message.metadata("traceId"), Some(&json!("t")));
    let refused = message.reply("no", &0).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "nobody waits for it");

    let serve = async {
        let message = next(&mut inbox).await;
        let (a, b): (i64, i64) = message.data().unwrap();
        message.reply("sum", &(a + b)).await.unwrap()
    };
    let (reply, receipt) = soon(async { tokio::join!(client.request("@(worker/a)", "add", &(2, 3)), serve) }).await;
    let reply = reply.unwrap();
    assert_eq!((reply.kind(), reply.from(), reply.data::<i64>().unwrap()), ("sum", "@(worker/a)", 5));
    assert_eq!(receipt.status, Status::Delivered);

    let session = client.address();
    worker.ask(&session, "back", &()).from("@(worker/a)").await.unwrap();
    assert_eq!(next(&mut client.messages()).await.to(), session, "a session can be reached without a name");
    client.close().await;
    assert_eq!(client.tell("@(worker/a)", "late", &()).await.unwrap_err().kind(), ErrorKind::Closed);
}

#[tokio::test]
async fn a_message_counts_as_delivered_when_it_is_acknowledged_and_not_before() {
    let place = served().await;
    let worker = actor(&place, "@(worker/a)").await;
    let client = client(&place).await;
    let mut inbox = worker.messages();
    let ask = client.ask("@(worker/a)", "job", &1).require_ack();
    let handle = async {
        let message = next(&mut inbox).await;
        assert!(message.requires_ack());
        message.ack();
    };
    let (receipt, ()) = soon(async { tokio::join!(ask, handle) }).await;
    assert_eq!(receipt.unwrap().status, Status::Delivered);

    let ask = client.ask("@(worker/a)", "job", &2).require_ack().ttl(Duration::from_secs(2));
    let (receipt, message) = soon(async { tokio::join!(ask, next(&mut inbox)) }).await;
    let error = receipt.unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Timeout, true));
    assert_eq!(error.details()["targetAddress"], "@(worker/a)");
    drop(message);
}

#[tokio::test]
async fn only_unacknowledged_messages_are_delivered_again() {
    let place = served().await;
    let client = client(&place).await;
    let worker = actor(&place, "@(worker/a)").await;
    worker.close().await;
    for number in 1..=2 {
        let receipt = client.ask("@(worker/a)", "job", &number).require_ack().await.unwrap();
        assert_eq!(receipt.status, Status::Queued);
    }
    let relay = Relay::to(&place.url()).await;
    let connect = Client::connect(relay.hub()).settings(quick()).register("@(worker/a)", ["test"]);
    let worker = soon(async { connect.await.unwrap() }).await;
    let (mut inbox, mut events) = (worker.messages(), worker.events());
    let first = next(&mut inbox).await;
    assert_eq!(first.data::<i64>().unwrap(), 1);
    first.ack();
    let second = next(&mut inbox).await;
    assert_eq!(second.data::<i64>().unwrap(), 2);
    drop(second);
    // Frames are handled in order, so the hub has processed the first ack once it answers a later request.
    worker.metrics().await.unwrap();
    relay.cut();
    event(&mut events, is_connected).await;
    let again = next(&mut inbox).await;
    assert_eq!(again.data::<i64>().unwrap(), 2, "it was dropped without a word");
    again.ack();
    worker.metrics().await.unwrap();
    worker.close().await;
    let worker = actor(&place, "@(worker/a)").await;
    client.ask("@(worker/a)", "job", &3).await.unwrap();
    assert_eq!(next(&mut worker.messages()).await.data::<i64>().unwrap(), 3, "nothing was left");
}

#[tokio::test]
async fn unknown_actors_wrong_names_and_oversized_messages_are_errors_with_hints() {
    let place = served().await;
    let client = client(&place).await;
    let refused = client.ask("@(nobody/here)", "job", &1).await.unwrap_err();
    assert_eq!((refused.kind(), refused.is_retryable()), (ErrorKind::UnknownActor, false));
    assert!(refused.to_string().contains("@(nobody/here)") && refused.advice().is_some(), "{refused:?}");
    for wrong in ["nobody", "@()", "@(a b)"] {
        assert_eq!(client.ask(wrong, "job", &1).await.unwrap_err().kind(), ErrorKind::Invalid, "{wrong}");
    }
    let large = "x".repeat(2 << 20);
    // Shorter than a heartbeat: a send timeout is reported immediately.
    let ask = tokio::time::timeout(Duration::from_secs(20), client.ask("@(nobody/here)", "job", &large).into_future());
    assert_eq!(ask.await.unwrap().unwrap_err().kind(), ErrorKind::TooLarge);
    let foreign = client.ask("@(nobody/here)", "job", &1).from("@(somebody/else)").await.unwrap_err();
    assert_eq!(foreign.kind(), ErrorKind::Unauthorized);
    let expired = client.ask("@(nobody/here)", "job", &1).ttl(Duration::ZERO).await.unwrap_err();
    assert!([ErrorKind::Expired, ErrorKind::UnknownActor].contains(&expired.kind()), "{expired:?}");
    let reserved = client.register("@(workflow/a)", ["x"]).await.unwrap_err();
    assert_eq!(reserved.kind(), ErrorKind::Unauthorized);
    // A rejected tell is reported as an event.
    let mut events = client.events();
    client.tell("@(nobody/here)", "job", &1).from("@(somebody/else)").id("t-1").await.unwrap();
    let refused = event(&mut events, |event| matches!(event, Event::Refused { .. })).await;
    let Event::Refused { id, error } = refused else { unreachable!() };
    assert_eq!((id.as_deref(), error.kind()), (Some("t-1"), ErrorKind::Unauthorized));
}

#[tokio::test]
async fn actors_are_listed_by_pattern_and_capability_in_pages() {
    let place = served().await;
    let client = client(&place).await;
    let first = client.register("@(worker/a)", ["add", "mul"]).await.unwrap();
    client.register("@(worker/b)", ["add"]).await.unwrap();
    client.register("@(page/1)", Vec::<String>::new()).await.unwrap();
    let addresses =
        |actors: &[wigwag_hub_client::Actor]| actors.iter().map(|actor| actor.address.clone()).collect::<Vec<_>>();
    let all = client.actors().all().await.unwrap();
    assert_eq!(addresses(&all), ["@(page/1)", "@(worker/a)", "@(worker/b)"]);
    let page = client.discover("@(worker/*)").limit(1).await.unwrap();
    assert_eq!(addresses(&page.actors), ["@(worker/a)"]);
    let rest = client.discover("@(worker/*)").after(page.next.unwrap()).await.unwrap();
    assert_eq!((addresses(&rest.actors), rest.next), (vec!["@(worker/b)".to_owned()], None));
    assert_eq!(addresses(&client.actors().capability("mul").all().await.unwrap()), ["@(worker/a)"]);
    client.unregister("@(worker/a)").await.unwrap();
    assert_eq!(addresses(&client.discover("@(worker/*)").all().await.unwrap()), ["@(worker/b)"]);
    let again = client.register("@(worker/a)", ["add"]).await.unwrap();
    assert!(again.version > first.version, "versions only grow");
    assert!(client.queue_stats().await.unwrap().is_object() && client.metrics().await.unwrap().is_object());
}

#[tokio::test]
async fn topics_and_broadcasts_reach_their_subscribers() {
    let place = served().await;
    let (one, two) = (actor(&place, "@(a/1)").await, actor(&place, "@(a/2)").await);
    let mut heard = soon(async { one.subscribe("orders/new").await.unwrap() }).await;
    let published = two.publish("orders/new", "order:new", &json!({"id": 17})).await.unwrap();
    assert_eq!((published.position.seq, published.subscriber_count), (1, 1));
    assert_eq!(next_of(&mut heard).await, (1, json!({"id": 17})));
    assert_eq!(heard.position(), published.position);
    let twice = one.subscribe("orders/new").await.unwrap_err();
    assert_eq!(twice.kind(), ErrorKind::Invalid);
    drop(heard);
    // A second subscription resumes at the position of the first.
    two.publish("orders/new", "order:new", &2).tell().await.unwrap();
    let mut heard = soon(async { one.subscribe("orders/new").after(published.position).await.unwrap() }).await;
    assert_eq!(next_of(&mut heard).await, (2, json!(2)));

    let sent = one.broadcast("all:hands", &"now").exclude_self().capability("test").await.unwrap();
    assert_eq!((sent.delivered_count, sent.failed_count), (1, 0));
    let message = next(&mut two.messages()).await;
    assert_eq!((message.to(), message.kind()), ("@(broadcast)", "all:hands"));
}

#[tokio::test]
async fn a_cut_connection_is_restored_with_its_address_topics_and_asks() {
    let place = served().await;
    let relay = Relay::to(&place.url()).await;
    let worker = actor(&place, "@(worker/a)").await;
    let mut inbox = worker.messages();
    let connect = Client::connect(relay.hub()).settings(quick()).register("@(page/1)", ["test"]);
    let client = soon(async { connect.await.unwrap() }).await;
    let (session, mut events) = (client.address(), client.events());
    let mut heard = soon(async { client.subscribe("orders").await.unwrap() }).await;
    worker.publish("orders", "order:new", &1).await.unwrap();
    assert_eq!(next_of(&mut heard).await, (1, json!(1)));

    // The hub receives the ask, but its answer is lost. The client retries with the same id over another connection.
    relay.mute();
    let ask = tokio::spawn({
        let client = client.clone();
        async move { client.ask("@(worker/a)", "job", &7).id("once").await }
    });
    assert_eq!(next(&mut inbox).await.metadata("originalMessageId"), Some(&json!("once")));
    relay.cut();
    worker.publish("orders", "order:new", &2).await.unwrap();
    let Event::Connected { address, resumed } = event(&mut events, is_connected).await else { unreachable!() };
    assert_eq!((address, resumed), (session, true), "it is the same session");
    assert_eq!(soon(ask).await.unwrap().unwrap().status, Status::Delivered);
    assert_eq!(next_of(&mut heard).await, (2, json!(2)), "a message published during the cut is not missed");
    worker.publish("orders", "order:new", &3).await.unwrap();
    assert_eq!(next_of(&mut heard).await, (3, json!(3)));
    // The client is registered, and the worker got the job once: the next frame is something else.
    client.tell("@(worker/a)", "after", &()).await.unwrap();
    let message = next(&mut inbox).await;
    assert_eq!((message.kind(), message.from()), ("after", "@(page/1)"));
}

#[tokio::test]
async fn each_ask_and_message_arrives_once_however_often_the_connection_is_cut() {
    let place = served().await;
    let relay = Relay::to(&place.url()).await;
    let worker = actor(&place, "@(worker/a)").await;
    // A small window, so that each cut finds asks at every stage.
    let mut settings = quick();
    settings.buffer = 10;
    let connect = Client::connect(relay.hub()).settings(settings).register("@(page/1)", ["test"]);
    let client = soon(async { connect.await.unwrap() }).await;
    let mut events = client.events();
    let mut heard = soon(async { client.subscribe("done").await.unwrap() }).await;
    let asks: Vec<_> = (0..300)
        .map(|number| {
            let client = client.clone();
            tokio::spawn(async move { client.ask("@(worker/a)", "job", &number).await })
        })
        .collect();
    let (mut inbox, mut came) = (worker.messages(), Vec::new());
    while came.len() < 300 {
        let number = next(&mut inbox).await.data::<usize>().unwrap();
        came.push(number);
        worker.publish("done", "job:done", &number).await.unwrap();
        if came.len() % 20 == 0 {
            relay.cut();
        }
    }
    for ask in asks {
        assert_eq!(soon(ask).await.unwrap().unwrap().status, Status::Delivered);
    }
    let cuts = std::iter::from_fn(|| events.try_next()).filter(is_connected).count();
    assert!(cuts >= 10, "it came back {cuts} times only");
    let mut told = Vec::new();
    while told.len() < 300 {
        let (seq, number) = next_of(&mut heard).await;
        assert_eq!(seq, told.len() as u64 + 1);
        told.push(usize::try_from(number.as_u64().unwrap()).unwrap());
    }
    assert_eq!(told, came);
    came.sort_unstable();
    assert_eq!(came, (0..300).collect::<Vec<_>>());
    worker.tell("@(worker/a)", "end", &()).await.unwrap();
    assert_eq!(next(&mut inbox).await.kind(), "end", "nothing came twice");
}

#[tokio::test]
async fn messages_that_the_hub_no_longer_has_are_reported_as_a_gap() {
    let place = served_with(|hub| hub.history_max = 2).await;
    let relay = Relay::to(&place.url()).await;
    let client = soon(async { Client::connect(relay.hub()).settings(quick()).await.unwrap() }).await;
    let publisher = self::client(&place).await;
    let mut heard = soon(async { client.subscribe("orders").await.unwrap() }).await;
    let first = publisher.publish("orders", "order:new", &1).await.unwrap();
    next_of(&mut heard).await;
    relay.refuse(true);
    relay.cut();
    for number in 2..=6 {
        publisher.publish("orders", "order:new", &number).await.unwrap();
    }
    relay.refuse(false);
    let Some(Delivery::Gap(gap)) = soon(heard.next()).await else { panic!("no gap") };
    assert_eq!(gap, Gap { epoch: first.position.epoch, from: Some(2), to: 4 });
    assert_eq!(next_of(&mut heard).await, (5, json!(5)));
    assert_eq!(next_of(&mut heard).await, (6, json!(6)));
}

#[tokio::test]
async fn a_slow_subscriber_gets_every_message_that_the_hub_keeps() {
    let place = served().await;
    let mut settings = Settings::default();
    settings.topic_buffer = 4;
    let client = soon(async { Client::connect(hub(&place)).settings(settings).await.unwrap() }).await;
    let publisher = self::client(&place).await;
    let mut heard = soon(async { client.subscribe("orders").await.unwrap() }).await;
    for number in 1..=50 {
        publisher.publish("orders", "order:new", &number).await.unwrap();
    }
    // All messages have arrived by now, and most were dropped because the inbox was full.
    client.metrics().await.unwrap();
    for number in 1..=50 {
        assert_eq!(next_of(&mut heard).await, (number, json!(number)));
    }
}

#[tokio::test]
async fn a_client_whose_address_is_taken_over_gets_an_error_and_does_not_reconnect() {
    let place = served().await;
    let first =
        soon(async { Client::connect(hub(&place)).settings(quick()).register("@(worker/a)", ["x"]).await.unwrap() })
            .await;
    let mut inbox = first.messages();
    let second = actor(&place, "@(worker/a)").await;
    let error = soon(first.closed()).await;
    assert_eq!(error.kind(), ErrorKind::TakenOver);
    assert!(error.to_string().contains("@(worker/a)") && error.advice().is_some(), "{error}");
    assert!(soon(inbox.next()).await.is_none());
    assert_eq!(first.ask("@(worker/a)", "job", &1).await.unwrap_err().kind(), ErrorKind::TakenOver);
    let client = client(&place).await;
    client.ask("@(worker/a)", "job", &1).await.unwrap();
    assert_eq!(next(&mut second.messages()).await.kind(), "job", "the second has it and keeps it");
}

#[tokio::test]
async fn a_pause_lasts_until_hub_resume_and_nothing_is_lost() {
    let place = served_with(|hub| (hub.pause_above, hub.resume_below, hub.drop_above) = (20, 10, 2_000)).await;
    let mut slow = Settings::default();
    slow.inbox = 10;
    let slow =
        soon(async { Client::connect(hub(&place)).settings(slow).register("@(slow)", ["x"]).await.unwrap() }).await;
    // It is subscribed to messages but stops reading once the inbox is full.
    let mut inbox = slow.messages();
    let mut settings = Settings::default();
    settings.buffer = 50;
    let feeder = soon(async { Client::connect(hub(&place)).settings(settings).await.unwrap() }).await;
    let mut events = feeder.events();
    let large = "x".repeat(100_000);
    let mut sent = 0;
    while !feeder_is_paused(&mut events) {
        match feeder.tell("@(slow)", "job", &(sent, &large)).try_send() {
            Ok(()) => sent += 1,
            // The buffer is full of frames being written, which is no pause yet.
            Err(_) => tokio::task::yield_now().await,
        }
    }
    // The hub is reachable and its loop runs, but the outgoing frames fill the buffer.
    let other = client(&place).await;
    let mut reached = feeder.messages();
    let before = sent;
    for _ in 0..5 {
        let refused = loop {
            match feeder.tell("@(slow)", "job", &(sent, "")).try_send() {
                Ok(()) => sent += 1,
                Err(error) => break error,
            }
        };
        assert_eq!((refused.kind(), refused.is_retryable()), (ErrorKind::BufferFull, true));
        other.ask(&feeder.address(), "turn", &()).await.unwrap();
        next(&mut reached).await;
    }
    assert!(sent - before <= 50, "it sent {} although it was paused", sent - before);
    let waits = tokio::spawn({
        let feeder = feeder.clone();
        async move { feeder.ask("@(slow)", "last", &()).await }
    });
    for number in 0..sent {
        let (came, _): (i32, String) = next(&mut inbox).await.data().unwrap();
        assert_eq!(came, number, "in order, none lost");
    }
    event(&mut events, |event| matches!(event, Event::Resumed)).await;
    assert_eq!(next(&mut inbox).await.kind(), "last");
    assert_eq!(soon(waits).await.unwrap().unwrap().status, Status::Delivered);
}

fn feeder_is_paused(events: &mut Events) -> bool {
    std::iter::from_fn(|| events.try_next()).any(|event| matches!(event, Event::Paused { .. }))
}

#[tokio::test]
async fn a_rate_limited_client_waits_and_retries() {
    let rate = HubSettings::default().rate.map(|mut rate| {
        (rate.per_second, rate.burst) = (200, 20);
        rate
    });
    let place = served_with(|hub| hub.rate = rate).await;
    let worker = actor(&place, "@(worker/a)").await;
    let client = client(&place).await;
    let asks = (0..100).map(|number| {
        let client = client.clone();
        tokio::spawn(async move { client.ask("@(worker/a)", "job", &number).await.unwrap().status })
    });
    for ask in asks.collect::<Vec<_>>() {
        assert_eq!(soon(ask).await.unwrap(), Status::Delivered);
    }
    let mut inbox = worker.messages();
    let mut came = Vec::new();
    for _ in 0..100 {
        came.push(next(&mut inbox).await.data::<i32>().unwrap());
    }
    came.sort_unstable();
    assert_eq!(came, (0..100).collect::<Vec<_>>(), "each once");
}

#[tokio::test]
async fn the_buffer_holds_its_limit_and_is_sent_after_a_reconnect() {
    let place = served().await;
    let relay = Relay::to(&place.url()).await;
    let mut settings = quick();
    settings.buffer = 10;
    let client = soon(async { Client::connect(relay.hub()).settings(settings).await.unwrap() }).await;
    let worker = actor(&place, "@(worker/a)").await;
    let mut events = client.events();
    relay.refuse(true);
    relay.cut();
    event(&mut events, |event| matches!(event, Event::Disconnected { .. })).await;
    for number in 0..10 {
        client.tell("@(worker/a)", "job", &number).try_send().unwrap();
    }
    let full = client.tell("@(worker/a)", "job", &10).try_send().unwrap_err();
    assert_eq!(full.kind(), ErrorKind::BufferFull);
    let waits = tokio::spawn({
        let client = client.clone();
        async move { client.tell("@(worker/a)", "job", &10).await }
    });
    tokio::task::yield_now().await;
    assert!(!waits.is_finished(), "it waits for room");
    relay.refuse(false);
    soon(waits).await.unwrap().unwrap();
    let mut inbox = worker.messages();
    for number in 0..=10 {
        assert_eq!(next(&mut inbox).await.data::<i32>().unwrap(), number);
    }
}

#[tokio::test]
async fn a_token_gives_access_according_to_its_scopes() {
    let scopes = ["hub:own:@(worker/*)", "hub:send:@(worker/*)"].map(|scope| scope.parse::<Scope>().unwrap());
    let auth = Auth::new().token("ci", "a-good-token-0123456789", scopes).unwrap();
    let place = Place::served_with(|server| server.auth(auth)).await;
    for connect in [Client::connect(hub(&place)), Client::connect(hub(&place)).token("a-bad-token-0123456789")] {
        let refused = soon(async { connect.await.unwrap_err() }).await;
        assert_eq!(refused.kind(), ErrorKind::Unauthorized, "{refused}");
        assert!(refused.advice().is_some_and(|hint| hint.contains("token")), "{refused:?}");
    }
    let client = soon(async {
        Client::connect(hub(&place)).token("a-good-token-0123456789").register("@(worker/a)", ["x"]).await.unwrap()
    })
    .await;
    assert_eq!(client.register("@(page/1)", ["x"]).await.unwrap_err().kind(), ErrorKind::Unauthorized);
    assert_eq!(client.publish("orders", "order:new", &1).await.unwrap_err().kind(), ErrorKind::Unauthorized);
    client.ask("@(worker/a)", "job", &1).await.unwrap();
}

#[tokio::test]
async fn a_connection_to_a_server_without_a_hub_fails_immediately() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let refused = soon(async { Client::connect(format!("ws://{address}/hub")).await.unwrap_err() }).await;
    assert_eq!(refused.kind(), ErrorKind::Unreachable);
    assert!(refused.to_string().contains(&address.to_string()), "{refused}");
    let place = served().await;
    let elsewhere = hub(&place).replace("/hub", "/v1/health");
    let refused = soon(async { Client::connect(elsewhere).await.unwrap_err() }).await;
    assert!(refused.to_string().contains("is not a hub"), "{refused}");
    assert_eq!(Client::connect("http://127.0.0.1").await.unwrap_err().kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn an_idle_client_sends_heartbeats() {
    let place = served_with(|hub| hub.heartbeat = 200).await;
    let relay = Relay::to(&place.url()).await;
    let client = soon(async { Client::connect(relay.hub()).register("@(idle)", ["x"]).await.unwrap() }).await;
    let mut events = client.events();
    // More than twice the hub's heartbeat timeout.
    soon(relay.heard(8)).await;
    assert!(events.try_next().is_none(), "it was never cut off");
    client.ask("@(idle)", "self", &()).await.unwrap();
}

/// Waits for the event and returns which one it was.
async fn back(events: &mut Events) -> bool {
    let Event::Connected { resumed, .. } = event(events, is_connected).await else { unreachable!() };
    resumed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_reconnects_to_a_restarted_server_and_asks_continue() {
    let folder = tempfile::tempdir().unwrap();
    let mut serving = Serving::start(folder.path(), &["dev", "--bind", "127.0.0.1:0"]);
    let address = serving.address();
    let url = format!("ws://{address}/hub");
    let connect = |name: &str| Client::connect(&url).settings(quick()).register(name, ["test"]);
    let worker = soon(async { connect("@(worker/a)").await.unwrap() }).await;
    let client = soon(async { connect("@(page/1)").await.unwrap() }).await;
    let mut heard = soon(async { client.subscribe("orders").await.unwrap() }).await;
    let first = worker.publish("orders", "order:new", &1).await.unwrap();
    assert_eq!(next_of(&mut heard).await, (1, json!(1)));
    // Queued messages outlive the server.
    let away = soon(async { connect("@(worker/b)").await.unwrap() }).await;
    away.close().await;
    assert_eq!(client.ask("@(worker/b)", "kept", &1).await.unwrap().status, Status::Queued);

    let (mut events, mut of_worker) = (client.events(), worker.events());
    serving.stop("-KILL");
    event(&mut events, |event| matches!(event, Event::Disconnected { .. })).await;
    let ask = tokio::spawn({
        let client = client.clone();
        async move { client.ask("@(worker/a)", "job", &7).await }
    });
    let mut serving = Serving::start(folder.path(), &["dev", "--bind", &address]);
    serving.address();
    assert!(back(&mut events).await && back(&mut of_worker).await, "both are who they were");
    assert!([Status::Delivered, Status::Queued].contains(&soon(ask).await.unwrap().unwrap().status));
    assert_eq!(next(&mut worker.messages()).await.data::<i32>().unwrap(), 7);
    let Some(Delivery::Gap(gap)) = soon(heard.next()).await else { panic!("no gap") };
    assert!(gap.from.is_none() && gap.epoch != first.position.epoch, "the topic started a new epoch: {gap:?}");
    worker.publish("orders", "order:new", &2).await.unwrap();
    assert_eq!(next_of(&mut heard).await, (1, json!(2)));
    let late = soon(async { connect("@(worker/b)").await.unwrap() }).await;
    assert_eq!(next(&mut late.messages()).await.kind(), "kept");
    // After a graceful shutdown, the client reconnects immediately and reports no error.
    drop(late);
    serving.stop("-INT");
    let mut serving = Serving::start(folder.path(), &["dev", "--bind", &address]);
    serving.address();
    back(&mut events).await;
    client.ask("@(page/1)", "self", &()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_acknowledged_messages_outlive_the_kill_of_the_server_and_come_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let mut serving = Serving::start(folder.path(), &["dev", "--bind", "127.0.0.1:0"]);
    let address = serving.address();
    let url = format!("ws://{address}/hub");
    let away = soon(async { Client::connect(&url).register("@(worker/a)", ["test"]).await.unwrap() }).await;
    away.close().await;
    let client = soon(async { Client::connect(&url).await.unwrap() }).await;
    for number in 0..100 {
        let receipt = soon(async { client.ask("@(worker/a)", "number", &number).require_ack().await.unwrap() }).await;
        assert_eq!(receipt.status, Status::Queued);
    }
    serving.stop("-KILL");
    let mut serving = Serving::start(folder.path(), &["dev", "--bind", &address]);
    serving.address();
    let back = soon(async { Client::connect(&url).register("@(worker/a)", ["test"]).await.unwrap() }).await;
    let mut messages = back.messages();
    for number in 0..100 {
        let message = next(&mut messages).await;
        assert_eq!(message.data::<i32>().unwrap(), number);
        message.ack();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_is_followed_from_its_beginning_and_receives_signals() {
    let folder = tempfile::tempdir().unwrap();
    let mut serving = Serving::start(folder.path(), &["dev", "--demo", "--bind", "127.0.0.1:0"]);
    let address = serving.address();
    serving.until(" status order-1");
    let client = soon(async { Client::connect(format!("ws://{address}/hub")).await.unwrap() }).await;
    let mut heard = soon(async { client.subscribe("run/order-1").await.unwrap() }).await;
    let (seq, entry) = next_of(&mut heard).await;
    assert_eq!((seq, &entry["seq"]), (1, &json!(1)), "from the beginning");
    let receipt = client.ask("@(workflow/order-1)", "approval", &json!({"approved": true, "by": "ada"})).await.unwrap();
    assert_eq!(receipt.status, Status::Delivered);
    let mut said = String::new();
    let why = loop {
        match soon(heard.next()).await.unwrap() {
            Delivery::Message(entry) => said += entry.json(),
            Delivery::Ended(why) => break why,
            other => panic!("{other:?}"),
        }
    };
    assert!(said.contains("ada") && said.contains("completed"), "{said}");
    assert_eq!(why, "ended");
    assert!(soon(heard.next()).await.is_none());
    let unknown = client.ask("@(workflow/nothing)", "approval", &1).await.unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::UnknownActor);
    assert_eq!(client.subscribe("run/nothing").await.unwrap_err().kind(), ErrorKind::UnknownActor);
}

#[tokio::test]
async fn a_client_moves_to_the_server_that_its_target_is_at() {
    let mut settings = wigwag_server::Settings::default();
    settings.hub.peer_interval = 100;
    let one = served_with(|hub| hub.peer_interval = 100).await;
    let there = one.builder().client().await.unwrap();
    let server = wigwag_server::Server::builder(there).bind(([127, 0, 0, 1], 0).into()).settings(settings);
    let two = soon(server.start()).await.unwrap();
    let two_url = format!("ws://{}/hub", two.addr());
    let asker = actor(&one, "@(a)").await;
    let mut events = asker.events();
    let worker = soon(async { Client::connect(&two_url).register("@(b)", ["test"]).await.unwrap() }).await;
    let mut inbox = worker.messages();
    let receipt = soon(async { asker.ask("@(b)", "note", &1).await.unwrap() }).await;
    assert_eq!(receipt.status, Status::Delivered);
    assert_eq!(next(&mut inbox).await.from(), "@(a)");
    let moved = event(&mut events, |event| matches!(event, Event::Moved { .. })).await;
    assert!(matches!(moved, Event::Moved { url } if url == two_url));
    // The registration of its own address moved with it.
    let mut answers = asker.messages();
    soon(async { worker.ask("@(a)", "note", &2).await.unwrap() }).await;
    assert_eq!(next(&mut answers).await.data::<i64>().unwrap(), 2);
    soon(two.stop()).await;
}
