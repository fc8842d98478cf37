//! Senders: sequential and concurrent, early and late, from one process or from a new one for each signal.

use std::future::IntoFuture as _;
use std::time::Duration;

use serde_json::{Value, json};
use wigwag::{Client, ErrorKind, Receipt, SignalCall};
use wigwag_core::RunRef;
use wigwag_core::Time;
use wigwag_core::audit::Promise;
use wigwag_store::{Clock as _, Store as _};

use super::{Plan, Sent, Worker, World};
use crate::code::{Code, FORM};
use crate::program::NAMES;

/// Number of signals in one burst.
const BURST: usize = 40;

/// First number of a burst's senders.
const BURST_SENDERS: usize = 1_000;

/// A signal to send.
struct Message {
    name: &'static str,
    payload: Value,
    by: String,
    key: Option<String>,
    strict: bool,
    step: Option<String>,
    starts: Option<Plan>,
}

impl Message {
    fn call(&self, client: &Client, run: &str) -> SignalCall {
        let mut call = client.signal(run, self.name, &self.payload).by(&self.by);
        if let Some(key) = &self.key {
            call = call.key(key);
        }
        if let Some(step) = &self.step {
            call = call.point(step);
        }
        if let Some(Plan { of, input, .. }) = &self.starts {
            call = call.start_if_absent(of, input);
        }
        if self.strict { call.only_if_waiting() } else { call }
    }
}

impl World {
    fn message(&self, chance: &mut fastrand::Rng, run: &str, sender: usize, number: usize) -> Message {
        // Most signals have the same name, so that they interact.
        let name = if self.style.busy || chance.u32(..3) > 0 { NAMES[0] } else { NAMES[chance.usize(..NAMES.len())] };
        let mut payload = json!({"sender": sender, "number": number});
        if chance.u32(..4) > 0 {
            payload["fit"] = json!(true);
        }
        if run.starts_with('f') {
            let code = if chance.bool() { Code::Old } else { Code::New };
            payload[code.field()] = json!(1);
        }
        if chance.u32(..16) == 0 {
            payload["pad"] = json!("x".repeat(chance.usize(..300)));
        }
        let key = chance.bool().then(|| format!("k{sender}-{number}"));
        let strict = chance.u32(..8) == 0;
        let step = (chance.u32(..10) == 0).then(|| match run.starts_with('g') {
            true => format!("n{}", chance.u32(..6)),
            false => [name.to_owned(), format!("{name}#2"), format!("{name}#3")][chance.usize(..3)].clone(),
        });
        let by = format!("sender-{sender}");
        Message { name, payload, by, key, strict, step, starts: None }
    }

    /// Fills a payload up to the maximum size, if that is small.
    fn pad(&self, payload: &mut Value) {
        let wanted = self.bounds.limits.payload_bytes_max;
        if wanted < 100_000 {
            payload["pad"] = json!("");
            let size = payload.to_string().len();
            payload["pad"] = json!("x".repeat(wanted.saturating_sub(size)));
        }
    }

    fn sent(&self, run: &str, sender: usize, number: usize, message: &Message) -> Sent {
        Sent {
            run: run.to_owned(),
            name: message.name.to_owned(),
            sender,
            number,
            strict: message.strict,
            addressed: message.step.is_some(),
            fits: message.payload.get("fit").is_some(),
            key: message.key.clone(),
            suffix: None,
            at: None,
            began: self.clock.elapsed(),
            acknowledged: None,
        }
    }

    /// One sender: each signal is sent after the previous one was acknowledged or given up.
    pub(super) async fn send(self, run: String, of_run: usize, sender: usize, starts: Option<Plan>) {
        let salt = of_run as u64;
        let mut chance = self.chance(400 + salt * 10 + sender as u64);
        let mut by_worker = self.chance(500_000 + salt * 10 + sender as u64);
        let client = self.client(&format!("c{of_run}s{sender}"), 3_000 + salt * 10 + sender as u64).await;
        let mut through = None;
        let (most, pause) = if self.style.busy { (12, 7_000) } else { (8, 5_000) };
        let hurried = self.style.fresh_senders && chance.bool();
        for number in 0..chance.usize(1..most) {
            self.pass(chance.u64(..if hurried { 300 } else { pause })).await;
            // The order of one sender is that of one client, so it keeps the worker that it starts with.
            // On a bucket a worker's client has no inline delivery.
            if number == 0 && self.memory.traits().atomic && by_worker.bool() {
                through = self.worker(&mut by_worker);
            }
            // Sends an old message again, long after the run has ended.
            if self.style.retention && chance.u32(..4) == 0 {
                self.pass(chance.u64(..60_000)).await;
            }
            let fresh = match self.style.fresh_senders && through.is_none() {
                true => {
                    let salt = 1_000_000 + (salt * 100 + sender as u64) * 100 + number as u64;
                    Some(self.client(&format!("c{of_run}s{sender}m{number}"), salt).await)
                }
                false => None,
            };
            let mut message = self.message(&mut chance, &run, sender, number);
            message.starts.clone_from(&starts);
            let mut sent = self.sent(&run, sender, number, &message);
            let client = fresh.as_ref().unwrap_or(&client);
            let lives = self.send_one(client, through.as_ref(), &message, &mut sent, &mut chance).await;
            self.known().sent.push(sent);
            if !lives {
                // The last message of a dead process may be stored at any time, so no later message may be sent.
                return;
            }
        }
    }

