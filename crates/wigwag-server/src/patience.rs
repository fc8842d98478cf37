//! A connection that is given up when its other side does not read.
//!
//! Holds: as long as anything is taken, however slowly, it goes on; what takes nothing for the whole span holds a
//! connection and what is to be written no longer.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use wigwag::store::{Clock as _, System};

/// A stream whose writes may not stand still for longer than a span.
pub(crate) struct Patience<S> {
    stream: S,
    span: Duration,
    /// Runs while a write stands still.
    end: Option<BoxFuture<'static, ()>>,
}

impl<S> Patience<S> {
    pub(crate) fn new(stream: S, span: Duration) -> Self {
        Self { stream, span, end: None }
    }

    /// What became of a write: if nothing, how long that has gone on.
    fn watched<T>(&mut self, context: &mut Context<'_>, wrote: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if wrote.is_ready() {
            self.end = None;
            return wrote;
        }
        let span = self.span;
        let end = self.end.get_or_insert_with(|| Box::pin(async move { System.sleep(span).await }));
        match end.as_mut().poll(context) {
            Poll::Ready(()) => {
                // A retry gets a new timeout.
                self.end = None;
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the other side reads nothing")))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patience<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patience<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watched(context, wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.watched(context, wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.watched(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.watched(context, shut)
    }
}
