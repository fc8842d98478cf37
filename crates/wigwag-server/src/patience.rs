//! Closes connections whose peer does not read.
//!
//! Holds: a connection stays open as long as the peer reads, however slowly. A peer that reads nothing for the whole timeout no longer
//! occupies a connection and its write buffer.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use wigwag_store::{Clock as _, System};

/// A stream whose writes fail after a timeout without progress.
pub(crate) struct Patience<S> {
    stream: S,
    span: Duration,
    /// Timer that runs while a write makes no progress.
    end: Option<BoxFuture<'static, ()>>,
}

impl<S> Patience<S> {
    pub(crate) fn new(stream: S, span: Duration) -> Self {
        Self { stream, span, end: None }
    }

    /// Checks the outcome of a write: without progress, starts or polls the timer.
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
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer does not read")))
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
