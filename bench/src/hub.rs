//! The hub over WebSocket, compared with a bare relay on the same library and with NATS.

mod crowd;
mod dialect;
mod drain;
mod fan;
mod idle;
mod pairs;
mod relay;
mod server;
mod show;
mod start;
mod wire;

use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use self::dialect::Side;
use self::drain::Drained;
use self::idle::Idle;
use self::pairs::{Done, Rate};
use self::start::{Cores, Nats, Server, Starter};
use crate::engine::Bar;
use crate::http::Result;

pub(crate) use self::relay::serve as relay;
pub(crate) use self::server::run as serve;

/// Parts that can be measured separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// H1: round trips of one pair
    Trips,
    /// H2: many pairs, each message acknowledged
    Pairs,
    /// H3: one publisher, many subscribers
    Fan,
    /// H4: memory of idle connections
    Idle,
    /// H5: messages for absent actors, across a kill
    Drain,
    /// Only H2 on our hub: for a profiler
    Profile,
}

/// Sizes of the loads.
#[derive(Clone, Copy, Debug, Serialize, clap::Args)]
pub(crate) struct Size {
    /// Rounds of each load on each server
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: usize,
    /// Pairs of sender and receiver
    #[arg(long, value_name = "N", default_value_t = 64)]
    pairs: usize,
    /// Messages that a sender has in flight
    #[arg(long, value_name = "N", default_value_t = 64)]
    window: u64,
    /// Subscribers of one topic
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    subscribers: usize,
    /// Idle connections
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    connections: usize,
}

/// Parameters of the benchmark.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) dir: &'a Path,
    pub(crate) span: Duration,
    pub(crate) nats: bool,
    pub(crate) only: Option<Part>,
    pub(crate) size: Size,
}

impl Wanted<'_> {
    fn wants(&self, part: Part) -> bool {
        self.only.map_or(part != Part::Profile, |only| only == part)
    }

    /// Returns the servers to measure, in order.
    fn sides(&self) -> Vec<Side> {
        let nats = self.nats.then_some(Side::Nats);
        [Side::Wigwag, Side::Each, Side::Relay, Side::Enveloped].into_iter().chain(nats).collect()
    }
}

/// All figures of one run of the benchmark.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    size: Size,
    #[serde(skip_serializing_if = "Option::is_none")]
    nats_version: Option<String>,
    loads: Vec<Compared>,
    idle: Vec<Of<Idle>>,
    drained: Vec<Of<Drained>>,
    bars: Vec<Bar>,
}

/// A figure of one server.
#[derive(Debug, Serialize)]
struct Of<T> {
    side: Side,
    #[serde(flatten)]
    figures: T,
}

/// One load on all servers.
#[derive(Debug, Serialize)]
struct Compared {
    what: &'static str,
    sides: Vec<Of<Figures>>,
}

#[derive(Debug, Serialize)]
struct Figures {
    #[serde(flatten)]
    all: Measure,
    /// The median round trip in µs, or the rate per second, for each round.
    rounds: Vec<f64>,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(untagged)]
enum Measure {
    Trip { p50_us: f64, p99_us: f64 },
    Rate(Rate),
}

impl Measure {
    /// Returns the value by which servers are compared.
    const fn value(&self) -> f64 {
        match self {
            Self::Trip { p50_us, .. } => *p50_us,
            Self::Rate(rate) => rate.per_s,
        }
    }
}

/// Results of a load, in one round or in all.
#[derive(Clone, Debug)]
enum Sample {
    Trips(Vec<Duration>),
    Done(Done),
}

impl Sample {
    fn add(&mut self, other: Self) {
        match (self, other) {
            (Self::Trips(all), Self::Trips(more)) => all.extend(more),
            (Self::Done(all), Self::Done(more)) => all.add(more),
            _ => unreachable!("a load gives the same kind each time"),
        }
    }

