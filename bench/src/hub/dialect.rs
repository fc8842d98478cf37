//! The protocol of each server, as far as needed to send, count and verify messages.

use memchr::memmem::{self, Finder};

use super::relay;
use super::wire::{NUMBER, Opcode, Template, number_of};
use crate::http::Result;

/// Length of the JSON payload; the envelope of each protocol is added.
const PAYLOAD_BYTES: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Side {
    Wigwag,
    /// The same, for a client without combined acknowledgements.
    Each,
    /// The bare relay.
    Relay,
    /// The same, with frames and acknowledgements as long as ours.
    Enveloped,
    Nats,
}

/// One end of a connection: its name, its target, and its options.
#[derive(Clone, Debug, Default)]
pub(crate) struct Who {
    pub(crate) name: Option<String>,
    pub(crate) to: String,
    /// Whether each of its messages is acknowledged.
    pub(crate) acks: bool,
    /// Whether `to` is a topic.
    pub(crate) publishes: bool,
    /// Topic that it subscribes to.
    pub(crate) topic: Option<String>,
    /// Whether its messages are stored for absent actors.
    pub(crate) stores: bool,
    /// Whether it registers and leaves immediately, so that others may send to it while it is absent.
    pub(crate) leaves: bool,
    /// Whether it returns to fetch its stored messages.
    pub(crate) returns: bool,
}

impl Who {
    pub(crate) fn named(name: String) -> Self {
        Self { name: Some(name), ..Self::default() }
    }
}

/// A message of a server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Got<'a> {
    /// A message, by its number.
    Message(u64),
    /// A message was delivered, with its number if the server sends it.
    Ack(Option<u64>),
    /// Several messages were delivered, with the text of their numbers.
    Acks(&'a [u8]),
    /// A message is stored until its target reconnects.
    Queued,
    Word(&'a [u8]),
}

impl Side {
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Wigwag => "wigwag",
            Self::Each => "wigwag, one by one",
            Self::Relay => "bare relay",
            Self::Enveloped => "bare relay, our lengths",
            Self::Nats => "NATS",
        }
    }

    /// Whether it is a variant, which is measured only where it is meaningful.
    pub(crate) const fn is_variant(self) -> bool {
        matches!(self, Self::Each | Self::Enveloped)
    }

    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Wigwag | Self::Each => "/hub",
            Self::Relay | Self::Enveloped | Self::Nats => "/",
        }
    }

    pub(crate) const fn opcode(self) -> Opcode {
        match self {
            Self::Nats => Opcode::Binary,
            Self::Wigwag | Self::Each | Self::Relay | Self::Enveloped => Opcode::Text,
        }
    }

    /// Returns the first messages, each with a text that its answer contains.
    pub(crate) fn greeting(self, who: &Who) -> Vec<(String, &'static str)> {
        match self {
            Self::Wigwag => wigwag_greeting(who, "together"),
            Self::Each => wigwag_greeting(who, "single"),
            Self::Relay | Self::Enveloped => {
                let name = who.topic.as_ref().or(who.name.as_ref()).map_or("nobody", |name| name);
                let to = if who.to.is_empty() { "nobody" } else { &who.to };
                let ack = match (who.acks, self) {
                    (false, _) => "",
                    (true, Self::Enveloped) => " long-ack",
                    (true, _) => " ack",
                };
                vec![(format!("{name} {to}{ack}"), relay::JOINED)]
            }
            Self::Nats => nats_greeting(who),
        }
    }

    /// Returns the template of a message; each message sent has a different number.
    pub(crate) fn message(self, who: &Who) -> Template {
        Template::new(self.opcode(), &self.message_text(who))
    }

    fn message_text(self, who: &Who) -> String {
        let payload = payload();
        match self {
            Self::Wigwag | Self::Each | Self::Enveloped => wigwag_message(who, &payload),
            Self::Relay => payload,
            // A stored message is acknowledged by an answer.
            Self::Nats if who.stores => nats_request(&format!("{STORED}.{}", who.to), who, &payload),
            Self::Nats => format!("PUB {} {}\r\n{payload}\r\n", who.to, payload.len()),
        }
    }
}

/// The stream of NATS that stores messages to `stored.…`.
const STREAM: &str = "STORED";
const STORED: &str = "stored";

