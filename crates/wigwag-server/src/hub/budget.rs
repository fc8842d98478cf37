//! Memory of a connection's unfinished frames, within the bounds of all connections.
//!
//! Holds: bytes count when they have arrived, not when a frame announces them, plus at most one read ahead. A connection that
//! finds no room is not read; it is closed if there is none within the wait of a request body.

use std::pin::Pin;
use std::task::{Context, Poll};

use crate::room::{Full, Share};

/// Bytes that each connection may hold uncounted: the usual beginning of the next frame. The limit on connections bounds them.
pub(super) const FREE_BYTES: usize = 2 * 1024;

/// The share grows and shrinks in such steps, so that few reads change it.
const STEP_BYTES: usize = 16 * 1024;

type Growth = Pin<Box<dyn Future<Output = (Share, Result<(), Full>)> + Send>>;

pub(super) struct Budget {
    /// `None` while it is being enlarged.
    share: Option<Share>,
    growth: Option<Growth>,
}

impl Budget {
    pub(super) fn new(share: Share) -> Self {
        Self { share: Some(share), growth: None }
    }

    /// Adjusts the share to the bytes that are held. If there is no room, [`Budget::poll`] waits for it.
    pub(super) fn hold(&mut self, bytes: usize) {
        let Some(mut share) = self.share.take() else { return };
        let wanted = if bytes <= FREE_BYTES { 0 } else { bytes.next_multiple_of(STEP_BYTES) };
        share.shrink_to(wanted);
        let more = wanted - share.bytes();
        if more == 0 || share.try_grow(more).is_ok() {
            self.share = Some(share);
            return;
        }
        self.growth = Some(Box::pin(async move {
            let grown = share.grow(more).await;
            (share, grown)
        }));
    }

    /// Waits until the bytes that are held have room.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Full>> {
        let Some(growth) = &mut self.growth else { return Poll::Ready(Ok(())) };
        let (share, grown) = std::task::ready!(growth.as_mut().poll(context));
        (self.share, self.growth) = (Some(share), None);
        Poll::Ready(grown)
    }

    /// Returns the bytes that the connection may hold.
    pub(super) fn granted(&self) -> usize {
        self.share.as_ref().map_or(0, Share::bytes).max(FREE_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::room::{BodyBounds, Room};

    fn poll(budget: &mut Budget) -> Poll<Result<(), Full>> {
        budget.poll(&mut Context::from_waker(std::task::Waker::noop()))
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_are_counted_in_steps_and_released_when_their_frame_is_complete() {
        let room = Room::new(BodyBounds::new(3 * STEP_BYTES, 3 * STEP_BYTES, 3 * STEP_BYTES));
        let (mut one, mut other) = (Budget::new(room.share(None, None)), Budget::new(room.share(None, None)));
        for (held, granted) in [
            (0, FREE_BYTES),
            (FREE_BYTES, FREE_BYTES),
            (FREE_BYTES + 1, STEP_BYTES),
            (STEP_BYTES + 1, 2 * STEP_BYTES),
            (10, FREE_BYTES),
            (2 * STEP_BYTES, 2 * STEP_BYTES),
        ] {
            one.hold(held);
            assert_eq!((one.granted(), poll(&mut one)), (granted, Poll::Ready(Ok(()))), "{held}");
        }
        other.hold(2 * STEP_BYTES);
        assert_eq!((other.granted(), poll(&mut other)), (FREE_BYTES, Poll::Pending), "there is no room");
        one.hold(0);
        assert_eq!(std::future::poll_fn(|context| other.poll(context)).await, Ok(()));
        assert_eq!(other.granted(), 2 * STEP_BYTES);
        one.hold(2 * STEP_BYTES);
        assert_eq!(std::future::poll_fn(|context| one.poll(context)).await, Err(Full::Total));
    }
}
