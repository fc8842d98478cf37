//! How a server behaves: plain data with defaults.

use std::time::Duration;

use crate::limits;

/// How a server behaves. The defaults are right for most.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// How long a request may take until its answer begins; long-polls and event streams have times of their own.
    pub request_timeout: Duration,
    /// How long the head of a request may take, so that a slow client holds nothing for long.
    pub header_timeout: Duration,
    /// How long its body may take.
    pub body_timeout: Duration,
    /// How long a client may take nothing of an answer that is being sent.
    pub write_timeout: Duration,
    /// The largest body.
    pub body_bytes_max: usize,
    /// How long a long-poll waits at most; shorter than proxies on the way give up.
    pub wait_max: Duration,
    /// How often a silent event stream says that it lives.
    pub keep_alive: Duration,
    /// How long requests under way may go on when the server stops.
    pub grace: Duration,
    /// So many connections are served at once; more wait to be accepted.
    pub connections_max: usize,
    /// Where the server can be reached from outside, such as `https://wigwag.example.com`: links are made with it.
    pub public_url: Option<String>,
    /// Origins whose pages may ask, such as `https://admin.example.com`; none but the server's own by default.
    pub origins: Vec<String>,
    /// Serves beyond this machine without tokens. Whoever reaches the port may do everything.
    pub insecure: bool,
    /// How the hub behaves.
    pub hub: wigwag_hub::Settings,
    /// So many are connected to the hub at once; more are told to come back later.
    pub hub_connections_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            request_timeout: Duration::from_secs(30),
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(20),
            write_timeout: Duration::from_secs(30),
            body_bytes_max: limits::BODY_BYTES_MAX,
            wait_max: limits::WAIT_MAX,
            keep_alive: Duration::from_secs(15),
            grace: Duration::from_secs(10),
            connections_max: 10_000,
            public_url: None,
            origins: Vec::new(),
            insecure: false,
            hub: wigwag_hub::Settings::default(),
            hub_connections_max: 100_000,
        }
    }
}
