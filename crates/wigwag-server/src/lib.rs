//! The HTTP API of wigwag: every operation of a [`wigwag::Client`] under `/v1`.
//!
//! ```
//! use wigwag::{Ctx, Engine, Failure};
//! use wigwag_server::Server;
//!
//! async fn greet(_: Ctx, name: String) -> Result<String, Failure> {
//!     Ok(format!("hello {name}"))
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let engine = Engine::open("memory:")?.function("greet", 1, greet).start().await?;
//! let server = Server::builder(engine.client()).bind("127.0.0.1:0".parse()?).start().await?;
//! println!("listening on http://{}", server.addr());
//! server.stop().await;
//! engine.stop().await;
//! # Ok(()) }
//! ```
//!
//! Errors are RFC 9457 problem documents with a stable [`Code`]. Every POST that creates something accepts `Idempotency-Key`. Lists
//! have cursors. A run's events can be followed (`/v1/runs/{id}/events`). `/v1/openapi.json` describes the API, and
//! `/v1/docs` is a page to try it.
//!
//! Beyond loopback a server requires tokens ([`Auth`]), unless [`Settings::insecure`] is set.

mod api;
mod app;
mod audit;
mod auth;
mod board;
mod chance;
mod credentials;
#[cfg(feature = "dashboard")]
mod dashboard;
mod error;
mod extract;
mod fleet;
mod html;
mod hub;
pub mod limits;
mod observe;
mod openapi;
mod origin;
mod pace;
mod patience;
mod peer;
mod problem;
mod room;
mod route;
mod s3;
mod series;
mod serve;
mod server;
mod settings;
mod shared;
#[cfg(feature = "otlp")]
pub mod telemetry;
mod tls;
mod watch;
mod wire;
mod words;

pub use auth::{Auth, Scope};
pub use credentials::Credentials;
pub use error::Error;
pub use observe::Metrics;
pub use problem::{Code, FieldProblem, FieldProblems, Problem};
pub use room::BodyBounds;
pub use s3::S3Keys;
pub use serve::Running;
pub use server::{Builder, Server};
pub use settings::Settings;
pub use tls::Tls;
pub use wigwag_hub::key::UNREADABLE as UNREADABLE_MESSAGES;
pub use wigwag_hub::{Rate, Settings as HubSettings};