    /// Sends one signal, with retries if it has a key. Returns whether the sender is alive.
    async fn send_one(
        &self,
        client: &Client,
        through: Option<&Worker>,
        message: &Message,
        sent: &mut Sent,
        chance: &mut fastrand::Rng,
    ) -> bool {
        let run = sent.run.clone();
        let mut repeats = if message.key.is_some() { chance.u32(..3) } else { 0 };
        let by_link = message.key.is_none() && !message.strict && message.step.is_none() && chance.u32(..16) == 0;
        loop {
            let answer = match through {
                _ if by_link => self.send_by_link(client, &run, message).await,
                Some((process, client)) => {
                    match self.unless_dead(process, message.call(client, &run).into_future()).await {
                        Some(answer) => answer,
                        None => return false,
                    }
                }
                None => message.call(client, &run).await,
            };
            let refused = answer.as_ref().is_err_and(|error| {
                use ErrorKind::{
                    Conflict, Gone, Invalid, InvalidPayload, NotFound, NotRunning, NotWaiting, UnknownPoint,
                };
                matches!(
                    error.kind(),
                    NotRunning | Gone | NotFound | NotWaiting | UnknownPoint | InvalidPayload | Conflict | Invalid
                )
            });
            if let Ok(receipt) = answer {
                self.note_receipt(sent, &receipt.suffix).await;
            }
            // Without a key it is unknown whether the signal arrived; with one, it is retried until it has.
            let again = message.key.is_some() && (sent.suffix.is_none() || repeats > 0) && !refused;
            if !again {
                return true;
            }
            repeats = repeats.saturating_sub(1);
            self.pass(chance.u64(..7_000)).await;
        }
    }

    /// Uses a single-use link twice: the second use must be rejected.
    async fn send_by_link(&self, client: &Client, run: &str, message: &Message) -> wigwag::Result<Receipt> {
        let token = client.link(run, message.name, Duration::from_secs(60)).once().token().await?;
        let first = client.use_link(&token, &message.payload).await?;
        // If the first answer was lost, the second use may count as a retry of the first; it must be one signal.
        if let Ok(second) = client.use_link(&token, &message.payload).await
            && (second.suffix != first.suffix || self.style.peaceful)
        {
            let what = format!("a link for one use gave `{}` and `{}`", first.suffix, second.suffix);
            self.wrong(Promise::SameKeySameOutcome, what);
        }
        Ok(first)
    }

    pub(super) async fn note_receipt(&self, sent: &mut Sent, suffix: &str) {
        let place = format!("workflow/{}/signals/{}/{suffix}.json", sent.run, sent.name);
        let run = RunRef::workflow(sent.run.parse().expect("ids of the simulator are legal"));
        let removed = self.network.watch.is_removed(&run);
        if !removed && !matches!(self.memory.get(&place).await, Ok(Some(_))) {
            self.wrong(Promise::DurableFirst, format!("`{place}` was acknowledged before it was durable"));
        }
        match &sent.suffix {
            Some(first) if first != suffix => {
                let what = format!("one key gave two signals: `{first}` and `{suffix}`");
                self.wrong(Promise::SameKeySameOutcome, what);
            }
            Some(_) => {}
            None => {
                sent.suffix = Some(suffix.to_owned());
                sent.acknowledged = Some(self.clock.elapsed());
                sent.at = self.memory.now().await.ok().map(|now| Time::from_micros(now.at.micros()));
            }
        }
    }

    /// Waits for the time of a burst: while all workers are away, or at any time.
    pub(super) async fn until_burst(&self, chance: &mut fastrand::Rng) {
        let moment = match self.style.absence {
            Some((from, to)) => {
                let span = u64::try_from((to - from).as_millis()).unwrap_or(0);
                from + Duration::from_millis(chance.u64(span / 3..span))
            }
            None => Duration::from_millis(chance.u64(15_000..40_000)),
        };
        self.clock.sleep(moment.saturating_sub(self.clock.elapsed())).await;
    }

    /// Sends many signals concurrently.
    pub(super) async fn burst_of_signals(self, plan: Plan, of_run: usize) {
        let mut chance = self.chance(700_000 + of_run as u64);
        self.until_burst(&mut chance).await;
        let client = self.client(&format!("c{of_run}burst"), 800_000 + of_run as u64).await;
        let count = chance.usize(5..=BURST);
        let mut messages: Vec<Message> =
            (0..count).map(|place| self.message(&mut chance, &plan.id, BURST_SENDERS + place, 0)).collect();
        let (heavy, long_names) = (chance.u32(..3) == 0, chance.u32(..3) == 0);
        for message in &mut messages {
            if heavy {
                self.pad(&mut message.payload);
            }
            if long_names {
                message.by = format!("{}-{}", message.by, "y".repeat(230));
            }
            // A form accepts only matching payloads; its signals must not be rejected because of their step.
            (message.strict, message.step) = (false, None);
            if plan.of == FORM {
                message.name = NAMES[0];
            }
        }
        let places = messages.iter().enumerate();
        let mut sent: Vec<Sent> =
            places.map(|(place, message)| self.sent(&plan.id, BURST_SENDERS + place, 0, message)).collect();
        let answers = client.signal_many(messages.iter().map(|message| message.call(&client, &plan.id))).await;
        for (sent, answer) in sent.iter_mut().zip(answers) {
            if let Ok(receipt) = answer {
                self.note_receipt(sent, &receipt.suffix).await;
            }
        }
        self.known().sent.append(&mut sent);
    }
}
