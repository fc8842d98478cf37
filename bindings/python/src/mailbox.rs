//! The link between the engine and one event loop of Python.
//!
//! Holds: an item is put under a lock that no thread keeps while it waits for anything; the first of a batch writes to the
//! descriptor that the loop watches. Python's words come in batches, in the order in which they were said.

use std::collections::HashMap;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pyo3::prelude::*;
use tokio::sync::{mpsc, oneshot};

use crate::failures::Outcome;
use crate::lock;
use crate::points::Point;
use crate::scope::Command;

/// An item for Python: a kind, three numbers, a moment in microseconds, and a text.
pub(crate) type Item = (u8, u64, u64, u64, u64, Option<String>);

/// A request of Python: a kind, two numbers, and two texts.
type Word = (u8, u64, u64, Option<String>, Option<String>);

pub(crate) const BEGIN: u8 = 1;
pub(crate) const CALL: u8 = 2;
pub(crate) const REPLY: u8 = 3;
pub(crate) const GONE: u8 = 4;
pub(crate) const DROPPED: u8 = 5;
pub(crate) const ANSWER: u8 = 6;
pub(crate) const FORGET: u8 = 7;
pub(crate) const CANCELLED: u8 = 8;
pub(crate) const LOG: u8 = 9;

const ASK: u8 = 1;
const DROP: u8 = 2;
const ACK: u8 = 3;
const RETURN: u8 = 4;
const DONE: u8 = 5;
const BELOW: u8 = 6;

/// A call of a step's code.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) done: oneshot::Sender<Outcome>,
    /// What the step knows of itself; none of code that is no step.
    pub(crate) info: Option<wigwag::StepInfo>,
}

/// The side of the engine.
#[derive(Debug)]
pub(crate) struct Post {
    items: Mutex<Vec<Item>>,
    wake: Wake,
    next: AtomicU64,
    scopes: Mutex<HashMap<u64, mpsc::UnboundedSender<Vec<Command>>>>,
    calls: Mutex<HashMap<u64, Call>>,
}

impl Post {
    /// Puts an item for the loop.
    pub(crate) fn put(&self, item: Item) {
        let mut items = lock(&self.items);
        items.push(item);
        let is_first = items.len() == 1;
        drop(items);
        if is_first {
            self.wake.wake();
        }
    }

    /// Answers a question that did not come from a run.
    pub(crate) fn answer(&self, future: u64, outcome: Outcome) {
        let (is_ok, text) = outcome.into_parts();
        self.put((ANSWER, future, u64::from(is_ok), 0, 0, Some(text)));
    }

    pub(crate) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    #[expect(clippy::disallowed_methods, reason = "a request of code that runs must not wait; the code bounds them")]
    pub(crate) fn open_scope(&self) -> (u64, mpsc::UnboundedReceiver<Vec<Command>>) {
        let (commands, heard) = mpsc::unbounded_channel();
        let number = self.number();
        lock(&self.scopes).insert(number, commands);
        (number, heard)
    }

    pub(crate) fn close_scope(&self, scope: u64) {
        if lock(&self.scopes).remove(&scope).is_some() {
            self.put((GONE, scope, 0, 0, 0, None));
        }
    }

    /// Calls a function that Python keeps, and waits for its outcome. Dropping the future cancels the call.
    pub(crate) async fn call(
        self: Arc<Self>,
        function: u64,
        attempt: u32,
        text: String,
        info: Option<wigwag::StepInfo>,
    ) -> Outcome {
        let (done, outcome) = oneshot::channel();
        let number = self.number();
        lock(&self.calls).insert(number, Call { done, info });
        let dropped = DroppedCall { post: Arc::clone(&self), number };
        self.put((CALL, number, function, u64::from(attempt), 0, Some(text)));
        let outcome = outcome.await;
        drop(dropped);
        match outcome {
            Ok(outcome) => outcome,
            // The loop has ended, and its worker with it.
            Err(_) => std::future::pending().await,
        }
    }

    /// Submits a task below the step whose code says so.
    fn submit_below(self: &Arc<Self>, call: u64, future: u64, text: &str) {
        let info = lock(&self.calls).get(&call).and_then(|call| call.info.clone());
        let post = Arc::clone(self);
        let submission = info.ok_or_else(|| "tasks are submitted from a step's code while it runs".to_owned());
        let submission = submission.and_then(|info| Ok((info, crate::points::Submission::read(text)?)));
        let Ok(runtime) = crate::runtime() else { return };
        runtime.spawn(async move {
            let outcome = match submission {
                Ok((info, asked)) => asked.submit_below(&info).await,
                Err(refused) => Outcome::refused(&refused),
            };
            post.answer(future, outcome);
        });
    }
}

struct DroppedCall {
    post: Arc<Post>,
    number: u64,
}

