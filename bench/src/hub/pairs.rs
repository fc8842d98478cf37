//! H1 and H2: pairs of sender and receiver. Every message must arrive once, in order, and be acknowledged once.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use super::crowd::{Crowd, unexpected};
use super::dialect::{Got, Who, numbers};
use super::start::Server;
use super::wire::Template;
use crate::http::Result;

/// Warm-up before each measurement, so that caches, buffers and tables are filled.
const WARM: Duration = Duration::from_millis(500);

/// Results of a measurement: work, time and cost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done {
    pub(crate) count: u64,
    pub(crate) elapsed: Duration,
    pub(crate) server_cpu: Duration,
    pub(crate) load_cpu: Duration,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Rate {
    pub(crate) per_s: f64,
    pub(crate) server_us_each: f64,
    pub(crate) load_us_each: f64,
    /// Share of its core that the load generator used.
    pub(crate) load_share: f64,
}

impl Done {
    pub(crate) fn add(&mut self, other: Self) {
        self.count += other.count;
        self.elapsed += other.elapsed;
        self.server_cpu += other.server_cpu;
        self.load_cpu += other.load_cpu;
    }

    #[expect(clippy::cast_precision_loss, reason = "counts of a benchmark are far below 2^53")]
    pub(crate) fn rate(&self) -> Rate {
        let (count, elapsed) = (self.count as f64, self.elapsed.as_secs_f64());
        Rate {
            per_s: count / elapsed,
            server_us_each: self.server_cpu.as_secs_f64() * 1e6 / count,
            load_us_each: self.load_cpu.as_secs_f64() * 1e6 / count,
            load_share: self.load_cpu.as_secs_f64() / elapsed,
        }
    }
}

/// A meter with a warm-up that is not counted, followed by the measurement.
#[derive(Debug)]
pub(crate) struct Meter<'a> {
    server: &'a Server,
    span: Duration,
    from: Instant,
    at_begin: Option<(u64, Duration, Duration)>,
}

impl<'a> Meter<'a> {
    pub(crate) fn new(server: &'a Server, span: Duration) -> Self {
        Self { server, span, from: Instant::now(), at_begin: None }
    }

    /// Checks the clock. Returns the results once the time is over.
    pub(crate) fn look(&mut self, count: u64) -> Result<Option<Done>> {
        let elapsed = self.from.elapsed();
        match self.at_begin {
            None if elapsed >= WARM => {
                self.at_begin = Some((count, self.server.process.cpu()?, load_cpu()));
                self.from = Instant::now();
            }
            Some((before, server, load)) if elapsed >= self.span => {
                let server_cpu = self.server.process.cpu()? - server;
                return Ok(Some(Done { count: count - before, elapsed, server_cpu, load_cpu: load_cpu() - load }));
            }
            _ => {}
        }
        Ok(None)
    }
}

fn load_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// H1: repeated round trips. Returns the time of each.
pub(crate) fn trips(server: &Server, acks: bool, span: Duration) -> Result<Vec<Duration>> {
    let mut crowd = Crowd::new(server.side, server.addr)?;
    let (a, b) = (server.new_name(), server.new_name());
    let ends = [(&a, &b), (&b, &a)].map(|(from, to)| Who { to: to.clone(), acks, ..Who::named(from.clone()) });
    for who in &ends {
        crowd.join(who)?;
    }
    let templates = ends.map(|who| server.side.message(&who));
    let (mut took, begin) = (Vec::new(), Instant::now());
    let mut number = 0;
    while begin.elapsed() < WARM + span {
        let sent = Instant::now();
        for (from, template) in templates.iter().enumerate() {
            crowd.put(from, template, number);
            crowd.flush(from)?;
            until_message(&mut crowd, 1 - from, number)?;
        }
        if begin.elapsed() >= WARM {
            took.push(sent.elapsed());
        }
        number += 1;
    }
    Ok(took)
}

/// Waits until a client has received the message with this number.
fn until_message(crowd: &mut Crowd, to: usize, number: u64) -> Result<()> {
    let mut is_there = false;
    while !is_there {
        crowd.turn(&mut |at, got| match got {
            Got::Message(came) if (at, came) == (to, number) => {
                is_there = true;
                Ok(())
            }
            Got::Ack(_) | Got::Acks(_) => Ok(()),
            got => Err(format!("want message {number} at {to}, got at {at}: {got:?}").into()),
        })?;
    }
    Ok(())
}

