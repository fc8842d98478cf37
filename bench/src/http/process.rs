//! A measured process: started, observed from outside, and killed with this process.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use wigwag_store::{Clock as _, System};

use super::Result;

/// Timeout until a process prints its address, or has ended.
const PATIENCE: Duration = Duration::from_secs(60);

/// An idle process uses less than this share of a core.
const REST_SHARE: f64 = 0.03;

/// Time over which the share is measured.
const REST_SPAN: Duration = Duration::from_secs(1);

/// Timeout until a process is idle.
const REST_MAX: Duration = Duration::from_secs(120);

/// A child process, which is killed on drop.
#[derive(Debug)]
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let started = command.stdin(Stdio::piped()).spawn();
        Ok(Self(started.map_err(|error| format!("`{name}` does not start: {error}"))?))
    }

    /// Starts it, and reads its listening address from the first line of its output.
    pub(crate) fn listening(command: &mut Command) -> Result<(Self, SocketAddr)> {
        let mut process = Self::start(command.stdout(Stdio::piped()))?;
        let output = process.0.stdout.take().ok_or("a process without an output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let addr = line.trim().strip_prefix("listening ").ok_or_else(|| format!("it did not start: {line}"))?;
        Ok((process, addr.parse()?))
    }

    /// Returns the CPU time that it has used so far.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id()))?;
        // The name, in parentheses, may contain any character; the following fields do not.
        let fields = stat.rsplit_once(") ").ok_or("a process without a name")?.1;
        let ticks = |place: usize| -> Result<u64> { Ok(fields.split(' ').nth(place).unwrap_or_default().parse()?) };
        let per_second = rustix::param::clock_ticks_per_second();
        Ok(Duration::from_micros((ticks(11)? + ticks(12)?) * 1_000_000 / per_second))
    }

    /// Returns its resident and anonymous memory.
    pub(crate) fn memory(&self) -> Result<Memory> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id()))?;
        let kib = |name: &str| -> Result<f64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).ok_or("a process without memory")?;
            Ok(line.trim().trim_end_matches("kB").trim().parse()?)
        };
        Ok(Memory { resident_mb: kib("VmRSS:")? * 1_024.0 / 1e6, anonymous_mb: kib("RssAnon:")? * 1_024.0 / 1e6 })
    }

    /// Asks it to end, and waits until it has ended.
    pub(crate) async fn stop(mut self) -> Result<()> {
        if let Some(pid) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            kill_process(pid, Signal::TERM)?;
        }
        let end = Instant::now() + PATIENCE;
        while self.0.try_wait()?.is_none() {
            if Instant::now() > end {
                return Err("a server does not end on request".into());
            }
            System.sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Killing fails if the process has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Memory of a process.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub(crate) struct Memory {
    pub(crate) resident_mb: f64,
    pub(crate) anonymous_mb: f64,
}

/// Waits until these processes are idle.
pub(crate) async fn rest(processes: &[&Process]) -> Result<()> {
    let used = || -> Result<f64> { processes.iter().map(|process| Ok(process.cpu()?.as_secs_f64())).sum() };
    let end = Instant::now() + REST_MAX;
    while Instant::now() < end {
        let before = used()?;
        System.sleep(REST_SPAN).await;
        if used()? - before <= REST_SHARE * REST_SPAN.as_secs_f64() {
            return Ok(());
        }
    }
    Err(format!("a server did not come to rest within {REST_MAX:?}").into())
}

/// Raises the limit on open files to the maximum. Returns the limit.
pub(crate) fn raise_files() -> Result<u64> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    Ok(maximum.unwrap_or(u64::MAX))
}
