//! Measures wigwag beside what it stands on, in one run. Ratios are the result; times are of the machine.
#![expect(clippy::print_stdout, reason = "its output is its result")]
#![expect(clippy::disallowed_methods, reason = "it measures real time")]

mod engine;
mod floor;
mod http;
mod hub;
mod measure;
mod store;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};

/// Measures wigwag beside what it stands on, in one run.
#[derive(Debug, Parser)]
#[command(name = "wigwag-bench")]
struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Durable commits of the embedded store, beside the floor of the same disk
    ///
    /// Each writer repeats the writes of one run: seven small objects in five commits.
    Store {
        /// Write the figures as JSON to this file too
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// A folder on the disk to measure; a new one below it is made and removed
        #[arg(long, value_name = "DIR", default_value = "target")]
        dir: PathBuf,
        /// Seconds for each measurement; there are three rounds of each
        #[arg(long, value_name = "N", default_value_t = 3)]
        seconds: u64,
        /// How many writers at once, one measurement each
        #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [1, 16, 256])]
        writers: Vec<usize>,
        /// Make ids that begin with chance instead of the time of their making
        #[arg(long)]
        random_ids: bool,
    },
    /// The engine on the embedded store, beside the bare store committing the very same batches
    ///
    /// Runs of three steps, durable sleeps, signals, and parked runs. Two threads for the load and the engine; the store
    /// has its own.
    Engine {
        /// Write the figures as JSON to this file too
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// A folder on the disk to measure; a new one below it is made and removed
        #[arg(long, value_name = "DIR", default_value = "target")]
        dir: PathBuf,
        /// Seconds for each measurement; there are three rounds of each
        #[arg(long, value_name = "N", default_value_t = 3)]
        seconds: u64,
        /// Park a million runs too, beside ten thousand: takes minutes, and gigabytes of disk
        #[arg(long)]
        long: bool,
        /// Measure only this
        #[arg(long, value_name = "PART")]
        only: Option<engine::Part>,
    },
    /// The server over HTTP, beside the engine in this process and, if wanted, beside Restate
    ///
    /// Runs of three steps and signals by 1 and by 64 clients, ten thousand parked runs, and those who only wait. The
    /// server is a process of its own; it shares the machine with its clients.
    Http {
        /// Write the figures as JSON to this file too
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// A folder on the disk to measure; new ones below it are made and removed
        #[arg(long, value_name = "DIR", default_value = "target")]
        dir: PathBuf,
        /// Seconds for each measurement; there are three rounds of each
        #[arg(long, value_name = "N", default_value_t = 3)]
        seconds: u64,
        /// Measure Restate too, installed by npm below `target` and with handlers that are built for it
        #[arg(long)]
        restate: bool,
        /// Measure only this
        #[arg(long, value_name = "PART")]
        only: Option<http::Part>,
    },
    /// The hub over WebSocket, beside a bare relay on the same library and, if wanted, beside NATS
    ///
    /// Round trips, acknowledged messages of many pairs, fan-out, memory of idle connections, and what is stored for those
    /// who are away. The server has one core and the load another.
    Hub {
        /// Write the figures as JSON to this file too
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// A folder on the disk to measure; new ones below it are made and removed
        #[arg(long, value_name = "DIR", default_value = "target")]
        dir: PathBuf,
        /// Seconds for each measurement
        #[arg(long, value_name = "N", default_value_t = 3.0)]
        seconds: f64,
        /// Measure NATS too, installed by pip below `target`
        #[arg(long)]
        nats: bool,
        /// Measure only this
        #[arg(long, value_name = "PART")]
        only: Option<hub::Part>,
        #[command(flatten)]
        size: hub::Size,
    },
    /// The server that is measured
    #[command(hide = true)]
    HttpServer {
        /// Where its store is
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
        /// Count what it does, and show it at `/metrics`
        #[arg(long)]
        metrics: bool,
    },
    /// The hub that is measured
    #[command(hide = true)]
    HubServer {
        /// Where its store is
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
    },
    /// The bare relay beside it
    #[command(hide = true)]
    HubRelay,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    match Args::parse().what {
        What::Store { json, dir, seconds, writers, random_ids } => {
            let ids = if random_ids { store::Ids::Random } else { store::Ids::Timed };
            let figures = store::run(&dir, Duration::from_secs(seconds), &writers, ids)?;
            println!("{figures}");
            write_json(json, &figures)?;
        }
        What::Engine { json, dir, seconds, long, only } => {
            let report = engine::run(&dir, Duration::from_secs(seconds), long, only)?;
            println!("{report}");
            write_json(json, &report)?;
        }
        What::Http { json, dir, seconds, restate, only } => {
            let wanted = http::Wanted { dir: &dir, span: Duration::from_secs(seconds), restate, only };
            let report = http::run(&wanted).map_err(|error| error as Box<dyn std::error::Error>)?;
            println!("{report}");
            write_json(json, &report)?;
        }
        What::HttpServer { dir, metrics } => {
            http::serve(&dir, metrics).map_err(|error| error as Box<dyn std::error::Error>)?
        }
        What::Hub { json, dir, seconds, nats, only, size } => {
            let wanted = hub::Wanted { dir: &dir, span: Duration::from_secs_f64(seconds), nats, only, size };
            let report = hub::run(&wanted).map_err(|error| error as Box<dyn std::error::Error>)?;
            println!("{report}");
            write_json(json, &report)?;
        }
        What::HubServer { dir } => hub::serve(&dir).map_err(|error| error as Box<dyn std::error::Error>)?,
        What::HubRelay => hub::relay().map_err(|error| error as Box<dyn std::error::Error>)?,
    }
    Ok(())
}

fn write_json(file: Option<PathBuf>, figures: &impl serde::Serialize) -> Result<(), Box<dyn std::error::Error>> {
    if let Some(file) = file {
        std::fs::write(file, serde_json::to_string_pretty(figures)? + "\n")?;
    }
    Ok(())
}
