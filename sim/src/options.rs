//! Options of one simulated world, and the search for the smallest world that violates the same guarantee.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use wigwag_core::mutation::Mutation;

use crate::world::{Outcome, simulate};

/// Length of the faulty phase, unless `--trouble` shortens it.
pub const TROUBLE: Duration = Duration::from_secs(60);

/// Options of one simulated world.
#[derive(Clone, Debug)]
pub struct Options {
    /// Source of every random decision.
    pub seed: u64,
    /// Deliberate bug in the engine.
    pub mutation: Option<Mutation>,
    /// Parts of the world that are left out.
    pub without: BTreeSet<Ingredient>,
    /// Length of the faulty phase.
    pub trouble: Duration,
    /// Size of the engine's limits.
    pub limits: LimitsChoice,
    /// Whether every store operation is written to the trace.
    pub traced: bool,
}

impl Options {
    /// Options for the complete world of a seed.
    #[must_use]
    pub fn seed(seed: u64) -> Self {
        let (without, limits) = (BTreeSet::new(), LimitsChoice::Mixed);
        Self { seed, mutation: None, without, trouble: TROUBLE, limits, traced: false }
    }

    /// Adds a deliberate bug to the engine.
    #[must_use]
    pub fn mutated(mut self, mutation: impl Into<Option<Mutation>>) -> Self {
        self.mutation = mutation.into();
        self
    }

    /// Sets the size of the engine's limits.
    #[must_use]
    pub fn limits(mut self, limits: LimitsChoice) -> Self {
        self.limits = limits;
        self
    }

    /// Writes every store operation to the trace.
    #[must_use]
    pub fn traced(mut self) -> Self {
        self.traced = true;
        self
    }

    /// Whether the world has this ingredient.
    #[must_use]
    pub fn has(&self, ingredient: Ingredient) -> bool {
        !self.without.contains(&ingredient)
    }

    /// Whether the limits of this world are drawn from the seed. Three of four seeds draw them by default.
    #[must_use]
    pub fn draws_limits(&self) -> bool {
        match self.limits {
            LimitsChoice::Real => false,
            LimitsChoice::Drawn => true,
            LimitsChoice::Mixed => fastrand::Rng::with_seed(self.seed ^ 0x11A1).u32(..4) > 0,
        }
    }

    /// Returns the command that reproduces the world.
    #[must_use]
    pub fn command(&self) -> String {
        let limits = if self.draws_limits() { LimitsChoice::Drawn } else { LimitsChoice::Real };
        let mut command = format!("cargo run --release -p wigwag-sim -- --seed {} --limits {limits}", self.seed);
        if let Some(mutation) = self.mutation {
            command.push_str(&format!(" --mutation {mutation:?}"));
        }
        if self.trouble != TROUBLE {
            command.push_str(&format!(" --trouble {}", self.trouble.as_secs()));
        }
        if !self.without.is_empty() {
            let names: Vec<String> = self.without.iter().map(ToString::to_string).collect();
            command.push_str(&format!(" --without {}", names.join(",")));
        }
        command
    }
}

/// Size of the engine's limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LimitsChoice {
    /// The seed decides whether they are drawn.
    #[default]
    Mixed,
    /// Small limits, drawn from the seed.
    Drawn,
    /// The limits of production builds.
    Real,
}

impl LimitsChoice {
    const NAMED: [(Self, &str); 3] = [(Self::Mixed, "mixed"), (Self::Drawn, "drawn"), (Self::Real, "real")];
}

impl fmt::Display for LimitsChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(Self::NAMED.iter().find(|(choice, _)| choice == self).map_or("?", |(_, name)| name))
    }
}

impl FromStr for LimitsChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::NAMED.into_iter().find(|(_, name)| *name == text).map(|(choice, _)| choice);
        known.ok_or_else(|| format!("want `mixed`, `drawn` or `real`, got: `{text}`"))
    }
}

/// Number of runs that `--without run-N` can name.
pub const RUNS_MAX: u8 = 8;

