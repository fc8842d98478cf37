//! H5: messages for absent actors, a killed server, and all messages in order once the actors reconnect.

use std::path::Path;
use std::time::Instant;

use serde::Serialize;

use super::crowd::Crowd;
use super::dialect::{Got, Side, Who};
use super::start::{Server, Starter};
use crate::http::Result;

/// Messages for each absent actor; a hub stores no more.
const EACH: u64 = 100;

#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Drained {
    pub(crate) messages: u64,
    /// Number of absent actors.
    pub(crate) targets: u64,
    /// Time until all messages were acknowledged as stored, sent without waiting for each other.
    pub(crate) stored_ms: f64,
    /// Time from the first reconnect until all actors have all messages.
    pub(crate) drained_ms: f64,
}

pub(crate) fn measure(starter: &Starter, side: Side, folder: &Path, targets: u64) -> Result<Drained> {
    let server = starter.start(side, folder)?;
    let names: Vec<String> = (0..targets).map(|_| server.new_name()).collect();
    let stored_ms = store(&server, &names)?;
    // Kills the server without a graceful stop.
    drop(server);
    let server = starter.start(side, folder)?;
    let drained_ms = drain(&server, &names)?;
    Ok(Drained { messages: targets * EACH, targets, stored_ms, drained_ms })
}

fn store(server: &Server, names: &[String]) -> Result<f64> {
    let mut crowd = Crowd::new(server.side, server.addr)?;
    for name in names {
        crowd.join(&Who { leaves: true, ..Who::named(name.clone()) })?;
    }
    let who = Who { stores: true, ..Who::named("sender".to_owned()) };
    let sender = crowd.join(&who)?;
    let began = Instant::now();
    for (first, name) in (0..).step_by(EACH as usize).zip(names) {
        let template = server.side.message(&Who { to: name.clone(), ..who.clone() });
        (first..first + EACH).for_each(|number| crowd.put(sender, &template, number));
    }
    crowd.flush(sender)?;
    let mut missing = names.len() as u64 * EACH;
    while missing > 0 {
        crowd.turn(&mut |at, got| match got {
            Got::Queued if at == sender => {
                missing -= 1;
                Ok(())
            }
            got => Err(format!("not stored: {got:?}").into()),
        })?;
    }
    Ok(began.elapsed().as_secs_f64() * 1e3)
}

fn drain(server: &Server, names: &[String]) -> Result<f64> {
    let began = Instant::now();
    let mut crowd = Crowd::new(server.side, server.addr)?;
    let mut next: Vec<u64> = (0..names.len() as u64).map(|target| target * EACH).collect();
    for (at, name) in names.iter().enumerate() {
        let who = Who { returns: true, ..Who::named(name.clone()) };
        crowd.join_and(&who, &mut |got| take(&mut next[at], got))?;
    }
    let ends: Vec<u64> = (1..=names.len() as u64).map(|target| target * EACH).collect();
    while next != ends {
        let came = |next: &[u64]| next.iter().map(|next| next % EACH).collect::<Vec<_>>();
        let turned = crowd.turn(&mut |at, got| take(&mut next[at], got));
        turned.map_err(|error| format!("{error}; of {EACH} for each, there came {:?}", came(&next)))?;
    }
    Ok(began.elapsed().as_secs_f64() * 1e3)
}

/// Accepts only the next number.
fn take(next: &mut u64, got: Got<'_>) -> Result<()> {
    match got {
        Got::Message(number) if number == *next => *next += 1,
        Got::Ack(_) => {}
        got => return Err(format!("want message {next}, got: {got:?}").into()),
    }
    Ok(())
}
