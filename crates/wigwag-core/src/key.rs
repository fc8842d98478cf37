//! Builds and parses every object key.
//!
//! Holds: lexical order equals the intended order, because every ordered part is one segment of fixed width; no
//! key is another key plus `/…`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Name, Path, Refusal, RunId, Status, Time, TypeName, sha256_u32};

/// Workflows and tasks are both runs; their keys have different prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// A run with any number of steps.
    Workflow,
    /// A run of one step, submitted to a queue.
    Task,
}

/// Identifies a run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunRef {
    /// Workflow or task.
    pub family: Family,
    /// Id of the run.
    pub id: RunId,
}

impl RunRef {
    /// A reference to the workflow run of that id.
    #[must_use]
    pub fn workflow(id: RunId) -> Self {
        Self { family: Family::Workflow, id }
    }

    /// A reference to the task of that id.
    #[must_use]
    pub fn task(id: RunId) -> Self {
        Self { family: Family::Task, id }
    }
}

impl fmt::Display for RunRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = match self.family {
            Family::Workflow => "workflow",
            Family::Task => "task",
        };
        write!(f, "{family}/{}", self.id)
    }
}

impl FromStr for RunRef {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        match text.split_once('/') {
            Some(("workflow", id)) => Ok(Self::workflow(id.parse()?)),
            Some(("task", id)) => Ok(Self::task(id.parse()?)),
            _ => Err(Refusal::new(format!("not a run (want `workflow/ID` or `task/ID`): `{}`", text.escape_debug()))),
        }
    }
}

impl Serialize for RunRef {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RunRef {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A wake-up: "check this run from `due` on". It may be stale; the run itself decides.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hint {
    /// Shard of the index.
    pub shard: u16,
    /// Time of the check.
    pub due: Time,
    /// Eight hexadecimal digits of the SHA-256 of the type, so that a worker can skip types that it
    /// did not register.
    pub kind: String,
    /// The run's id; its family follows from the type.
    pub run: RunId,
    /// Makes the key unique.
    pub nonce: String,
}

impl Hint {
    /// The nonce of a wake-up at the end of a lease. It names the worker that holds the lease.
    #[must_use]
    pub fn lease_nonce(owner: &str, count: u64) -> String {
        format!("o.{owner}.{count}")
    }

    /// The worker whose lease this wake-up guards, if it guards one.
    #[must_use]
    pub fn owner(&self) -> Option<&str> {
        self.nonce.strip_prefix("o.")?.rsplit_once('.').map(|(owner, _)| owner)
    }

    /// The same wake-up at a later time: the replacement of one that became due with nothing to do.
    #[must_use]
    pub fn successor(&self, due: Time) -> Self {
        let (line, count) = self.lineage();
        Self { due, nonce: format!("{line}+{}", count.saturating_add(1)), ..self.clone() }
    }

    /// Whether this wake-up is `listed` (a key) or a replacement of it.
    #[must_use]
    pub fn descends_from(&self, listed: &str) -> bool {
        listed.parse::<Key>().is_ok_and(|key| match key {
            Key::Due(listed) => listed.run == self.run && listed.lineage().0 == self.lineage().0,
            _ => false,
        })
    }

    /// Number of times that the wake-up was postponed.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.lineage().1
    }