    fn measure(&mut self) -> Measure {
        match self {
            Self::Trips(trips) => {
                trips.sort_unstable();
                let at = |percent: usize| {
                    trips.get(trips.len() * percent / 100).map_or(0.0, |trip| trip.as_secs_f64() * 1e6)
                };
                Measure::Trip { p50_us: at(50), p99_us: at(99) }
            }
            Self::Done(done) => Measure::Rate(done.rate()),
        }
    }
}

struct Load {
    part: Part,
    what: &'static str,
    run: fn(&Server, &Wanted<'_>) -> Result<Sample>,
}

const LOADS: [Load; 5] = [
    Load {
        part: Part::Trips,
        what: "H1, tell",
        run: |server, wanted| Ok(Sample::Trips(pairs::trips(server, false, wanted.span)?)),
    },
    Load {
        part: Part::Trips,
        what: "H1, ask",
        run: |server, wanted| Ok(Sample::Trips(pairs::trips(server, true, wanted.span)?)),
    },
    Load {
        part: Part::Pairs,
        what: "H2",
        run: |server, wanted| {
            let Size { pairs, window, .. } = wanted.size;
            Ok(Sample::Done(pairs::windows(server, pairs, window, wanted.span)?))
        },
    },
    Load {
        part: Part::Fan,
        what: "H3, 1 in flight",
        run: |server, wanted| Ok(Sample::Done(fan::out(server, wanted.size.subscribers, 1, wanted.span)?)),
    },
    Load {
        part: Part::Fan,
        what: "H3, 16 in flight",
        run: |server, wanted| Ok(Sample::Done(fan::out(server, wanted.size.subscribers, 16, wanted.span)?)),
    },
];

pub(crate) fn run(wanted: &Wanted<'_>) -> Result<Report> {
    std::fs::create_dir_all(wanted.dir)?;
    let nats = wanted.nats.then(Nats::install).transpose()?;
    let nats_version = nats.as_ref().map(|nats| nats.version.clone());
    let starter = Starter { cores: Cores::take()?, nats };
    let mut report = Report {
        size: wanted.size,
        nats_version,
        loads: Vec::new(),
        idle: Vec::new(),
        drained: Vec::new(),
        bars: Vec::new(),
    };
    if wanted.wants(Part::Profile) {
        report.loads = vec![profile(wanted, &starter)?];
    }
    report.loads.extend(loads(wanted, &starter)?);
    if wanted.wants(Part::Idle) {
        report.idle = idle(wanted, &starter)?;
    }
    if wanted.wants(Part::Drain) {
        report.drained = drained(wanted, &starter)?;
    }
    report.bars = report.bars();
    Ok(report)
}

/// Runs one server alone, in a separate folder that is removed with it.
fn with_server<T>(
    wanted: &Wanted<'_>,
    starter: &Starter,
    side: Side,
    measure: impl FnOnce(&Server) -> Result<T>,
) -> Result<T> {
    let folder = tempfile::tempdir_in(wanted.dir)?;
    let server = starter.start(side, folder.path())?;
    measure(&server).map_err(|error| format!("{}: {error}", side.title()).into())
}

fn profile(wanted: &Wanted<'_>, starter: &Starter) -> Result<Compared> {
    let [_, _, load, ..] = &LOADS;
    let mut sample = with_server(wanted, starter, Side::Wigwag, |server| (load.run)(server, wanted))?;
    let figures = Figures { all: sample.measure(), rounds: Vec::new() };
    Ok(Compared { what: load.what, sides: vec![Of { side: Side::Wigwag, figures }] })
}

/// Measures each server alone, alternating, so that none idles while another is measured and a slow minute affects all.
fn loads(wanted: &Wanted<'_>, starter: &Starter) -> Result<Vec<Compared>> {
    let loads: Vec<&Load> = LOADS.iter().filter(|load| wanted.wants(load.part)).collect();
    let mut rounds: Vec<Vec<(Side, Vec<Sample>)>> =
        loads.iter().map(|load| sides_of(wanted, load).map(|side| (side, Vec::new())).collect()).collect();
    for _ in 0..wanted.size.rounds {
        for (load, sides) in loads.iter().zip(&mut rounds) {
            for (side, samples) in sides {
                samples.push(with_server(wanted, starter, *side, |server| (load.run)(server, wanted))?);
            }
        }
    }
    let compared = loads.iter().zip(rounds).map(|(load, sides)| {
        let sides = sides.into_iter().filter_map(|(side, samples)| Some(Of { side, figures: figures(samples)? }));
        Compared { what: load.what, sides: sides.collect() }
    });
    Ok(compared.collect())
}

/// The variant with long frames is meaningful where bytes dominate the cost, and single acknowledgements where there are many.
fn sides_of(wanted: &Wanted<'_>, load: &Load) -> impl Iterator<Item = Side> {
    let part = load.part;
    wanted.sides().into_iter().filter(move |side| !side.is_variant() || part == Part::Pairs)
}

fn figures(mut samples: Vec<Sample>) -> Option<Figures> {
    let rounds = samples.iter_mut().map(|sample| sample.measure().value()).collect();
    let mut samples = samples.into_iter();
    let mut all = samples.next()?;
    samples.for_each(|sample| all.add(sample));
    Some(Figures { all: all.measure(), rounds })
}

fn idle(wanted: &Wanted<'_>, starter: &Starter) -> Result<Vec<Of<Idle>>> {
    let mut all = Vec::new();
    for side in wanted.sides().into_iter().filter(|side| !side.is_variant()) {
        for named in [false, true] {
            let measure = |server: &Server| idle::measure(server, wanted.size.connections, named);
            all.push(Of { side, figures: with_server(wanted, starter, side, measure)? });
        }
    }
    Ok(all)
}

/// Measures the drain; the relay is left out, because it stores no messages.
fn drained(wanted: &Wanted<'_>, starter: &Starter) -> Result<Vec<Of<Drained>>> {
    let mut all = Vec::new();
    for side in wanted.sides().into_iter().filter(|side| matches!(side, Side::Wigwag | Side::Nats)) {
        for targets in [1, 10] {
            let folder = tempfile::tempdir_in(wanted.dir)?;
            all.push(Of { side, figures: drain::measure(starter, side, folder.path(), targets)? });
        }
    }
    Ok(all)
}

impl Report {
    /// Returns our figure as a multiple of another server's: the median over the rounds.
    fn ratio(&self, what: &str, side: Side) -> Option<f64> {
        let load = self.loads.iter().find(|load| load.what == what)?;
        let rounds = |side| load.sides.iter().find(|of| of.side == side).map(|of| &of.figures.rounds);
        let mut ratios: Vec<f64> =
            rounds(Side::Wigwag)?.iter().zip(rounds(side)?).map(|(ours, theirs)| ours / theirs).collect();
        ratios.sort_by(f64::total_cmp);
        ratios.get(ratios.len() / 2).copied()
    }

    fn bars(&self) -> Vec<Bar> {
        let mut bars = Vec::new();
        let mut at_least = |name, what, side, wanted| {
            bars.extend(self.ratio(what, side).map(|value| Bar::at_least(name, value, wanted)));
        };
        at_least("H2: acked messages/s / the bare relay's", "H2", Side::Relay, 0.6);
        at_least("H2: acked messages/s / NATS's", "H2", Side::Nats, 1.0);
        at_least("H3, 1 in flight: deliveries/s / NATS's", "H3, 1 in flight", Side::Nats, 1.0);
        at_least("H3, 16 in flight: deliveries/s / NATS's", "H3, 16 in flight", Side::Nats, 1.0);
        let trip = self.ratio("H1, tell", Side::Nats);
        bars.extend(trip.map(|value| Bar::at_most("H1: round trip, p50 / NATS's", value, 1.0)));
        let ours = self.idle.iter().filter(|of| of.side == Side::Wigwag);
        bars.extend(ours.map(|of| match of.figures.named {
            false => Bar::at_most("H4: KiB of an idle connection", of.figures.kib_each, 16.0),
            true => Bar::at_most("H4: KiB of one with an address", of.figures.kib_each, 16.0),
        }));
        bars
    }
}
