//! Settings of a client: plain data with defaults.

use std::time::Duration;

use super::error::{Error, Result};
use crate::limits::SETTING_COUNT_MAX;

/// Settings of a client. The defaults are the protocol's.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// Time to wait for the answer to one attempt of an ask. Default: 30 s.
    pub answer_timeout: Duration,
    /// Maximum attempts of an ask; repeats after a reconnect do not count. Default: 3.
    pub attempts: u32,
    /// Delay before the second attempt; the delay grows by as much for each further attempt. Default: 1 s.
    pub attempt_wait: Duration,
    /// Timeout for opening the socket including TLS, and again for the hub's greeting. Default: 10 s.
    pub connect_timeout: Duration,
    /// Delay before the first reconnect attempt; it doubles with each further attempt, with jitter. Default: 100 ms.
    pub backoff_min: Duration,
    /// Maximum delay between two reconnect attempts. Default: 30 s.
    pub backoff_max: Duration,
    /// Capacity of the send buffer: messages that wait to be sent or for their answers. Sending waits while the buffer
    /// is full. Default: 1,000.
    pub buffer: usize,
    /// Capacity of the inbox of direct messages. While the inbox is full, the client reads nothing more, and the hub
    /// applies backpressure to the senders. Default: 1,000.
    pub inbox: usize,
    /// Capacity of the buffer of each subscription. The client drops messages beyond it and requests
    /// them again later. Default: 1,000.
    pub topic_buffer: usize,
    /// Size of the dedup window: ids of direct messages that the client remembers to drop duplicates. Default: 10,000.
    pub seen: usize,
    /// Lease of a registration, from 10 s to 1 h; the client renews it after a third of that time. Default: 300 s.
    pub lease: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            answer_timeout: Duration::from_secs(30),
            attempts: 3,
            attempt_wait: Duration::from_secs(1),
            connect_timeout: Duration::from_secs(10),
            backoff_min: Duration::from_millis(100),
            backoff_max: Duration::from_secs(30),
            buffer: 1_000,
            inbox: 1_000,
            topic_buffer: 1_000,
            seen: 10_000,
            lease: Duration::from_secs(300),
        }
    }
}

impl Settings {
    pub(super) fn validate(&self) -> Result<()> {
        let counts =
            [("buffer", self.buffer), ("inbox", self.inbox), ("topic_buffer", self.topic_buffer), ("seen", self.seen)];
        for (name, count) in counts {
            if !(1..=SETTING_COUNT_MAX).contains(&count) {
                return Err(wrong(name, &format!("1 to {SETTING_COUNT_MAX}"), &count.to_string()));
            }
        }
        let spans = [
            ("answer_timeout", self.answer_timeout),
            ("connect_timeout", self.connect_timeout),
            ("backoff_min", self.backoff_min),
        ];
        if let Some((name, _)) = spans.into_iter().find(|(_, span)| span.is_zero()) {
            return Err(wrong(name, "more than 0", "0"));
        }
        if self.backoff_max < self.backoff_min {
            return Err(wrong("backoff_max", "at least `backoff_min`", &format!("{:?}", self.backoff_max)));
        }
        if self.attempts == 0 {
            return Err(wrong("attempts", "at least 1", "0"));
        }
        match (10..=3_600).contains(&self.lease.as_secs()) {
            true => Ok(()),
            false => Err(wrong("lease", "10 s to 1 h", &format!("{:?}", self.lease))),
        }
    }

    /// Returns the total time of all attempts and the delays between them.
    pub(super) fn patience(&self) -> Duration {
        let waits = self.attempts * (self.attempts - 1) / 2;
        self.answer_timeout * self.attempts + self.attempt_wait * waits
    }
}

fn wrong(name: &str, want: &str, got: &str) -> Error {
    Error::invalid(format!("invalid setting `{name}`: want {want}, got: {got}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_work_are_refused_by_name() {
        Settings::default().validate().unwrap();
        assert_eq!(Settings::default().patience(), Duration::from_secs(93), "30 + 1 + 30 + 2 + 30");
        type Change = fn(&mut Settings);
        let wrong: [(&str, Change); 6] = [
            ("buffer", |settings| settings.buffer = 0),
            ("inbox", |settings| settings.inbox = 2_000_000),
            ("attempts", |settings| settings.attempts = 0),
            ("lease", |settings| settings.lease = Duration::from_secs(9)),
            ("backoff_max", |settings| settings.backoff_max = Duration::from_millis(1)),
            ("answer_timeout", |settings| settings.answer_timeout = Duration::ZERO),
        ];
        for (name, change) in wrong {
            let mut settings = Settings::default();
            change(&mut settings);
            assert!(settings.validate().unwrap_err().to_string().contains(name), "{name}");
        }
    }
}