#[derive(Debug)]
struct Pair {
    template: Template,
    sent: u64,
    received: u64,
    acked: u64,
    /// Sum of the numbers of all acknowledged messages, if the server sends them.
    sum: Option<u64>,
    is_waiting: bool,
}

impl Pair {
    /// Returns the number of messages that are acknowledged and received.
    fn done(&self) -> u64 {
        self.received.min(self.acked)
    }

    fn receive(&mut self, number: u64) -> Result<()> {
        if number != self.received {
            return Err(format!("want message {}, got: {number}", self.received).into());
        }
        self.received += 1;
        Ok(())
    }

    fn ack(&mut self, number: Option<u64>) {
        self.acked += 1;
        self.sum = self.sum.zip(number).map(|(sum, number)| sum + number);
    }

    /// Checks that each sent message was received and acknowledged once.
    fn check(&self) -> Result<()> {
        let sum = (0..self.sent).sum::<u64>();
        let is_right = self.received == self.sent && self.acked == self.sent && self.sum.is_none_or(|it| it == sum);
        is_right.then_some(()).ok_or_else(|| format!("not each message was acknowledged once: {self:?}").into())
    }
}

/// H2: each sender keeps its window of messages in flight.
pub(crate) fn windows(server: &Server, count: usize, window: u64, span: Duration) -> Result<Done> {
    let mut crowd = Crowd::new(server.side, server.addr)?;
    let mut pairs = Vec::new();
    for _ in 0..count {
        pairs.push(join_pair(&mut crowd, server)?);
    }
    let mut meter = Meter::new(server, span);
    let mut done = None;
    loop {
        for (at, pair) in pairs.iter_mut().enumerate().filter(|(_, pair)| pair.is_waiting) {
            pair.is_waiting = false;
            while done.is_none() && pair.sent - pair.done() < window {
                crowd.put(sender(at), &pair.template, pair.sent);
                pair.sent += 1;
            }
            crowd.flush(sender(at))?;
        }
        if done.is_some() && pairs.iter().all(|pair| pair.done() == pair.sent) {
            break;
        }
        crowd.turn(&mut |at, got| {
            let pair = &mut pairs[at / 2];
            pair.is_waiting = true;
            match got {
                Got::Message(number) if at != sender(at / 2) => pair.receive(number)?,
                Got::Ack(number) if at == sender(at / 2) => pair.ack(number),
                Got::Acks(list) if at == sender(at / 2) => numbers(list).for_each(|number| pair.ack(number)),
                Got::Word(word) => return Err(unexpected(word)),
                got => return Err(format!("not expected at {at}: {got:?}").into()),
            }
            Ok(())
        })?;
        if done.is_none() {
            done = meter.look(pairs.iter().map(Pair::done).sum())?;
        }
    }
    pairs.iter().try_for_each(Pair::check)?;
    Ok(done.unwrap_or_default())
}

/// Returns the index of a pair's sender; its receiver is the next one.
const fn sender(pair: usize) -> usize {
    2 * pair
}

fn join_pair(crowd: &mut Crowd, server: &Server) -> Result<Pair> {
    let (from, to) = (server.new_name(), server.new_name());
    let sender = Who { to: to.clone(), acks: true, ..Who::named(from) };
    crowd.join(&sender)?;
    crowd.join(&Who::named(to))?;
    let template = server.side.message(&sender);
    Ok(Pair { template, sent: 0, received: 0, acked: 0, sum: Some(0), is_waiting: true })
}

#[cfg(test)]
mod tests {
    use super::super::dialect::Side;
    use super::*;

    fn pair(sent: u64) -> Pair {
        let template = Side::Wigwag.message(&Who::named("a".to_owned()));
        Pair { template, sent, received: 0, acked: 0, sum: Some(0), is_waiting: false }
    }

    #[test]
    fn what_is_lost_or_comes_twice_is_seen() {
        let mut lost = pair(3);
        lost.receive(0).unwrap();
        assert!(lost.receive(2).is_err(), "a message is missing");
        assert!(lost.receive(0).is_err(), "a message comes twice");
        let acked = |numbers: [u64; 3]| {
            let mut pair = Pair { received: 3, ..pair(3) };
            numbers.into_iter().for_each(|number| pair.ack(Some(number)));
            pair.check()
        };
        assert!(acked([0, 2, 1]).is_ok(), "in whatever order");
        assert!(acked([0, 2, 2]).is_err(), "one is acknowledged twice, another not");
        assert!(pair(3).check().is_err(), "none is");
    }
}
