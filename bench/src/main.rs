//! Benchmarks of wigwag with their baselines in the same run. The results are ratios; times depend on the machine.
#![expect(clippy::print_stdout, reason = "its output is its result")]
#![expect(clippy::disallowed_methods, reason = "it measures real time")]

mod bucket;
mod engine;
mod floor;
mod http;
mod hub;
mod measure;
mod store;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

/// Benchmarks of wigwag, with their baselines in the same run.
#[derive(Debug, Parser)]
#[command(name = "wigwag-bench")]
struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Durable commits of the embedded store, compared with the raw speed of the same disk
    ///
    /// Each writer repeats the writes of one run: seven small objects in five commits.
    Store {
        /// Write the figures as JSON to this file too
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// A folder on the disk to measure; a new one below it is created and removed
        #[arg(long, value_name = "DIR", default_value = "target")]
        dir: PathBuf,
        /// Seconds for each measurement; there are three rounds of each
        #[arg(long, value_name = "N", default_value_t = 3)]
        seconds: u64,
        /// Numbers of concurrent writers, one measurement each
        #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [1, 16, 256])]
        writers: Vec<usize>,
        /// Use random ids instead of ids that begin with their creation time
        #[arg(long)]
        random_ids: bool,
    },
    /// The engine on the embedded store, compared with the raw store committing the same batches
    ///
    /// Runs of three steps, durable sleeps, signals, and parked runs. Two threads for the load and the engine; the store
    /// has additional ones.
    Engine {
        /// Write the figures as JSON to this file too
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// A folder on the disk to measure; a new one below it is created and removed
        #[arg(long, value_name = "DIR", default_value = "target")]
        dir: PathBuf,
        /// Seconds for each measurement; there are three rounds of each
        #[arg(long, value_name = "N", default_value_t = 3)]
        seconds: u64,
        /// Park a million runs too, not only ten thousand: takes minutes, and gigabytes of disk
        #[arg(long)]
        long: bool,
        /// Measure only this
        #[arg(long, value_name = "PART")]
        only: Option<engine::Part>,
    },
    /// The server over HTTP, compared with the engine in this process and optionally with Restate
    ///
    /// Runs of three steps and signals by 1 and by 64 clients, ten thousand parked runs, and waiting clients. The
    /// server is a separate process that shares the machine with its clients.
    Http {
        /// Write the figures as JSON to this file too
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// A folder on the disk to measure; new ones below it are created and removed
        #[arg(long, value_name = "DIR", default_value = "target")]
        dir: PathBuf,
        /// Seconds for each measurement; there are three rounds of each
        #[arg(long, value_name = "N", default_value_t = 3)]
        seconds: u64,
        /// Measure Restate too, installed by npm below `target`; its handlers are built
        #[arg(long)]
        restate: bool,
        /// Measure only this
        #[arg(long, value_name = "PART")]
        only: Option<http::Part>,
    },
    /// The hub over WebSocket, compared with a bare relay on the same library and optionally with NATS
    ///
    /// Round trips, acknowledged messages of many pairs, fan-out, memory of idle connections, and stored messages for
    /// absent actors. The server has one core and the load another.
    Hub {
        /// Write the figures as JSON to this file too
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// A folder on the disk to measure; new ones below it are created and removed
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
    /// The engine on a bucket with a delay for each request, with a target for each figure
    ///
    /// Runs, signals and waits in one process and with three workers in separate processes, throughput, and the effect of an
    /// outage. The bucket is a small S3 server in this process.
    Bucket {
        /// Write the figures as JSON to this file too
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// Delay of each request in milliseconds
        #[arg(long, value_name = "N", default_value_t = 15.0)]
        delay_ms: f64,
        /// Seconds for each measurement of throughput
        #[arg(long, value_name = "N", default_value_t = 3)]
        seconds: u64,
        /// Number of samples of each latency
        #[arg(long, value_name = "N", default_value_t = 40)]
        samples: usize,
        /// Length of the outage, and of the measurement of waiters, in seconds
        #[arg(long, value_name = "N", default_value_t = 30)]
        outage_seconds: u64,
        /// Endpoint of a real S3 server with a bucket `wigwag`, such as SeaweedFS; keys come from the environment
        #[arg(long, value_name = "URL")]
        endpoint: Option<String>,
    },
    /// A worker under measurement
    #[command(hide = true)]
    BucketWorker {
        #[arg(long)]
        endpoint: String,
        #[arg(long)]
        prefix: String,
    },
    /// The server under measurement
    #[command(hide = true)]
    HttpServer {
        /// Folder of its store
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
        /// Collect metrics, and serve them at `/metrics`
        #[arg(long)]
        metrics: bool,
    },
    /// The hub under measurement
    #[command(hide = true)]
    HubServer {
        /// Folder of its store
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
    },
    /// The bare relay
    #[command(hide = true)]
    HubRelay,
}

/// Exits with 1 if a figure of the engine or the bucket misses its target.
fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let mut passed = true;
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
            passed = report.passed();
            write_json(json, &report)?;
        }
        What::Http { json, dir, seconds, restate, only } => {
            let wanted = http::Wanted { dir: &dir, span: Duration::from_secs(seconds), restate, only };
            let report = http::run(&wanted).map_err(|error| error as Box<dyn std::error::Error>)?;
            println!("{report}");
            write_json(json, &report)?;
        }
        What::Bucket { json, delay_ms, seconds, samples, outage_seconds, endpoint } => {
            let (span, outage) = (Duration::from_secs(seconds), Duration::from_secs(outage_seconds));
            let delay = Duration::from_secs_f64(delay_ms / 1e3);
            let wanted = bucket::Wanted { delay, span, samples, outage, endpoint };
            let report = bucket::run(&wanted).map_err(|error| error as Box<dyn std::error::Error>)?;
            println!("{report}");
            passed = report.passed();
            write_json(json, &report)?;
        }
        What::BucketWorker { endpoint, prefix } => {
            bucket::work(&endpoint, &prefix).map_err(|error| error as Box<dyn std::error::Error>)?
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
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn write_json(file: Option<PathBuf>, figures: &impl serde::Serialize) -> Result<(), Box<dyn std::error::Error>> {
    if let Some(file) = file {
        std::fs::write(file, serde_json::to_string_pretty(figures)? + "\n")?;
    }
    Ok(())
}