macro_rules! ingredients {
    ($($name:ident = $text:literal,)*) => {
        /// A part of the world that can be left out: a fault, an actor, a kind of limit, or a run.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[expect(missing_docs, reason = "the name says it")]
        pub enum Ingredient {
            $($name,)*
            Run(u8),
        }

        impl Ingredient {
            const NAMED: &[(Self, &str)] = &[$((Self::$name, $text),)*];
        }
    };
}

ingredients! {
    Deaths = "deaths",
    Stalls = "stalls",
    Refusals = "refusals",
    LostAnswers = "lost-answers",
    LostRequests = "lost-requests",
    LateWrites = "late-writes",
    SlowOperations = "slow-operations",
    SlowPuts = "slow-puts",
    Skew = "skew",
    ClockSteps = "clock-steps",
    Absence = "absence",
    Operators = "operators",
    ControlBursts = "control-bursts",
    SignalBursts = "signal-bursts",
    Deploys = "deploys",
    Sweeper = "sweeper",
    Retention = "retention",
    Damage = "damage",
    Rivals = "rivals",
    FewEvents = "few-events",
    SmallEntries = "small-entries",
    SmallPayloads = "small-payloads",
    SmallSnapshots = "small-snapshots",
    SmallBatches = "small-batches",
    SmallBodies = "small-bodies",
    SmallPages = "small-pages",
    FewReads = "few-reads",
    FewWaits = "few-waits",
    FewPoints = "few-points",
    ShortTimes = "short-times",
    WildClocks = "wild-clocks",
    Meddlers = "meddlers",
}

impl Ingredient {
    /// Iterates over all ingredients.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..RUNS_MAX).map(Self::Run).chain(Self::NAMED.iter().map(|(ingredient, _)| *ingredient))
    }

    /// Whether it is a fault of a machine, the network or the store.
    #[must_use]
    pub fn is_fault(self) -> bool {
        use Ingredient::{ClockSteps, Deaths, LateWrites, LostAnswers, LostRequests, Refusals, SlowOperations, Stalls};
        matches!(
            self,
            Deaths | Stalls | Refusals | LostAnswers | LostRequests | LateWrites | SlowOperations | ClockSteps
        )
    }
}

impl fmt::Display for Ingredient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, Self::NAMED.iter().find(|(ingredient, _)| ingredient == self)) {
            (Self::Run(number), _) => write!(f, "run-{number}"),
            (_, named) => f.pad(named.map_or("?", |(_, name)| name)),
        }
    }
}

impl FromStr for Ingredient {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::all().find(|ingredient| ingredient.to_string() == text);
        known.ok_or_else(|| {
            let names: Vec<String> = Self::all().map(|ingredient| ingredient.to_string()).collect();
            format!("no world has `{text}`; leave out any of: {}", names.join(", "))
        })
    }
}

/// Leaves out every ingredient that the world does not need to violate the same guarantee.
#[must_use]
pub fn shrink(options: Options, outcome: Outcome) -> (Options, Outcome) {
    let wanted = outcome.broken.first().map(|breach| breach.promise);
    let mut best = (options, outcome);
    let attempt = |best: &mut (Options, Outcome), options: Options| {
        let outcome = simulate(&options);
        let same = outcome.broken.iter().any(|breach| Some(breach.promise) == wanted);
        if same {
            *best = (options, outcome);
        }
        same
    };
    loop {
        let mut smaller = false;
        for seconds in [4, 8, 16, 32] {
            let trouble = Duration::from_secs(seconds);
            let options = Options { trouble, ..best.0.clone() };
            if trouble < best.0.trouble && attempt(&mut best, options) {
                smaller = true;
                break;
            }
        }
        for ingredient in Ingredient::all().collect::<Vec<_>>() {
            let mut options = best.0.clone();
            smaller |= options.without.insert(ingredient) && attempt(&mut best, options);
        }
        if !smaller {
            return best;
        }
    }
}
