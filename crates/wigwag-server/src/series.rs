//! Metrics of the last hour, sampled every ten seconds from the metrics of the process.
//!
//! Holds: a sample costs one reading of the process's own counters and no request to the store.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use wigwag_store::{Clock as _, System, Usage};

/// Time between two samples.
pub(crate) const STEP: Duration = Duration::from_secs(10);

/// Samples that are kept: an hour.
const KEPT: usize = 361;

/// Counters as they were at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    at: u64,
    counters: BTreeMap<String, f64>,
    /// Cumulative counts of HTTP requests by upper bound of their time.
    buckets: Vec<(f64, f64)>,
    usage: Option<Usage>,
}

/// Samples of the last hour.
#[derive(Debug, Default)]
pub(crate) struct Series(Mutex<VecDeque<Sample>>);

/// One step of the series; rates are per second.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Step {
    at: String,
    runs_started: f64,
    runs_completed: f64,
    runs_failed: f64,
    steps: f64,
    signals: f64,
    http: f64,
    /// Median of the request time in milliseconds; absent without requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    http_p50_ms: Option<f64>,
    /// 99th percentile of the request time in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    http_p99_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    store_gets: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    store_puts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    store_lists: Option<f64>,
}

impl Series {
    /// Adds a sample, unless the last one is younger than a step.
    pub(crate) fn sample(&self, text: &str, usage: Option<Usage>) {
        let at = System.wall().micros();
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_young = |last: &Sample| at.saturating_sub(last.at) < crate::board::micros(STEP) * 9 / 10;
        if samples.back().is_some_and(is_young) {
            return;
        }
        samples.push_back(read(at, text, usage));
        while samples.len() > KEPT {
            samples.pop_front();
        }
    }

    /// Rates between each two samples, the oldest first.
    pub(crate) fn steps(&self) -> Vec<Step> {
        let samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        samples.iter().zip(samples.iter().skip(1)).map(|(from, to)| step(from, to)).collect()
    }
}

/// Parses the displayed counters from the Prometheus text.
fn read(at: u64, text: &str, usage: Option<Usage>) -> Sample {
    let mut sample = Sample { at, usage, ..Sample::default() };
    let mut buckets: BTreeMap<u64, f64> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((name, value)) = line.rsplit_once(' ') else { continue };
        let Ok(value) = value.parse::<f64>() else { continue };
        let plain = name.split('{').next().unwrap_or_default();
        match plain {
            "wigwag_runs_ended_total" => {
                let status = label(name, "status").unwrap_or_default();
                *sample.counters.entry(format!("ended {status}")).or_default() += value;
            }
            "wigwag_runs_started_total"
            | "wigwag_steps_total"
            | "wigwag_signals_received_total"
            | "wigwag_http_requests_total" => {
                *sample.counters.entry(plain.to_owned()).or_default() += value;
            }
            "wigwag_http_request_seconds_bucket" => {
                // The time of a long-poll is chosen by its client and says nothing about the server.
                let is_slow_by_design =
                    name.contains("/wait\"") || name.contains("/result\"") || name.contains("/events\"");
                let bound =
                    label(name, "le").and_then(|bound| bound.parse::<f64>().ok()).filter(|bound| bound.is_finite());
                if let Some(bound) = bound.filter(|_| !is_slow_by_design) {
                    *buckets.entry(bound.to_bits()).or_default() += value;
                }
            }
            _ => {}
        }
    }
    sample.buckets = buckets.into_iter().map(|(bound, count)| (f64::from_bits(bound), count)).collect();
    sample
}

fn label<'a>(name: &'a str, label: &str) -> Option<&'a str> {
    let (_, rest) = name.split_once(&format!("{label}=\""))?;
    rest.split('"').next()
}

#[expect(clippy::cast_precision_loss, reason = "rates are floats")]
fn step(from: &Sample, to: &Sample) -> Step {
    let seconds = (to.at.saturating_sub(from.at) as f64 / 1e6).max(1e-3);
    let count = |sample: &Sample, name: &str| sample.counters.get(name).copied().unwrap_or_default();
    let rate = |name: &str| ((count(to, name) - count(from, name)) / seconds).max(0.0);
    let usage = from.usage.zip(to.usage).map(|(from, to)| to.since(&from));
    let used = |pick: fn(&Usage) -> u64| usage.as_ref().map(|usage| pick(usage) as f64 / seconds);
    Step {
        at: wigwag::Time::from_micros(to.at).to_string(),
        runs_started: rate("wigwag_runs_started_total"),
        runs_completed: rate("ended completed"),
        runs_failed: rate("ended failed"),
        steps: rate("wigwag_steps_total"),
        signals: rate("wigwag_signals_received_total"),
        http: rate("wigwag_http_requests_total"),
        http_p50_ms: quantile(from, to, 0.5),
        http_p99_ms: quantile(from, to, 0.99),
        store_gets: used(|usage| usage.gets),
        store_puts: used(|usage| usage.puts),
        store_lists: used(|usage| usage.lists),
    }
}

/// Upper bound of the time that a share of the requests took, from cumulative counts.
fn quantile(from: &Sample, to: &Sample, share: f64) -> Option<f64> {
    let before = |bound: f64| from.buckets.iter().find(|(known, _)| *known == bound).map_or(0.0, |(_, count)| *count);
    let added: Vec<(f64, f64)> = to.buckets.iter().map(|(bound, count)| (*bound, count - before(*bound))).collect();
    let total = added.last().map(|(_, count)| *count).filter(|total| *total > 0.0)?;
    added.iter().find(|(_, count)| *count >= total * share).map(|(bound, _)| bound * 1_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "# HELP x\nwigwag_runs_started_total 10\nwigwag_runs_ended_total{status=\"failed\"} 1\n\
        wigwag_http_request_seconds_bucket{method=\"GET\",route=\"/v1/runs\",le=\"0.01\"} 5\n\
        wigwag_http_request_seconds_bucket{method=\"GET\",route=\"/v1/runs\",le=\"0.1\"} 6\n";
    const AFTER: &str = "wigwag_runs_started_total 30\nwigwag_runs_ended_total{status=\"failed\"} 2\n\
        wigwag_http_request_seconds_bucket{method=\"GET\",route=\"/v1/runs\",le=\"0.01\"} 14\n\
        wigwag_http_request_seconds_bucket{method=\"GET\",route=\"/v1/runs\",le=\"0.1\"} 16\n\
        wigwag_http_request_seconds_bucket{method=\"GET\",route=\"/v1/runs/{id}/wait\",le=\"0.1\"} 900\n";

    #[test]
    fn counters_become_rates_and_quantiles() {
        let (from, to) = (read(0, BEFORE, None), read(10_000_000, AFTER, None));
        let found = step(&from, &to);
        assert_eq!((found.runs_started, found.runs_failed, found.runs_completed), (2.0, 0.1, 0.0));
        assert_eq!((found.http_p50_ms, found.http_p99_ms), (Some(10.0), Some(100.0)));
        assert_eq!(found.store_gets, None);
    }

    #[test]
    fn a_process_that_starts_anew_has_no_negative_rates() {
        let found = step(&read(0, AFTER, None), &read(10_000_000, BEFORE, None));
        assert_eq!((found.runs_started, found.http_p50_ms), (0.0, None));
    }
}
