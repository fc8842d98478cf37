//! Settings of a server: plain data with defaults.

use std::net::IpAddr;
use std::time::Duration;

use wigwag_hub::Rate;

use crate::limits;
use crate::room::BodyBounds;

/// Settings of a server. The defaults suit most servers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// Timeout of a request until its response begins; long-polls and event streams have separate limits.
    pub request_timeout: Duration,
    /// Timeout for the head of a request, so that a slow client does not occupy a connection for long.
    pub header_timeout: Duration,
    /// Timeout for the whole body. An object of `/s3` may take longer as long as it keeps
    /// [`Settings::body_rate_min`].
    pub body_timeout: Duration,
    /// Minimum rate of an object of `/s3` after that time, in bytes per second.
    pub body_rate_min: usize,
    /// Timeout of a response whose client reads nothing.
    pub write_timeout: Duration,
    /// Maximum size of a body in bytes.
    pub body_bytes_max: usize,
    /// Memory budget of `/v1` bodies.
    pub bodies: BodyBounds,
    /// Memory budget of `/s3` bodies.
    pub s3_bodies: BodyBounds,
    /// Memory budget of unfinished hub frames, before and after authentication.
    pub hub_frames: BodyBounds,
    /// Maximum time of a long-poll; shorter than the usual timeout of proxies.
    pub wait_max: Duration,
    /// Interval of keep-alive messages on a silent event stream.
    pub keep_alive: Duration,
    /// Grace time for requests in progress when the server stops.
    pub grace: Duration,
    /// Maximum number of connections; further ones wait to be accepted.
    pub connections_max: usize,
    /// Maximum connections of one client address; further ones are closed. Connections of trusted proxies do not count.
    pub address_connections_max: usize,
    /// Request rate of one client address; excess requests are answered 429. `/v1/health` is exempt. No limit if `None`.
    pub address_rate: Option<Rate>,
    /// Whether that rate applies to loopback addresses, too. By default programs of this machine have no limit.
    pub address_rate_on_loopback: bool,
    /// Request rate of one token or access key; excess requests are answered 429. No limit if `None`.
    pub token_rate: Option<Rate>,
    /// Rate of failed authentications of one client address; responses to excess failures are delayed. Requests with valid
    /// credentials are never delayed. No limit if `None`.
    pub failed_auth_rate: Option<Rate>,
    /// Name of the store that `/v1/me` and the dashboard show, such as `s3://orders`; none if `None`.
    pub store_url: Option<String>,
    /// Addresses of reverse proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: Vec<IpAddr>,
    /// URL at which clients reach the server, such as `https://wigwag.example.com`; used in links.
    pub public_url: Option<String>,
    /// Address at which other processes on the same bucket reach this server for notifications, such as
    /// `http://10.0.0.7:7070`. By default the address it listens on, or the public URL.
    pub advertise: Option<String>,
    /// Other origins whose pages may send requests, such as `https://admin.example.com`.
    pub origins: Vec<String>,
    /// Serves beyond this machine without tokens. Every client that reaches the port has full access.
    pub insecure: bool,
    /// Allows unauthenticated writes through `/s3` of a server without tokens. Access keys carry their own permissions.
    pub s3_write: bool,
    /// Settings of the hub.
    pub hub: wigwag_hub::Settings,
    /// Maximum number of hub sessions; further ones are rejected with 503.
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
            hub_frames: limits::HUB_FRAMES,
            wait_max: limits::WAIT_MAX,
            keep_alive: Duration::from_secs(15),
            grace: Duration::from_secs(10),
            connections_max: 10_000,
            address_connections_max: limits::ADDRESS_CONNECTIONS_MAX,
            address_rate: Some(limits::ADDRESS_RATE),
            address_rate_on_loopback: false,
            token_rate: Some(limits::TOKEN_RATE),
            failed_auth_rate: Some(limits::FAILED_AUTH),
            store_url: None,
            trusted_proxies: Vec::new(),
            public_url: None,
            advertise: None,
            origins: Vec::new(),
            insecure: false,
            s3_write: false,
            hub: wigwag_hub::Settings::default(),
            hub_connections_max: 100_000,
        }
    }
}