    fn lineage(&self) -> (&str, u32) {
        match self.nonce.rsplit_once('+') {
            Some((line, count)) => (line, count.parse().unwrap_or(0)),
            None => (&self.nonce, 0),
        }
    }
}

/// The keys of all objects.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Key {
    /// Definition of a workflow. Created once, never changed.
    Definition {
        /// Name of the workflow.
        of: TypeName,
        /// Hash of the content.
        hash: String,
    },
    /// One commit of a run. Created once, never changed (except for the tombstone over the first).
    Entry {
        /// Reference of the run.
        run: RunRef,
        /// Number of the entry, starting at 1.
        seq: u64,
    },
    /// The snapshot: the run folded up to some entry. Replaced from time to time; an optimisation only.
    State {
        /// Reference of the run.
        run: RunRef,
    },
    /// A payload too large for an entry. Written before the entry that names it.
    Blob {
        /// Reference of the run.
        run: RunRef,
        /// The step that it belongs to, as one segment.
        point: String,
        /// Makes the key unique.
        nonce: String,
    },
    /// Settled steps moved out of the snapshot: those that ended in these entries.
    Chunk {
        /// Reference of the run.
        run: RunRef,
        /// The first entry.
        from: u64,
        /// The last entry.
        to: u64,
    },
    /// Outcome of a child, written by the child.
    Child {
        /// Reference of the parent run.
        run: RunRef,
        /// The child's id.
        child: RunId,
    },
    /// A signal in the inbox.
    Signal {
        /// Reference of the run.
        run: RunRef,
        /// The signal's name.
        name: Name,
        /// Time and id.
        suffix: String,
    },
    /// Idempotency key of a sender, with the signal that it created. Created once, never changed.
    Sent {
        /// Reference of the run.
        run: RunRef,
        /// The signal's name.
        name: Name,
        /// SHA-256 of the sender's key, in hexadecimal.
        hash: String,
    },
    /// A control request or late note. Deleted once it is in the log.
    Control {
        /// Reference of the run.
        run: RunRef,
        /// Time and id.
        suffix: String,
    },
    /// A revoked resume link. Removed with its run.
    RevokedLink {
        /// Reference of the run.
        run: RunRef,
        /// The link's id.
        id: String,
    },
    /// A wake-up in the due index.
    Due(Hint),
    /// An open wait in the index of waits.
    Waiting {
        /// The signal's name.
        name: Name,
        /// The run's id.
        run: RunId,
        /// The entry that opened the wait.
        seq: u64,
    },
    /// A run that has not ended. Written before entry 1, deleted at the end.
    Live {
        /// Type of the run.
        of: TypeName,
        /// The run's id.
        run: RunId,
    },
    /// A run that has ended.
    Done {
        /// Time of the end.
        at: Time,
        /// Eight hexadecimal digits of the SHA-256 of the type.
        kind: String,
        /// Final status of the run.
        status: Status,
        /// The run's id.
        run: RunId,
    },
    /// Presence record of a worker.
    Worker {
        /// The worker's id.
        id: String,
    },
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Definition { of, hash } => write!(f, "definition/{of}/{hash}.json"),
            Self::Entry { run, seq } => write!(f, "{run}/log/{seq:010}.json"),
            Self::State { run } => write!(f, "{run}/state.json"),
            Self::Blob { run, point, nonce } => write!(f, "{run}/steps/{point}/{nonce}.json"),
            Self::Chunk { run, from, to } => write!(f, "{run}/chunk/{from:010}-{to:010}.json"),
            Self::Child { run, child } => write!(f, "{run}/children/{child}.json"),
            Self::Signal { run, name, suffix } => write!(f, "{run}/signals/{name}/{suffix}.json"),
            Self::Sent { run, name, hash } => write!(f, "{run}/keys/{name}/{hash}.json"),
            Self::Control { run, suffix } => write!(f, "{run}/signals/.control/{suffix}.json"),
            Self::RevokedLink { run, id } => write!(f, "{run}/links/{id}.json"),
            Self::Due(Hint { shard, due, kind, run, nonce }) => {
                write!(f, "due/{shard:02}/{due}~{kind}~{run}~{nonce}")
            }
            Self::Waiting { name, run, seq } => write!(f, "waiting/{name}/{run}~{seq:010}"),
            Self::Live { of, run } => write!(f, "live/{of}/{run}"),
            Self::Done { at, kind, status, run } => write!(f, "done/{}/{at}~{kind}~{status}~{run}", at.day()),
            Self::Worker { id } => write!(f, "workers/{id}.json"),
        }
    }
}

impl FromStr for Key {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let refused = || Refusal::new(format!("not a key of wigwag: `{}`", text.escape_debug()));
        let parts: Vec<&str> = text.split('/').collect();
        let key = match parts[..] {
            ["definition", of, file] => Self::Definition { of: of.parse()?, hash: json_stem(file)?.into() },
            ["due", shard, rest] => Self::Due(parse_hint(shard, rest).ok_or_else(refused)?),
            ["waiting", name, rest] => {
                let (run, seq) = rest.split_once('~').ok_or_else(refused)?;
                Self::Waiting { name: name.parse()?, run: run.parse()?, seq: number(seq)? }
            }
            ["live", of, run] => Self::Live { of: of.parse()?, run: run.parse()? },
            ["done", _, rest] => parse_done(rest).ok_or_else(refused)?,
            ["workers", file] => Self::Worker { id: json_stem(file)?.into() },
            [family @ ("workflow" | "task"), id, ref rest @ ..] => {
                parse_of_run(format!("{family}/{id}").parse()?, rest)?
            }
            _ => return Err(refused()),
        };
        // Rejects other spellings: each object has exactly one key.
        if key.to_string() == text { Ok(key) } else { Err(refused()) }
    }
}

