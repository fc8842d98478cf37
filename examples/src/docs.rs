//! The code blocks of README.md and docs/ as doc tests. Absent from every other build.
//!
//! Holds: each page with a Rust block has a module here; `tidy` checks it.
#![expect(missing_docs, reason = "the pages are the documentation")]

macro_rules! pages {
    ($($name:ident = $path:literal;)*) => {
        $(#[doc = include_str!($path)] pub mod $name {})*
    };
}

pages! {
    readme = "../../README.md";
    approvals = "../../docs/guides/approvals.md";
    fan_out = "../../docs/guides/fan-out.md";
    getting_started = "../../docs/getting-started.md";
    graph_or_function = "../../docs/guides/graph-or-function.md";
    observability = "../../docs/observability.md";
    s3 = "../../docs/s3.md";
    sagas = "../../docs/guides/sagas.md";
    scheduling_and_retries = "../../docs/guides/scheduling-and-retries.md";
    server = "../../docs/server.md";
    signals = "../../docs/signals.md";
    testing = "../../docs/guides/testing.md";
    versioning = "../../docs/guides/versioning.md";
    workflows = "../../docs/workflows.md";
}
