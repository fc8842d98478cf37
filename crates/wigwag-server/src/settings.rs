//! How a server behaves: plain data with defaults.

use std::net::IpAddr;
use std::time::Duration;

use wigwag_hub::Rate;

use crate::limits;
use crate::room::BodyBounds;

/// How a server behaves. The defaults are right for most.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// How long a request may take until its answer begins; long-polls and event streams have times of their own.
    pub request_timeout: Duration,
    /// How long the head of a request may take, so that a slow client holds nothing for long.
    pub header_timeout: Duration,
    /// How long its body may take in total. An object of `/s3` may take longer as long as it keeps
    /// [`Settings::body_rate_min`].
    pub body_timeout: Duration,
    /// Minimum rate of an object of `/s3` after that time, in bytes per second.
    pub body_rate_min: usize,
    /// How long a client may take nothing of an answer that is being sent.
    pub write_timeout: Duration,
    /// The largest body.
    pub body_bytes_max: usize,
    /// Memory budget of `/v1` bodies.
    pub bodies: BodyBounds,
    /// Memory budget of `/s3` bodies.
    pub s3_bodies: BodyBounds,
    /// How long a long-poll waits at most; shorter than proxies on the way give up.
    pub wait_max: Duration,
    /// How often a silent event stream says that it lives.
    pub keep_alive: Duration,
    /// How long requests under way may go on when the server stops.
    pub grace: Duration,
    /// So many connections are served at once; more wait to be accepted.
    pub connections_max: usize,
    /// Maximum connections of one client address; further ones are closed. Connections of trusted proxies do not count.
    pub address_connections_max: usize,
    /// Request rate of one client address; excess requests are answered 429. `/v1/health` is exempt. No limit if `None`.
    pub address_rate: Option<Rate>,
    /// Request rate of one token; excess requests are answered 429. No limit if `None`.
    pub token_rate: Option<Rate>,
    /// Rate of failed authentications of one client address; responses to excess failures are delayed. Requests with valid
    /// credentials are never delayed. No limit if `None`.
    pub failed_auth_rate: Option<Rate>,
    /// Addresses of reverse proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: Vec<IpAddr>,
    /// Where the server can be reached from outside, such as `https://wigwag.example.com`: links are made with it.
    pub public_url: Option<String>,
    /// Origins whose pages may ask, such as `https://admin.example.com`; none but the server's own by default.
    pub origins: Vec<String>,
    /// Serves beyond this machine without tokens. Whoever reaches the port may do everything.
    pub insecure: bool,
    /// Allows unauthenticated writes through `/s3` of a server without tokens. Access keys carry their own permissions.
    pub s3_write: bool,
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
            body_rate_min: limits::BODY_RATE_MIN,
            write_timeout: Duration::from_secs(30),
            body_bytes_max: limits::BODY_BYTES_MAX,
            bodies: limits::BODIES,
            s3_bodies: limits::S3_BODIES,
            wait_max: limits::WAIT_MAX,
            keep_alive: Duration::from_secs(15),
            grace: Duration::from_secs(10),
            connections_max: 10_000,
            address_connections_max: limits::ADDRESS_CONNECTIONS_MAX,
            address_rate: None,
            token_rate: None,
            failed_auth_rate: Some(limits::FAILED_AUTH),
            trusted_proxies: Vec::new(),
            public_url: None,
            origins: Vec::new(),
            insecure: false,
            s3_write: false,
            hub: wigwag_hub::Settings::default(),
            hub_connections_max: 100_000,
        }
    }
}
