//! What a server logs on standard error, and the spans it sends to a collector.

use std::str::FromStr as _;

use tracing::Level;
use tracing_subscriber::filter::{Targets, filter_fn};
use tracing_subscriber::fmt::time::SystemTime;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, Registry};
use wigwag_server::telemetry::Telemetry;

use crate::error::Failed;

/// Which parts log how much, such as `wigwag=debug,warn`.
const VARIABLE: &str = "WIGWAG_LOG";

/// Begins to log; kept until the end.
pub(super) fn start() -> Result<Telemetry, Failed> {
    let telemetry = Telemetry::from_env()?;
    let lines = tracing_subscriber::fmt::layer::<Registry>().with_writer(std::io::stderr).with_timer(SystemTime);
    let lines = match std::env::var(VARIABLE).ok().filter(|wanted| !wanted.is_empty()) {
        Some(wanted) => lines.with_filter(targets(&wanted)?).boxed(),
        // Disabled spans cost nothing.
        None => lines.with_filter(filter_fn(|of| of.is_event() && *of.level() <= usual(of.target()))).boxed(),
    };
    let spans = telemetry.layer();
    let all = tracing_subscriber::registry().with(lines).with(spans);
    all.try_init().map_err(|error| Failed::new(format!("cannot start logging: {error}")))?;
    Ok(telemetry)
}

fn usual(target: &str) -> Level {
    if target.starts_with("wigwag") { Level::INFO } else { Level::WARN }
}

fn targets(wanted: &str) -> Result<Targets, Failed> {
    Targets::from_str(wanted).map_err(|error| {
        Failed::wrong(format!("invalid `{VARIABLE}`: {error}"))
            .hint("use a filter such as `info` or `wigwag=debug,warn`")
    })
}