fn nats_greeting(who: &Who) -> Vec<(String, &'static str)> {
    let options = r#""pedantic":false,"tls_required":false,"lang":"bench","version":"1","protocol":1"#;
    let subject = who.topic.as_ref().or(who.name.as_ref());
    let listen = subject.map(|name| format!("SUB {name} 1\r\n")).unwrap_or_default();
    let acks = who.acks;
    let mut greeting = vec![(format!("CONNECT {{\"verbose\":{acks},{options}}}\r\n{listen}PING\r\n"), "PONG")];
    if who.stores {
        let stream = format!(r#"{{"name":"{STREAM}","subjects":["{STORED}.>"],"storage":"file"}}"#);
        let create = nats_request(&format!("$JS.API.STREAM.CREATE.{STREAM}"), who, &stream);
        greeting.push((create, "stream_create_response"));
    }
    if let (true, Some(name)) = (who.returns, &who.name) {
        let to = format!(r#""deliver_subject":"{name}","filter_subject":"{STORED}.{name}""#);
        let config = format!(r#"{{{to},"deliver_policy":"all","ack_policy":"none"}}"#);
        let consumer = format!(r#"{{"stream_name":"{STREAM}","config":{config}}}"#);
        let create = nats_request(&format!("$JS.API.CONSUMER.CREATE.{STREAM}"), who, &consumer);
        greeting.push((create, "consumer_create_response"));
    }
    greeting
}

/// Builds a NATS request that is answered to its sender.
fn nats_request(subject: &str, who: &Who, payload: &str) -> String {
    let answer_to = who.name.as_deref().unwrap_or_default();
    format!("PUB {subject} {answer_to} {}\r\n{payload}\r\n", payload.len())
}

/// Returns the address of an actor on our hub.
pub(crate) fn address(name: &str) -> String {
    format!("@(bench/{name})")
}

/// Returns a realistic JSON payload that begins with its number.
pub(crate) fn payload() -> String {
    let some = r#""customer":"c-20417","items":[{"sku":"A-1001","count":2,"price":19.95},{"sku":"B-7","count":1,"price":4.5}]"#;
    let short = format!(r#"{{"n":"{NUMBER}",{some},"note":""}}"#);
    let note = "as wanted ".chars().cycle().take(PAYLOAD_BYTES - short.len()).collect::<String>();
    short.replace(r#""note":"""#, &format!(r#""note":"{note}""#))
}

/// Builds a request to the hub; `from` is ignored in requests that identify the sender.
pub(crate) fn wigwag_request(kind: &str, from: &str, payload: &str) -> String {
    let timestamp = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_millis();
    format!(
        r#"{{"id":"{kind}","from":"{from}","to":"@(hub)","type":"{kind}","pattern":"ask","timestamp":{timestamp},"payload":{payload}}}"#
    )
}

fn wigwag_greeting(who: &Who, acks: &str) -> Vec<(String, &'static str)> {
    let from = who.name.as_deref().map_or_else(|| "@(bench)".to_owned(), address);
    let wanted = format!(r#"{{"protocolVersion":"0.1.0","acks":"{acks}"}}"#);
    let connect = wigwag_request("hub:connect", &from, &wanted);
    let mut greeting = vec![(connect, r#""type":"hub:connected""#)];
    if who.name.is_some() {
        let lease = format!(r#"{{"actorAddress":"{from}","ttlSeconds":3600}}"#);
        let register = wigwag_request("hub:register", &from, &lease);
        greeting.push((register, r#""type":"hub:registered""#));
    }
    if let Some(topic) = &who.topic {
        let subscribe = wigwag_request("hub:subscribe", &from, &format!(r#"{{"topic":"{topic}"}}"#));
        greeting.push((subscribe, r#""type":"hub:subscribed""#));
    }
    if who.leaves {
        let unregister = wigwag_request("hub:unregister", &from, &format!(r#"{{"actorAddress":"{from}"}}"#));
        greeting.push((unregister, r#""type":"hub:unregistered""#));
    }
    greeting
}

fn wigwag_message(who: &Who, payload: &str) -> String {
    let from = address(who.name.as_deref().unwrap_or_default());
    let pattern = if who.acks || who.stores { "ask" } else { "tell" };
    let (kind, target) = match who.publishes {
        true => ("hub:publish", format!(r#""topic":"{}""#, who.to)),
        false => ("hub:send", format!(r#""to":"{}""#, address(&who.to))),
    };
    let timestamp = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_millis();
    format!(
        r#"{{"id":"m-{NUMBER}","from":"{from}","to":"@(hub)","type":"{kind}","pattern":"{pattern}","timestamp":{timestamp},"payload":{{{target},"type":"bench:order","data":{payload}}}}}"#
    )
}

/// Parses the numbers of a combined acknowledgement.
pub(crate) fn numbers(list: &[u8]) -> impl Iterator<Item = Option<u64>> {
    list.split(|byte| *byte == b',').map(|id| number_of(id.strip_prefix(b"\"m-")?))
}

/// Parses the messages of one kind of server.
#[derive(Debug)]
pub(crate) struct Ear {
    side: Side,
    number: Finder<'static>,
    correlation: Finder<'static>,
    delivered: Finder<'static>,
    several: Finder<'static>,
    published: Finder<'static>,
    queued: Finder<'static>,
}

impl Ear {
    pub(crate) fn new(side: Side) -> Self {
        Self {
            side,
            number: Finder::new(r#""n":""#),
            correlation: Finder::new(r#""correlationId":"m-"#),
            delivered: Finder::new(r#""status":"delivered""#),
            several: Finder::new(r#""messageIds":["#),
            published: Finder::new(r#""type":"hub:published""#),
            queued: Finder::new(match side {
                Side::Nats => r#"{"stream":"STORED","seq":"#,
                Side::Wigwag | Side::Each | Side::Relay | Side::Enveloped => r#""status":"queued""#,
            }),
        }
    }

    /// Parses a frame of a server that sends one message per frame.
    pub(crate) fn hear<'a>(&self, text: &'a [u8]) -> Got<'a> {
        if let Some(number) = self.message_number(text) {
            return Got::Message(number);
        }
        match self.side {
            Side::Relay if text == relay::ACK.as_bytes() => Got::Ack(None),
            Side::Enveloped if text == relay::LONG_ACK.as_bytes() => Got::Ack(None),
            Side::Wigwag | Side::Each => self.wigwag_answer(text).unwrap_or(Got::Word(text)),
            Side::Nats if self.queued.find(text).is_some() => Got::Queued,
            Side::Relay | Side::Enveloped | Side::Nats => Got::Word(text),
        }
    }

    fn message_number(&self, text: &[u8]) -> Option<u64> {
        number_of(&text[self.number.find(text)? + self.number.needle().len()..])
    }

    fn wigwag_answer<'a>(&self, text: &'a [u8]) -> Option<Got<'a>> {
        if let Some(at) = self.several.find(text) {
            let list = &text[at + self.several.needle().len()..];
            return Some(Got::Acks(&list[..list.iter().position(|byte| *byte == b']')?]));
        }
        let id = self.correlation.find(text)? + self.correlation.needle().len();
        let number = number_of(&text[id..])?;
        if self.delivered.find(text).is_some() || self.published.find(text).is_some() {
            return Some(Got::Ack(Some(number)));
        }
        self.queued.find(text).map(|_| Got::Queued)
    }

    /// Whether the protocol is a byte stream that ignores frames.
    pub(crate) const fn is_stream(&self) -> bool {
        matches!(self.side, Side::Nats)
    }

    /// Parses the first message of NATS's byte stream. Returns it with its length.
    pub(crate) fn hear_first<'a>(&self, text: &'a [u8]) -> Result<Option<(Got<'a>, usize)>> {
        let Some(end) = memmem::find(text, b"\r\n") else { return Ok(None) };
        let (line, body) = (&text[..end], end + 2);
        if line == b"+OK" {
            return Ok(Some((Got::Ack(None), body)));
        }
        if !line.starts_with(b"MSG ") {
            return Ok(Some((Got::Word(line), body)));
        }
        let size = line.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
        let size: usize = std::str::from_utf8(size)?.parse()?;
        let Some(message) = text.get(body..body + size + 2) else { return Ok(None) };
        Ok(Some((self.hear(&message[..size]), body + size + 2)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_payload_is_json_of_the_promised_length() {
        let payload = payload();
        assert_eq!(payload.len(), PAYLOAD_BYTES);
        assert!(serde_json::from_str::<serde_json::Value>(&payload).unwrap()["items"].is_array());
    }

    #[test]
    fn what_is_sent_to_a_hub_is_an_envelope() {
        let who = Who { to: "b".into(), acks: true, ..Who::named("a".into()) };
        let text = Side::Wigwag.message_text(&who);
        let envelope: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(envelope["from"], "@(bench/a)");
        assert_eq!(envelope["payload"]["to"], "@(bench/b)");
        assert_eq!(envelope["pattern"], "ask");
    }

    #[test]
    fn each_server_is_understood() {
        let message = payload().replace(NUMBER, "0000000000000042");
        let (relay, nats, hub) = (Ear::new(Side::Relay), Ear::new(Side::Nats), Ear::new(Side::Wigwag));
        assert_eq!(relay.hear(message.as_bytes()), Got::Message(42));
        assert_eq!(relay.hear(relay::ACK.as_bytes()), Got::Ack(None));
        assert_eq!(relay.hear(b"other"), Got::Word(b"other"));
        let said = format!("+OK\r\nMSG b 1 256\r\n{message}\r\nPING\r\nMSG b");
        let (mut at, mut got) = (0, Vec::new());
        while let Some((one, length)) = nats.hear_first(&said.as_bytes()[at..]).unwrap() {
            got.push(one);
            at += length;
        }
        assert_eq!(got, [Got::Ack(None), Got::Message(42), Got::Word(b"PING")]);
        let answer = |status| format!(r#"{{"correlationId":"m-0000000000000042","payload":{{"status":"{status}"}}}}"#);
        assert_eq!(hub.hear(answer("delivered").as_bytes()), Got::Ack(Some(42)));
        let several = br#"{"payload":{"messageIds":["m-0000000000000042","m-0000000000000043"]}}"#;
        let Got::Acks(list) = hub.hear(several) else { panic!("not understood") };
        assert_eq!(numbers(list).collect::<Vec<_>>(), [Some(42), Some(43)]);
        assert_eq!(hub.hear(answer("queued").as_bytes()), Got::Queued);
        assert!(matches!(hub.hear(answer("lost").as_bytes()), Got::Word(_)));
    }
}
