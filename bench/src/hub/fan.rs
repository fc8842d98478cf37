//! H3: one publisher, many subscribers. Each subscriber must get every message once, in order.

use std::collections::VecDeque;
use std::time::Duration;

use super::crowd::{Crowd, unexpected};
use super::dialect::{Got, Who};
use super::pairs::{Done, Meter};
use super::start::Server;
use crate::http::Result;

/// Published messages that not all subscribers have received yet.
#[derive(Debug)]
struct Publishes {
    subscribers: usize,
    /// Number of received messages of each subscriber.
    received: Vec<u64>,
    /// Number of subscribers that have received each message in flight.
    under_way: VecDeque<usize>,
    /// Number of messages that all subscribers have received.
    whole: u64,
    sent: u64,
    acked: u64,
}

impl Publishes {
    fn receive(&mut self, subscriber: usize, number: u64) -> Result<()> {
        let want = self.received[subscriber];
        if number != want {
            return Err(format!("subscriber {subscriber} wants message {want}, got: {number}").into());
        }
        self.received[subscriber] += 1;
        self.under_way[usize::try_from(number - self.whole)?] += 1;
        while self.under_way.front() == Some(&self.subscribers) {
            self.under_way.pop_front();
            self.whole += 1;
        }
        Ok(())
    }

    /// Returns the number of messages that all subscribers have received and that are acknowledged.
    fn done(&self) -> u64 {
        self.whole.min(self.acked)
    }
}

/// Publishes with this number of messages in flight. Counts deliveries.
pub(crate) fn out(server: &Server, subscribers: usize, in_flight: u64, span: Duration) -> Result<Done> {
    let mut crowd = Crowd::new(server.side, server.addr)?;
    let topic = server.new_name();
    for _ in 0..subscribers {
        crowd.join(&Who { topic: Some(topic.clone()), ..Who::named(server.new_name()) })?;
    }
    let who = Who { to: topic, acks: true, publishes: true, ..Who::named(server.new_name()) };
    let publisher = crowd.join(&who)?;
    let template = server.side.message(&who);
    let received = vec![0; subscribers];
    let mut all = Publishes { subscribers, received, under_way: VecDeque::new(), whole: 0, sent: 0, acked: 0 };
    let mut meter = Meter::new(server, span);
    let mut done = None;
    while done.is_none() || all.done() < all.sent {
        while done.is_none() && all.sent - all.done() < in_flight {
            crowd.put(publisher, &template, all.sent);
            all.under_way.push_back(0);
            all.sent += 1;
        }
        crowd.flush(publisher)?;
        crowd.turn(&mut |at, got| match got {
            Got::Message(number) if at != publisher => all.receive(at, number),
            Got::Ack(_) if at == publisher => {
                all.acked += 1;
                Ok(())
            }
            Got::Word(word) => Err(unexpected(word)),
            got => Err(format!("not expected at {at}: {got:?}").into()),
        })?;
        if done.is_none() {
            done = meter.look(all.received.iter().sum())?;
        }
    }
    match all.acked == all.sent && all.received.iter().all(|count| *count == all.sent) {
        true => Ok(done.unwrap_or_default()),
        false => Err(format!("of {} messages {} are acknowledged", all.sent, all.acked).into()),
    }
}