fn parse_of_run(run: RunRef, rest: &[&str]) -> Result<Key, Refusal> {
    Ok(match *rest {
        ["log", file] => Key::Entry { run, seq: number(json_stem(file)?)? },
        ["state.json"] => Key::State { run },
        ["steps", point, file] => Key::Blob { run, point: point.into(), nonce: json_stem(file)?.into() },
        ["chunk", file] => {
            let (from, to) = json_stem(file)?.split_once('-').unwrap_or_default();
            Key::Chunk { run, from: number(from)?, to: number(to)? }
        }
        ["children", file] => Key::Child { run, child: json_stem(file)?.parse()? },
        ["keys", name, file] => Key::Sent { run, name: name.parse()?, hash: json_stem(file)?.into() },
        ["links", file] => Key::RevokedLink { run, id: json_stem(file)?.into() },
        ["signals", ".control", file] => Key::Control { run, suffix: json_stem(file)?.into() },
        ["signals", name, file] => Key::Signal { run, name: name.parse()?, suffix: json_stem(file)?.into() },
        _ => return Err(Refusal::new(format!("not a key of a run: `{}`", rest.join("/").escape_debug()))),
    })
}

fn parse_hint(shard: &str, rest: &str) -> Option<Hint> {
    let mut parts = rest.splitn(4, '~');
    let (due, kind, run, nonce) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    Some(Hint {
        shard: shard.parse().ok()?,
        due: due.parse().ok()?,
        kind: kind.into(),
        run: run.parse().ok()?,
        nonce: nonce.into(),
    })
}

fn parse_done(rest: &str) -> Option<Key> {
    let mut parts = rest.splitn(4, '~');
    let (at, kind, status, run) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    Some(Key::Done { at: at.parse().ok()?, kind: kind.into(), status: status.parse().ok()?, run: run.parse().ok()? })
}

fn json_stem(file: &str) -> Result<&str, Refusal> {
    file.strip_suffix(".json").ok_or_else(|| Refusal::new(format!("want `.json`, got: `{}`", file.escape_debug())))
}

fn number(text: &str) -> Result<u64, Refusal> {
    text.parse().map_err(|_| Refusal::new(format!("not a number: `{}`", text.escape_debug())))
}

/// Eight hexadecimal digits that represent a type in keys.
#[must_use]
pub fn kind_of(of: &TypeName) -> String {
    format!("{:08x}", sha256_u32(of.as_str()))
}

/// The shard of the due index that holds a run's wake-ups.
#[must_use]
pub fn shard_of(run: &RunId, shards: u16) -> u16 {
    u16::try_from(sha256_u32(run.as_str()) % u32::from(shards.max(1))).expect("less than the number of shards")
}

/// Types of tasks in indexes: the queue and the type.
impl TypeName {
    /// The type under which the tasks of a queue are indexed.
    pub fn of_task(queue: &Name, task: &Self) -> Result<Self, Refusal> {
        Self::new(format!("task:{queue}:{task}"))
    }

    /// Whether this is the indexed type of a task.
    #[must_use]
    pub fn is_task(&self) -> bool {
        self.as_str().starts_with("task:")
    }
}

/// Prefixes of listings.
pub mod prefix {
    use super::{Family, Name, RunRef, Time, TypeName};

    /// All runs of a family.
    #[must_use]
    pub const fn family(family: Family) -> &'static str {
        match family {
            Family::Workflow => "workflow/",
            Family::Task => "task/",
        }
    }

    /// One shard of the due index.
    #[must_use]
    pub fn due(shard: u16) -> String {
        format!("due/{shard:02}/")
    }

    /// The entries of a run.
    #[must_use]
    pub fn log(run: &RunRef) -> String {
        format!("{run}/log/")
    }

    /// The signals and control objects of a run.
    #[must_use]
    pub fn signals(run: &RunRef) -> String {
        format!("{run}/signals/")
    }

    /// The control objects of a run.
    #[must_use]
    pub fn controls(run: &RunRef) -> String {
        format!("{run}/signals/.control/")
    }

    /// The signals of one name.
    #[must_use]
    pub fn inbox(run: &RunRef, name: &Name) -> String {
        format!("{run}/signals/{name}/")
    }

    /// The results of a run's children.
    #[must_use]
    pub fn children(run: &RunRef) -> String {
        format!("{run}/children/")
    }

    /// All objects of a run.
    #[must_use]
    pub fn run(run: &RunRef) -> String {
        format!("{run}/")
    }

    /// Unfinished runs of a type.
    #[must_use]
    pub fn live(of: &TypeName) -> String {
        format!("live/{of}/")
    }

    /// Runs that ended on that day.
    #[must_use]
    pub fn done(day: Time) -> String {
        format!("done/{}/", day.day())
    }

    /// Runs that wait for a signal.
    #[must_use]
    pub fn waiting(name: &Name) -> String {
        format!("waiting/{name}/")
    }
}

/// The segment of a run's large input; no step can have this name.
pub const INPUT_SEGMENT: &str = ".input";

impl Key {
    /// The key of a large payload of a step; without a step, of the run itself.
    #[must_use]
    pub fn blob(run: &RunRef, point: Option<&Path>, nonce: &str) -> Self {
        let point = point.map_or_else(|| INPUT_SEGMENT.into(), Path::as_segment);
        Self::Blob { run: run.clone(), point, nonce: nonce.into() }
    }
}
