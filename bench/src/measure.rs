//! Latencies, rates and CPU time of a load.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// Results of one load.
#[derive(Clone, Debug, Default)]
pub(crate) struct Load {
    pub(crate) latencies: Vec<Duration>,
    pub(crate) puts: u64,
    pub(crate) elapsed: Duration,
    pub(crate) cpu: Duration,
}

/// The same as figures.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Figures {
    pub(crate) commits_per_s: f64,
    pub(crate) puts_per_s: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) cpu_us_per_put: f64,
}

/// Results of one load, counted in runs: a latency is that of a whole run.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct RunFigures {
    pub(crate) runs_per_s: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) cpu_us_per_run: f64,
}

/// Distribution of some durations.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Spread {
    pub(crate) mean_ms: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) max_ms: f64,
}

impl Spread {
    #[expect(clippy::cast_precision_loss, reason = "counts of a benchmark are far below 2^53")]
    pub(crate) fn of(spans: &mut [Duration]) -> Self {
        spans.sort_unstable();
        let sum: f64 = spans.iter().map(Duration::as_secs_f64).sum();
        let max = spans.last().copied().unwrap_or_default();
        Self {
            mean_ms: sum * 1e3 / spans.len().max(1) as f64,
            p50_ms: at(spans, 0.50),
            p99_ms: at(spans, 0.99),
            max_ms: max.as_secs_f64() * 1e3,
        }
    }
}

/// Returns the quantile of the sorted durations, in milliseconds.
#[expect(clippy::cast_precision_loss, reason = "counts of a benchmark are far below 2^53")]
fn at(sorted: &[Duration], share: f64) -> f64 {
    let place = (sorted.len() as f64 * share) as usize;
    sorted.get(place).map_or(0.0, |span| span.as_secs_f64() * 1e3)
}

impl Load {
    pub(crate) fn add(&mut self, other: Self) {
        self.latencies.extend(other.latencies);
        self.puts += other.puts;
        self.elapsed += other.elapsed;
        self.cpu += other.cpu;
    }

    #[expect(clippy::cast_precision_loss, reason = "counts of a benchmark are far below 2^53")]
    pub(crate) fn figures(&mut self) -> Figures {
        self.latencies.sort_unstable();
        let seconds = self.elapsed.as_secs_f64();
        Figures {
            commits_per_s: self.latencies.len() as f64 / seconds,
            puts_per_s: self.puts as f64 / seconds,
            p50_ms: at(&self.latencies, 0.50),
            p99_ms: at(&self.latencies, 0.99),
            cpu_us_per_put: self.cpu.as_secs_f64() * 1e6 / self.puts as f64,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "counts of a benchmark are far below 2^53")]
    pub(crate) fn runs(&mut self) -> RunFigures {
        self.latencies.sort_unstable();
        let runs = self.latencies.len() as f64;
        RunFigures {
            runs_per_s: runs / self.elapsed.as_secs_f64(),
            p50_ms: at(&self.latencies, 0.50),
            p99_ms: at(&self.latencies, 0.99),
            cpu_us_per_run: self.cpu.as_secs_f64() * 1e6 / runs,
        }
    }
}

/// Measures the time and CPU of this process from its creation to [`Span::end`].
#[derive(Debug)]
pub(crate) struct Span {
    began: Instant,
    cpu: Duration,
}

impl Span {
    pub(crate) fn begin() -> Self {
        Self { began: Instant::now(), cpu: cpu() }
    }

    pub(crate) fn end(self, latencies: Vec<Duration>, puts: u64) -> Load {
        Load { latencies, puts, elapsed: self.began.elapsed(), cpu: cpu() - self.cpu }
    }
}

fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}
