//! What is simulated, and what is left out of it: a world that breaks a promise is made as small as it can be.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use wigwag_core::mutation::Mutation;

use crate::world::{Outcome, simulate};

/// How long things go wrong, unless it is cut short.
pub const TROUBLE: Duration = Duration::from_secs(60);

/// What is simulated.
#[derive(Clone, Debug)]
pub struct Options {
    /// Everything is drawn from it.
    pub seed: u64,
    /// A deliberate bug in the engine.
    pub mutation: Option<Mutation>,
    /// What the seed would have, and this world has not.
    pub without: BTreeSet<Ingredient>,
    /// How long things go wrong.
    pub trouble: Duration,
}

impl Options {
    /// All that a seed holds.
    #[must_use]
    pub fn seed(seed: u64) -> Self {
        Self { seed, mutation: None, without: BTreeSet::new(), trouble: TROUBLE }
    }

    /// With a deliberate bug in the engine.
    #[must_use]
    pub fn mutated(mut self, mutation: impl Into<Option<Mutation>>) -> Self {
        self.mutation = mutation.into();
        self
    }

    /// Whether the world has it.
    #[must_use]
    pub fn has(&self, ingredient: Ingredient) -> bool {
        !self.without.contains(&ingredient)
    }

    /// The command that simulates the same world again.
    #[must_use]
    pub fn command(&self) -> String {
        let mut command = format!("cargo run --release -p wigwag-sim -- --seed {}", self.seed);
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

/// Runs are left out by their number, up to this.
pub const RUNS_MAX: u8 = 8;

/// Something that goes wrong, or somebody who does something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "they are what they are called")]
pub enum Ingredient {
    Deaths,
    Stalls,
    Refusals,
    LostAnswers,
    LostRequests,
    LateWrites,
    SlowOperations,
    Skew,
    ClockSteps,
    Operators,
    Deploys,
    Sweeper,
    Retention,
    Rivals,
    Run(u8),
}

impl Ingredient {
    const NAMED: [(Self, &str); 14] = [
        (Self::Deaths, "deaths"),
        (Self::Stalls, "stalls"),
        (Self::Refusals, "refusals"),
        (Self::LostAnswers, "lost-answers"),
        (Self::LostRequests, "lost-requests"),
        (Self::LateWrites, "late-writes"),
        (Self::SlowOperations, "slow-operations"),
        (Self::Skew, "skew"),
        (Self::ClockSteps, "clock-steps"),
        (Self::Operators, "operators"),
        (Self::Deploys, "deploys"),
        (Self::Sweeper, "sweeper"),
        (Self::Retention, "retention"),
        (Self::Rivals, "rivals"),
    ];

    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..RUNS_MAX).map(Self::Run).chain(Self::NAMED.into_iter().map(|(ingredient, _)| ingredient))
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

/// Leaves out of a world all that it does not need to break the same promise.
#[must_use]
pub fn shrink(options: Options, outcome: Outcome) -> (Options, Outcome) {
    let broken = |outcome: &Outcome| outcome.broken.first().map(|what| what.promise);
    let wanted = broken(&outcome);
    let mut best = (options, outcome);
    let attempt = |best: &mut (Options, Outcome), options: Options| {
        let outcome = simulate(&options);
        let same = outcome.broken.iter().any(|what| Some(what.promise) == wanted);
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
