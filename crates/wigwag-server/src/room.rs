//! Memory for request bodies: bounded in total, for each client address and for each caller.
//!
//! Holds: a body counts with the bytes that have arrived, not with its announced length, so that slow bodies cannot reserve
//! the whole budget. The budget is released when the request is answered.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::peer::network;

/// How long a body waits for room before it is rejected.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// Limits on the bytes of request bodies held in memory at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BodyBounds {
    /// For all requests together.
    pub total_bytes_max: usize,
    /// For one client address; an IPv6 /64 network counts as one address.
    pub address_bytes_max: usize,
    /// For one token or access key.
    pub caller_bytes_max: usize,
}

impl BodyBounds {
    /// Creates bounds in bytes: in total, per address and per caller.
    #[must_use]
    pub fn new(total_bytes_max: usize, address_bytes_max: usize, caller_bytes_max: usize) -> Self {
        Self { total_bytes_max, address_bytes_max, caller_bytes_max }
    }
}

/// A shared memory budget for request bodies.
#[derive(Debug)]
pub(crate) struct Room {
    bounds: BodyBounds,
    held: Mutex<Held>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct Held {
    total: usize,
    by_address: HashMap<IpAddr, usize>,
    by_caller: HashMap<String, usize>,
}

/// The bound that a request would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    Total,
    Address,
    Caller,
}

impl Full {
    pub(crate) fn detail(self) -> &'static str {
        match self {
            Self::Total => "the memory budget for request bodies is exhausted",
            Self::Address => "the memory budget for request bodies of this address is exhausted",
            Self::Caller => "the memory budget for request bodies of this caller is exhausted",
        }
    }
}

impl Room {
    pub(crate) fn new(bounds: BodyBounds) -> Arc<Self> {
        Arc::new(Self { bounds, held: Mutex::default(), freed: Notify::new() })
    }

    /// Creates an empty share for one request.
    pub(crate) fn share(self: &Arc<Self>, address: Option<IpAddr>, caller: Option<&str>) -> Share {
        Share { room: Arc::clone(self), address: address.map(network), caller: caller.map(str::to_owned), bytes: 0 }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The bytes that one request holds; released on drop.
#[derive(Debug)]
pub(crate) struct Share {
    room: Arc<Room>,
    address: Option<IpAddr>,
    caller: Option<String>,
    bytes: usize,
}

impl Share {
    /// Adds bytes to the share. Waits briefly for other requests to finish if the budget is exhausted.
    pub(crate) async fn grow(&mut self, bytes: usize) -> Result<(), Full> {
        let room = Arc::clone(&self.room);
        let grown = async {
            loop {
                let freed = room.freed.notified();
                tokio::pin!(freed);
                // Enabled before the check, so that a release in between is not missed.
                freed.as_mut().enable();
                if self.try_grow(bytes).is_ok() {
                    return;
                }
                freed.await;
            }
        };
        if tokio::time::timeout(WAIT_MAX, grown).await.is_ok() {
            return Ok(());
        }
        self.try_grow(bytes)
    }

    /// Returns the bytes of the share.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds bytes to the share if there is room now.
    pub(crate) fn try_grow(&mut self, bytes: usize) -> Result<(), Full> {
        let BodyBounds { total_bytes_max, address_bytes_max, caller_bytes_max } = self.room.bounds;
        let mut held = self.room.lock();
        let of_address = self.address.map(|address| held.by_address.get(&address).copied().unwrap_or_default());
        let of_caller = self.caller.as_ref().map(|caller| held.by_caller.get(caller).copied().unwrap_or_default());
        if of_caller.is_some_and(|held| held + bytes > caller_bytes_max) {
            return Err(Full::Caller);
        }
        if of_address.is_some_and(|held| held + bytes > address_bytes_max) {
            return Err(Full::Address);
        }
        if held.total + bytes > total_bytes_max {
            return Err(Full::Total);
        }
        held.total += bytes;
        if let Some(address) = self.address {
            *held.by_address.entry(address).or_default() += bytes;
        }
        if let Some(caller) = &self.caller {
            *held.by_caller.entry(caller.clone()).or_default() += bytes;
        }
        self.bytes += bytes;
        Ok(())
    }
}

impl Share {
    /// Releases the bytes beyond a number.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        let freed = self.bytes.saturating_sub(bytes);
        if freed == 0 {
            return;
        }
        self.bytes -= freed;
        let mut held = self.room.lock();
        held.total -= freed;
        if let Some(address) = self.address {
            give_back(&mut held.by_address, &address, freed);
        }
        if let Some(caller) = &self.caller {
            give_back(&mut held.by_caller, caller, freed);
        }
        drop(held);
        self.room.freed.notify_waiters();
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

fn give_back<K: std::hash::Hash + Eq>(held: &mut HashMap<K, usize>, key: &K, bytes: usize) {
    if let Some(of_key) = held.get_mut(key) {
        *of_key -= bytes;
        if *of_key == 0 {
            held.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([10, 0, 0, last]))
    }

    #[test]
    fn each_bound_holds_by_itself_and_room_comes_back() {
        let room = Room::new(BodyBounds::new(100, 60, 50));
        let mut ada = room.share(address(1), Some("ada"));
        assert_eq!((ada.try_grow(50), ada.try_grow(1)), (Ok(()), Err(Full::Caller)));
        let mut same_address = room.share(address(1), None);
        assert_eq!((same_address.try_grow(11), same_address.try_grow(10)), (Err(Full::Address), Ok(())));
        let mut other = room.share(address(2), None);
        assert_eq!((other.try_grow(41), other.try_grow(40)), (Err(Full::Total), Ok(())));
        drop(ada);
        assert_eq!(other.try_grow(20), Ok(()));
        drop((same_address, other));
        let held = room.lock();
        assert_eq!((held.total, held.by_address.len(), held.by_caller.len()), (0, 0, 0));
    }

    #[tokio::test]
    async fn who_waits_for_room_gets_it_when_another_is_done() {
        let room = Room::new(BodyBounds::new(10, 10, 10));
        let mut first = room.share(None, None);
        first.grow(10).await.unwrap();
        let mut second = room.share(None, None);
        let waiting = tokio::spawn(async move { second.grow(5).await });
        tokio::task::yield_now().await;
        drop(first);
        assert_eq!(waiting.await.unwrap(), Ok(()));
    }
}
