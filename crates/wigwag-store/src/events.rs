//! A server's stream of changes: server-sent events, put together from pieces.

use crate::changes::Followers;
use crate::limits::NUDGE_EVENT_BYTES_MAX;
use crate::{Error, Notices, Result};

/// Receives the events of a stream.
pub(crate) trait Sink {
    /// Objects were put at these keys.
    fn put(&self, keys: &[String]);

    /// More happened than could be announced.
    fn missed(&self);
}

impl Sink for Followers {
    fn put(&self, keys: &[String]) {
        self.tell(keys.iter().map(String::as_str));
    }

    fn missed(&self) {
        self.tell_missed();
    }
}

impl Sink for Notices {
    fn put(&self, keys: &[String]) {
        self.receive(keys);
    }

    fn missed(&self) {
        self.report_gap();
    }
}

/// Server-sent events, put together from pieces.
#[derive(Debug, Default)]
pub(crate) struct Events {
    line: Vec<u8>,
    name: String,
    data: Vec<String>,
    bytes: usize,
}

impl Events {
    /// Parses some bytes, and passes on the events that are complete. Malformed input is an error.
    pub(crate) fn take(&mut self, bytes: &[u8], sink: &impl Sink) -> Result<()> {
        for &byte in bytes {
            self.bytes += 1;
            if self.bytes > NUDGE_EVENT_BYTES_MAX {
                return Err(Error::invalid("an event of the stream of changes is too long"));
            }
            if byte == b'\n' {
                let line = String::from_utf8(std::mem::take(&mut self.line));
                let line = line.map_err(|_| Error::invalid("a line of the stream of changes is not text"))?;
                self.take_line(line.trim_end_matches('\r'), sink);
            } else {
                self.line.push(byte);
            }
        }
        Ok(())
    }

    fn take_line(&mut self, line: &str, sink: &impl Sink) {
        if line.is_empty() {
            match self.name.as_str() {
                "put" => {
                    self.data.retain(|key| !key.is_empty());
                    sink.put(&self.data);
                }
                "missed" => sink.missed(),
                // The stream ends after its last word; unknown words are ignored.
                _ => {}
            }
            *self = Self::default();
            return;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.name),
            "data" => self.data.push(value.to_owned()),
            // A comment, which serves as a keep-alive.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Change;

    #[tokio::test]
    async fn events_are_put_together_however_they_come() {
        let text = ": lives\n\nevent: put\ndata: due/1\ndata: due/é\n\nevent: later\ndata: x\n\r\nevent: put\r\ndata:other\r\n\r\n\
                    event: put\ndata: due/3\n\nevent: missed\ndata:\n\n";
        for size in 1..=text.len() {
            let followers = Followers::default();
            let mut due = followers.follow("due/");
            let mut events = Events::default();
            let missed = text.find("event: missed").unwrap();
            for piece in text.as_bytes()[..missed].chunks(size) {
                events.take(piece, &followers).unwrap();
            }
            for key in ["due/1", "due/é", "due/3"] {
                assert_eq!(due.next().await, Change::Put(key.into()), "pieces of {size}");
            }
            for piece in text.as_bytes()[missed..].chunks(size) {
                events.take(piece, &followers).unwrap();
            }
            assert_eq!(due.next().await, Change::Missed);
        }
    }

    #[test]
    fn an_invalid_stream_of_events_is_not_buffered_without_bound() {
        let followers = Followers::default();
        let long = vec![b'x'; NUDGE_EVENT_BYTES_MAX + 1];
        assert!(Events::default().take(&long, &followers).is_err());
        assert!(Events::default().take(b"event: \xff\n", &followers).is_err());
    }
}