impl Drop for DroppedCall {
    fn drop(&mut self) {
        if lock(&self.post.calls).remove(&self.number).is_some() {
            self.post.put((DROPPED, self.number, 0, 0, 0, None));
        }
    }
}

/// The mailbox of one event loop.
#[pyclass(frozen, module = "wigwag._native")]
#[derive(Debug)]
pub(crate) struct Mailbox {
    pub(crate) post: Arc<Post>,
}

#[pymethods]
impl Mailbox {
    #[new]
    fn new() -> PyResult<Self> {
        let post = Post {
            items: Mutex::default(),
            wake: Wake::new()?,
            next: AtomicU64::new(1),
            scopes: Mutex::default(),
            calls: Mutex::default(),
        };
        Ok(Self { post: Arc::new(post) })
    }

    /// The descriptor that can be read when there is something to take.
    fn fileno(&self) -> i32 {
        self.post.wake.fileno()
    }

    /// Waits until there is something to take, for a loop that can watch no descriptor.
    fn wait(&self, py: Python<'_>, seconds: f64) -> bool {
        let span = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        py.detach(|| self.post.wake.wait(span))
    }

    /// Takes all that was put.
    fn take(&self) -> Vec<Item> {
        self.post.wake.clear();
        std::mem::take(&mut *lock(&self.post.items))
    }

    /// Number of items that are still in the mailbox.
    fn untaken(&self) -> usize {
        lock(&self.post.items).len()
    }

    /// Says all that Python has to say, in order.
    fn say(&self, words: Vec<Word>) -> PyResult<()> {
        let mut told: Vec<(u64, Vec<Command>)> = Vec::new();
        let mut tell = |scope: u64, command: Command| match told.iter_mut().find(|(of, _)| *of == scope) {
            Some((_, commands)) => commands.push(command),
            None => told.push((scope, vec![command])),
        };
        for (kind, first, second, text, more) in words {
            let text = text.unwrap_or_default();
            match kind {
                ASK => tell(first, Command::Ask { future: second, point: Point::read(&text).map(Box::new) }),
                DROP => tell(first, Command::Drop { future: second }),
                ACK => tell(first, Command::Ack { seen: second }),
                RETURN => tell(first, Command::Return { outcome: Outcome::of(second == 1, text), data: more }),
                DONE => {
                    if let Some(call) = lock(&self.post.calls).remove(&first) {
                        let _ = call.done.send(Outcome::of(second == 1, text));
                    }
                }
                BELOW => self.post.submit_below(first, second, &text),
                other => {
                    return Err(pyo3::exceptions::PyValueError::new_err(format!("no such kind of word: {other}")));
                }
            }
        }
        let scopes = lock(&self.post.scopes);
        for (scope, commands) in told {
            if let Some(scope) = scopes.get(&scope) {
                let _ = scope.send(commands);
            }
        }
        Ok(())
    }
}

/// Wakes the loop through a descriptor that it watches.
#[derive(Debug)]
struct Wake {
    #[cfg(target_os = "linux")]
    event: std::os::fd::OwnedFd,
    #[cfg(not(target_os = "linux"))]
    ends: (std::os::unix::net::UnixStream, std::os::unix::net::UnixStream),
}

#[cfg(target_os = "linux")]
impl Wake {
    fn new() -> std::io::Result<Self> {
        use rustix::event::{EventfdFlags, eventfd};
        Ok(Self { event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)? })
    }

    fn fileno(&self) -> i32 {
        self.event.as_raw_fd()
    }

    fn wake(&self) {
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    fn clear(&self) {
        let _ = rustix::io::read(&self.event, &mut [0_u8; 8]);
    }

    fn wait(&self, span: Duration) -> bool {
        wait_for(&self.event, span)
    }
}

#[cfg(not(target_os = "linux"))]
impl Wake {
    fn new() -> std::io::Result<Self> {
        let ends = std::os::unix::net::UnixStream::pair()?;
        ends.0.set_nonblocking(true)?;
        ends.1.set_nonblocking(true)?;
        Ok(Self { ends })
    }

    fn fileno(&self) -> i32 {
        self.ends.0.as_raw_fd()
    }

    fn wake(&self) {
        use std::io::Write as _;
        let _ = (&self.ends.1).write(&[1]);
    }

    fn clear(&self) {
        use std::io::Read as _;
        let _ = (&self.ends.0).read(&mut [0_u8; 64]);
    }

    fn wait(&self, span: Duration) -> bool {
        wait_for(&self.ends.0, span)
    }
}

fn wait_for(descriptor: &impl std::os::fd::AsFd, span: Duration) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let span = Timespec::try_from(span).ok();
    poll(&mut [PollFd::new(descriptor, PollFlags::IN)], span.as_ref()).is_ok_and(|ready| ready > 0)
}
