//! Every flag; its help text is the reference.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, Parser, Subcommand};
use wigwag::{Status, Time};

use crate::input;

/// Durable workflows that wait for signals, on nothing but a bucket
#[derive(Debug, Parser)]
#[command(name = "wigwag", version, arg_required_else_help = true, after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    /// Print JSON instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_CODES: &str =
    "Exit codes: 0 done, 1 failed, 2 wrong call, 3 not found, 4 conflict, not running or not waiting.
Data goes to standard output, talk to standard error.";

/// The store of commands that name none.
pub(crate) const DEFAULT_STORE: &str = "./.wigwag";

/// Which store, and how it is reached.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct StoreArgs {
    /// Whether the store was named, by flag or environment
    #[arg(skip)]
    pub(crate) is_given: bool,
    /// The store: `./dir`, `file:dir`, `memory:`, `s3://bucket/prefix`, `gs://…`, `az://…`, or a server's `http://…/s3`
    #[arg(long, global = true, value_name = "URL", env = "WIGWAG_STORE", default_value = DEFAULT_STORE)]
    pub(crate) store: String,
    /// Ask a server instead of a store, such as `http://127.0.0.1:7070`
    #[arg(long, global = true, value_name = "URL", env = "WIGWAG_SERVER", help_heading = "Servers", value_parser = input::server)]
    pub(crate) server: Option<String>,
    /// The token for the server comes from this file; else from `WIGWAG_TOKEN`
    #[arg(long, global = true, value_name = "FILE", help_heading = "Servers")]
    pub(crate) token_file: Option<PathBuf>,
    /// Allow plain `http://` to other machines, which exposes tokens and secrets
    #[arg(long, global = true, env = "WIGWAG_ALLOW_HTTP", help_heading = "Servers")]
    pub(crate) allow_http: bool,
    /// Another server than the provider's own, such as `http://127.0.0.1:9000`
    #[arg(long, global = true, value_name = "URL", env = "WIGWAG_ENDPOINT", help_heading = "Buckets")]
    pub(crate) endpoint: Option<String>,
    /// The region of the bucket
    #[arg(long, global = true, value_name = "NAME", env = "WIGWAG_REGION", help_heading = "Buckets")]
    pub(crate) region: Option<String>,
    /// The profile in the AWS configuration files
    #[arg(long, global = true, value_name = "NAME", help_heading = "Buckets")]
    pub(crate) profile: Option<String>,
    /// The bucket's name stands in the host name instead of the path
    #[arg(long, global = true, help_heading = "Buckets")]
    pub(crate) virtual_hosted: bool,
}

/// What stands where depends on a flag, which a derived usage cannot say.
pub(crate) const SIGNAL_USAGE: &str =
    "wigwag signal [OPTIONS] RUN NAME [PAYLOAD]\n       wigwag signal [OPTIONS] --all-waiting NAME [PAYLOAD]";
const LINK_USAGE: &str = "wigwag link [OPTIONS] RUN NAME --expires <SPAN>\n       wigwag link [OPTIONS] --verify <TOKEN>\n       \
     wigwag link [OPTIONS] --revoke <TOKEN>";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve an embedded store on this machine, to try or develop something
    ///
    /// The API at 127.0.0.1:7070, on the store in `./.wigwag`; what is stored stays. With `--demo` a sample order waits
    /// for an approval, and the lines that let it go on are printed.
    #[command(after_help = "Example:\n  wigwag dev --demo")]
    Dev(Dev),
    /// Serve a store for production
    ///
    /// The API over HTTP, and the services that keep the store tidy. Runs no workflows: workers with their code share
    /// the store. Settings come from flags, then the environment, then `wigwag.toml`. Beyond loopback, behind a proxy or with
    /// a public URL it requires tokens. SIGHUP reloads tokens, keys, certificates and link secrets from the file.
    #[command(
        after_help = "Example:\n  wigwag serve --store s3://orders --bind 0.0.0.0:7070 --config /etc/wigwag.toml"
    )]
    Serve(Serve),
    /// Measure what a store gives
    ///
    /// Real runs of three steps, and of a wait and its signal: one after the other, then many at once. Writes below
    /// `bench/` only, and removes it again. An embedded store that does not exist is made.
    #[command(after_help = "Example:\n  wigwag bench --store s3://orders --span 10s")]
    Bench(Bench),
    /// Make a token for a server
    ///
    /// Prints the token on standard output, and on standard error the lines for `wigwag.toml` by which a server knows
    /// it. Of the token they hold its SHA-256 only.
    #[command(after_help = "Example:\n  wigwag token ci --scope runs:read --scope signals:approval --expires 90d")]
    Token(Token),
    /// Prove that a store keeps its word
    ///
    /// Races writers for the same keys, reads and lists after writes, updates at old versions, and looks at the
    /// clock. Writes below `proof/` only and removes it again. An embedded store that does not exist is made. Then
    /// reads every run: whether its log, snapshot, signals, indexes and hints say what is promised. Exits with 1 if
    /// anything is broken.
    #[command(after_help = "Example:\n  wigwag doctor --store s3://orders --endpoint http://127.0.0.1:9000\n  \
                            wigwag doctor --no-store --limit 1000")]
    Doctor(Doctor),
    /// List keys
    ///
    /// One key a line, in order; with `--json` one object a line.
    #[command(after_help = "Example:\n  wigwag ls workflow/ --long --limit 20")]
    Ls {
        /// Only keys that start with this
        #[arg(default_value = "")]
        prefix: String,
        /// Only keys that sort after this one
        #[arg(long, value_name = "KEY", default_value = "")]
        after: String,
        /// At most this many
        #[arg(long, value_name = "N")]
        limit: Option<usize>,
        /// With size in bytes and time of writing
        #[arg(long, short)]
        long: bool,
    },
    /// Print one object as it is stored
    ///
    /// With `--json` also its key, size and time of writing; a body that is JSON is then put in as it is.
    #[command(after_help = "Example:\n  wigwag cat wigwag.json")]
    Cat {
        /// The object's key
        key: String,
    },
    /// Start a run
    ///
    /// Prints its id once it is durable; a worker that has its code drives it. The same id with the same type and input
    /// is the same run, so that a start may be repeated. An embedded store that does not exist is made.
    #[command(after_help = "Example:\n  wigwag start order '{\"item\": \"kettle\"}' --id order-17 --wait --timeout 5m")]
    Start(Start),
    /// Show how a run is
    ///
    /// What it does or waits for and until when, what failed and when it is tried again, why it is paused and what
    /// helps, what it gave, what it cost. With `--json` its whole state. Also finds tasks.
    ///
    /// The cost is what its turns asked of the store, and what a bucket takes for that at the list prices of S3 Standard,
    /// without storage and traffic. An embedded store asks nobody and costs nothing. Not in it are the requests of clients
    /// that send to the run or watch it, of workers that look for work, and those of a turn after its last log entry.
    #[command(after_help = "Example:\n  wigwag status order-17")]
    Status {
        /// The run's id
        id: String,
    },
    /// List runs
    ///
    /// Unfinished ones first, then finished ones, the newest first; with `--json` one object a line.
    #[command(after_help = "Example:\n  wigwag list --type order --status failed --limit 20")]
    List(List),
    /// Show every step of a run
    ///
    /// Each step, sleep, wait and child in the order they began; with `--json` one object a line, with whole results.
    #[command(after_help = "Example:\n  wigwag steps order-17")]
    Steps {
        /// The run's id
        id: String,
    },
    /// Show what happened to a run
    ///
    /// One event a line, from the first; with `--json` one entry of the log a line.
    #[command(after_help = "Example:\n  wigwag history order-17 --follow")]
    History(History),
    /// Send a signal to a run
    ///
    /// A signal is a named JSON message that the run waits for, or will. Answers when it is durable, and says whether
    /// the run was waiting for it or it is kept until the run does. With `--all-waiting` there is no RUN: every run
    /// that waits for NAME gets it.
    #[command(
        override_usage = SIGNAL_USAGE,
        after_help = "Example:\n  wigwag signal order-17 approval '{\"by\": \"ada\"}' --key click-1 --wait\n  \
                      wigwag signal --all-waiting approval @yes.json --type order --dry-run"
    )]
    Signal(Signal),
    /// Show what waits for a signal
    ///
    /// Each run that waits for NAME, or for any signal: since when, and until when. With `--json` one object a line.
    #[command(after_help = "Example:\n  wigwag inbox approval --limit 20")]
    Inbox(Inbox),
    /// Show the signals that were sent to a run
    ///
    /// Each with who sent it, what it carries and what became of it. With `--json` one object a line. Also finds tasks.
    #[command(after_help = "Example:\n  wigwag signals order-17 approval")]
    Signals {
        /// The run's id
        id: String,
        /// Only signals of this name
        name: Option<String>,
    },
    /// Make a link that may send one signal to one run
    ///
    /// Prints a token, or with `--public-url` or `--server` a URL: for an approval by mail. Whoever has it may send that
    /// signal until it expires. A server signs it with its own secret; else it is signed with the one in
    /// `WIGWAG_LINK_SECRET`, which must be the server's.
    #[command(
        override_usage = LINK_USAGE,
        after_help = "Example:\n  wigwag link order-17 approval --expires 2d --once --public-url https://wigwag.example.com"
    )]
    Link(Link),
    /// End a run
    ///
    /// Running steps are told, and what was done is undone, in reverse order. Also finds tasks.
    #[command(after_help = "Example:\n  wigwag cancel order-17 --reason 'the customer changed their mind'")]
    Cancel {
        /// The run's id
        id: String,
        /// Why; it is kept and shown
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Let no further step begin
    ///
    /// A step that runs is not interrupted. Timers that were given as spans move by as long as the run is paused.
    #[command(after_help = "Example:\n  wigwag pause order-17")]
    Pause {
        /// The run's id
        id: String,
    },
    /// Let a paused run go on
    ///
    /// A run that was paused because the code does not fit it is migrated instead, or resumed once the code fits again.
    #[command(after_help = "Example:\n  wigwag resume order-17")]
    Resume {
        /// The run's id
        id: String,
        /// Leave it to the workers whether the code fits, for instance after the old code was put back
        #[arg(long)]
        anyway: bool,
    },
    /// Let a run that has ended, or is paused, begin again
    ///
    /// Its id, input and history stay.
    #[command(after_help = "Example:\n  wigwag restart order-17 --from charge")]
    Restart {
        /// The run's id
        id: String,
        /// Keep what was done before this step; it and all after it are done again
        #[arg(long, value_name = "STEP")]
        from: Option<String>,
    },
    /// Bring a run that was paused for changed code to that code
    ///
    /// `wigwag status` names the steps that do not fit. The run goes on by itself once it fits.
    #[command(after_help = "Example:\n  wigwag migrate order-17 --rename charge=pay --skip gift-wrap")]
    Migrate(Migrate),
    /// Submit, show or cancel a task
    ///
    /// A task is one step, run by whatever worker serves its queue.
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "Example:\n  wigwag task submit mail '{\"to\": \"ada\"}'"
    )]
    Task(Task),
    /// Send and hear messages between named actors, through a server's hub
    ///
    /// Through the server of `--server`, or else one on this machine.
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "Example:\n  wigwag hub listen '@(worker/a)'\n  wigwag hub send '@(worker/a)' job:run '{\"n\": 1}'"
    )]
    Hub(Hub),
    /// Look for runs that nobody would look at, and repair that
    ///
    /// Workers do this by themselves, and in normal operation there is nothing to find.
    #[command(after_help = "Example:\n  wigwag sweep --dry-run")]
    Sweep(Sweep),
    /// Remove finished runs
    ///
    /// Never an unfinished one. The id of a removed run can be used again once a later pass finds it a day old.
    #[command(after_help = "Example:\n  wigwag prune --older-than 30d --status completed --dry-run")]
    Prune(Prune),
    /// Print what lets a shell complete commands and flags
    ///
    /// Put it where your shell looks for it.
    #[command(after_help = "Example:\n  wigwag completions bash > ~/.local/share/bash-completion/completions/wigwag")]
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Start {
    /// The name of the workflow
    #[arg(value_name = "TYPE")]
    pub(crate) of: String,
    /// What it works on: JSON text, `@file`, or `-` for standard input
    #[arg(default_value = "null", allow_negative_numbers = true)]
    pub(crate) input: String,
    /// The run's id; else it gets one that begins with the time
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
    #[command(flatten)]
    pub(crate) when: When,
    /// Wait for its end and print its result as JSON
    #[arg(long)]
    pub(crate) wait: bool,
    /// Wait no longer than this, such as `5m`
    #[arg(long, value_name = "SPAN", requires = "wait", value_parser = input::span)]
    pub(crate) timeout: Option<Duration>,
}

/// When something is begun, if not now.
#[derive(Debug, ClapArgs)]
pub(crate) struct When {
    /// Not before this moment, such as `2026-01-28T12:00:00Z`
    #[arg(long, value_name = "TIME", value_parser = input::time)]
    pub(crate) at: Option<Time>,
    /// Not before this much time is over, such as `15m`
    #[arg(long, value_name = "SPAN", conflicts_with = "at", value_parser = input::span)]
    pub(crate) delay: Option<Duration>,
}

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct List {
    /// Only of this type
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) of: Option<String>,
    /// Only those that are so far: `pending`, `running`, `waiting_signal`, `paused`, `compensating`, `completed`,
    /// `failed` or `cancelled`
    #[arg(long, value_parser = input::status)]
    pub(crate) status: Option<Status>,
    /// Tasks instead of workflows
    #[arg(long)]
    pub(crate) tasks: bool,
    /// The queue of the tasks, with `--type`
    #[arg(long, value_name = "NAME", requires = "tasks", requires = "of", default_value = "default")]
    pub(crate) queue: String,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub(crate) limit: u16,
    /// Go on after this place, which the page before has named
    #[arg(long, value_name = "PLACE")]
    pub(crate) after: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct History {
    /// The run's id
    pub(crate) id: String,
    /// From this entry on
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) from: u64,
    /// At most this many entries
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,
    /// Go on with what happens, until the run ends
    #[arg(long, short)]
    pub(crate) follow: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Signal {
    /// The run's id; left out with `--all-waiting`
    #[arg(value_name = "RUN")]
    pub(crate) first: Option<String>,
    /// The signal's name
    #[arg(value_name = "NAME", allow_negative_numbers = true)]
    pub(crate) second: Option<String>,
    /// What it carries: JSON text, `@file`, or `-` for standard input; else `null`
    #[arg(value_name = "PAYLOAD", allow_negative_numbers = true)]
    pub(crate) third: Option<String>,
    /// However often it is repeated with the same key, one signal arrives
    #[arg(long, value_name = "TEXT")]
    pub(crate) key: Option<String>,
    /// Who sends it; it is kept and shown, and is what a quorum counts
    #[arg(long, value_name = "WHO")]
    pub(crate) by: Option<String>,
    /// Send it only if the run waits for it now
    #[arg(long)]
    pub(crate) only_if_waiting: bool,
    /// For the wait at this point, where several wait for the same name
    #[arg(long, value_name = "POINT")]
    pub(crate) point: Option<String>,
    /// Wait until the run has taken it, for `60s` if no span is given, and say what it waits for next
    #[arg(long, value_name = "SPAN", num_args = 0..=1, default_missing_value = "60s", value_parser = input::wait)]
    pub(crate) wait: Option<Duration>,
    /// Start a run of this type first if there is none
    #[arg(long, value_name = "TYPE", conflicts_with = "only_if_waiting")]
    pub(crate) start: Option<String>,
    /// What a run started so works on: JSON text, `@file`, or `-` for standard input
    #[arg(long, value_name = "INPUT", requires = "start", default_value = "null", allow_negative_numbers = true)]
    pub(crate) input: String,
    /// RUN is a task
    #[arg(long, conflicts_with = "start")]
    pub(crate) task: bool,
    /// Send it to every run that waits for it, and to no other
    #[arg(long, conflicts_with_all = ["point", "wait", "start", "task"], help_heading = "To many")]
    pub(crate) all_waiting: bool,
    /// Only to runs of this type
    #[arg(long = "type", value_name = "TYPE", requires = "all_waiting", help_heading = "To many")]
    pub(crate) of: Option<String>,
    /// Only say to whom it would be sent
    #[arg(long, requires = "all_waiting", help_heading = "To many")]
    pub(crate) dry_run: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Inbox {
    /// Only what waits for this signal
    pub(crate) name: Option<String>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub(crate) limit: u16,
    /// Go on after this place, which the page before has named
    #[arg(long, value_name = "PLACE")]
    pub(crate) after: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Link {
    /// The run's id
    pub(crate) run: Option<String>,
    /// The signal's name
    pub(crate) name: Option<String>,
    /// For how long it can be used, such as `2d`
    #[arg(long, value_name = "SPAN", value_parser = input::lifetime)]
    pub(crate) expires: Option<Duration>,
    /// It can be used once
    #[arg(long)]
    pub(crate) once: bool,
    /// Sender of the signal when the link is used; recorded, and counted by a quorum
    #[arg(long, value_name = "WHO")]
    pub(crate) sender: Option<String>,
    /// Where people reach the server, such as `https://wigwag.example.com`: print a URL below it
    #[arg(long, value_name = "URL", value_parser = input::server)]
    pub(crate) public_url: Option<String>,
    /// Say what a token or URL may do, if it is a good one; `-` for standard input
    #[arg(long, value_name = "TOKEN", conflicts_with_all = ["run", "name", "expires", "once", "sender", "public_url"])]
    pub(crate) verify: Option<String>,
    /// Revoke a link by its token or URL; `-` for standard input
    #[arg(long, value_name = "TOKEN", conflicts_with_all = ["run", "name", "expires", "once", "sender", "public_url", "verify"])]
    pub(crate) revoke: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Migrate {
    /// The run's id
    pub(crate) id: String,
    /// A step has another name now; may be given several times
    #[arg(long, value_name = "OLD=NEW", value_parser = input::renamed)]
    pub(crate) rename: Vec<(String, String)>,
    /// A step is passed over; may be given several times
    #[arg(long, value_name = "STEP")]
    pub(crate) skip: Vec<String>,
    /// To the definition whose hash begins so; else to the newest
    #[arg(long, value_name = "HASH")]
    pub(crate) to: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// Submit a task
    ///
    /// Prints its id once it is durable. An embedded store that does not exist is made.
    #[command(
        after_help = "Example:\n  wigwag task submit mail '{\"to\": \"ada\"}' --key welcome-ada --retries 5 --wait"
    )]
    Submit(Submit),
    /// Show how a task is
    ///
    /// With `--json` its whole state.
    #[command(after_help = "Example:\n  wigwag task status 01kx3v9m2q8r5t7w0y4z6a1b3c")]
    Status {
        /// The task's id
        id: String,
    },
    /// End a task
    ///
    /// If it runs, it is told.
    #[command(after_help = "Example:\n  wigwag task cancel 01kx3v9m2q8r5t7w0y4z6a1b3c --reason 'sent by hand'")]
    Cancel {
        /// The task's id
        id: String,
        /// Why; it is kept and shown
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Submit {
    /// The name of the task
    #[arg(value_name = "TYPE")]
    pub(crate) of: String,
    /// What it works on: JSON text, `@file`, or `-` for standard input
    #[arg(default_value = "null", allow_negative_numbers = true)]
    pub(crate) input: String,
    /// The same key of the same type is the same task, so that a submit may be repeated
    #[arg(long, value_name = "TEXT")]
    pub(crate) key: Option<String>,
    /// The queue whose workers take it
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub(crate) queue: String,
    /// How often it is tried again
    #[arg(long, value_name = "N")]
    pub(crate) retries: Option<u32>,
    /// How long one try may take, such as `90s`
    #[arg(long, value_name = "SPAN", value_parser = input::span)]
    pub(crate) timeout: Option<Duration>,
    #[command(flatten)]
    pub(crate) when: When,
    /// It fails if nobody took it within this time, such as `1h`
    #[arg(long, value_name = "SPAN", value_parser = input::span)]
    pub(crate) expires: Option<Duration>,
    /// Wait for its end and print its result as JSON
    #[arg(long)]
    pub(crate) wait: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Hub {
    /// Print messages as they come
    ///
    /// Those to ADDRESS, which is registered: whoever had it ends. Without one, those to the session's own address, which
    /// is said. Also what is published to topics; what is missed of a topic is said. A message that wants to be
    /// acknowledged is, once it is printed. Goes on until Ctrl-C, or until the runs of all topics have ended, and over
    /// restarts of the server. With `--json` one object a line.
    #[command(after_help = "Example:\n  wigwag hub listen '@(worker/a)' --topic orders/new --topic run/order-17")]
    Listen(Listen),
    /// Send a message to an actor, or a signal to a run
    ///
    /// Answers when the hub says what became of it: it was delivered, or is kept until the actor comes back. A run is
    /// `@(workflow/RUN)`, and TYPE the signal's name.
    #[command(after_help = "Example:\n  wigwag hub send '@(worker/a)' job:run '{\"n\": 1}' --ttl 5m --require-ack\n  \
                            wigwag hub send '@(worker/a)' add '[2, 3]' --reply")]
    Send(HubSend),
    /// Send a message to whoever hears a topic
    ///
    /// Answers when the hub has it, with its place in the topic.
    #[command(after_help = "Example:\n  wigwag hub publish orders/new order:new '{\"id\": 17}'")]
    Publish(HubPublish),
    /// List the actors that are registered
    ///
    /// In the order of their addresses; with `--json` one object a line.
    #[command(after_help = "Example:\n  wigwag hub actors '@(worker/*)' --capability add")]
    Actors(HubActors),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Listen {
    /// The address to be had, such as `@(worker/a)`
    pub(crate) address: Option<String>,
    /// Also what is published to this topic; may be given several times
    #[arg(long, value_name = "TOPIC")]
    pub(crate) topic: Vec<String>,
    /// Of the topic, also what came after this place, as far as the hub still has it
    #[arg(long, value_name = "EPOCH:SEQ", requires = "topic", value_parser = input::position)]
    pub(crate) after: Option<(u64, u64)>,
    /// What others find it by; may be given several times
    #[arg(long, value_name = "NAME", requires = "address")]
    pub(crate) capability: Vec<String>,
    /// End after this many messages
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct HubSend {
    /// To whom: `@(worker/a)`, or a run as `@(workflow/RUN)`
    pub(crate) to: String,
    /// What it is, such as `job:run`
    #[arg(value_name = "TYPE")]
    pub(crate) of: String,
    /// What it carries: JSON text, `@file`, or `-` for standard input
    #[arg(default_value = "null", allow_negative_numbers = true)]
    pub(crate) data: String,
    /// From this address, which is registered for it: whoever had it ends
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) from: Option<String>,
    /// At most once, without an answer
    #[arg(long, conflicts_with_all = ["require_ack", "reply"])]
    pub(crate) tell: bool,
    /// It counts as delivered only when the target has acknowledged it
    #[arg(long)]
    pub(crate) require_ack: bool,
    /// Wait for the target's reply, and print what it carries
    #[arg(long)]
    pub(crate) reply: bool,
    /// Not delivered after this, such as `5m`; for a reply or an acknowledgement it is how long to wait
    #[arg(long, value_name = "SPAN", value_parser = input::span)]
    pub(crate) ttl: Option<Duration>,
    /// What is sent again from the same address with the same id is done once
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct HubPublish {
    /// The topic, such as `orders/new`
    pub(crate) topic: String,
    /// What it is, such as `order:new`
    #[arg(value_name = "TYPE")]
    pub(crate) of: String,
    /// What it carries: JSON text, `@file`, or `-` for standard input
    #[arg(default_value = "null", allow_negative_numbers = true)]
    pub(crate) data: String,
}

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct HubActors {
    /// Only those whose address matches; `*` stands for anything
    pub(crate) pattern: Option<String>,
    /// Only those that name this
    #[arg(long, value_name = "NAME")]
    pub(crate) capability: Option<String>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub(crate) limit: u16,
    /// Go on after this place, which the page before has named
    #[arg(long, value_name = "PLACE")]
    pub(crate) after: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Sweep {
    /// Only say what would be repaired
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// One pass; it is so unless `--interval` says otherwise
    #[arg(long, conflicts_with = "interval")]
    pub(crate) once: bool,
    /// A pass each time this is over, such as `10m`, until Ctrl-C
    #[arg(long, value_name = "SPAN", value_parser = input::interval)]
    pub(crate) interval: Option<Duration>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Prune {
    /// Those that ended longer ago than this, such as `30d`
    #[arg(long, value_name = "SPAN", value_parser = input::span)]
    pub(crate) older_than: Duration,
    /// Only those that ended so: `completed`, `failed` or `cancelled`
    #[arg(long, value_parser = input::final_status)]
    pub(crate) status: Option<Status>,
    /// Only say what would be removed
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// What `doctor` looks at.
#[derive(Debug, clap::Args)]
pub(crate) struct Doctor {
    /// Do not prove the store
    #[arg(long, conflicts_with = "no_runs")]
    pub(crate) no_store: bool,
    /// Do not look at the runs
    #[arg(long)]
    pub(crate) no_runs: bool,
    /// Look at this many runs at most
    #[arg(long, value_name = "N", conflicts_with = "no_runs")]
    pub(crate) limit: Option<usize>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Dev {
    /// Where to listen; port 0 is any free one [default: 127.0.0.1:7070]
    #[arg(long, value_name = "ADDRESS", env = "WIGWAG_BIND")]
    pub(crate) bind: Option<String>,
    /// Start a sample order that waits for an approval
    #[arg(long)]
    pub(crate) demo: bool,
    /// Allow unauthenticated writes to the store at `/s3`; default: read-only
    #[arg(long)]
    pub(crate) s3_write: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Serve {
    /// Where to listen; port 0 is any free one [default: 127.0.0.1:7070]
    #[arg(long, value_name = "ADDRESS", env = "WIGWAG_BIND")]
    pub(crate) bind: Option<String>,
    /// The file with settings and tokens [default: wigwag.toml, if it is there]
    #[arg(long, value_name = "FILE", env = "WIGWAG_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Where it can be reached from outside, such as `https://wigwag.example.com`: links are made with it
    #[arg(long, value_name = "URL", env = "WIGWAG_PUBLIC_URL", value_parser = input::server)]
    pub(crate) public_url: Option<String>,
    /// A page's origin that may ask, such as `https://admin.example.com`; may be given several times
    #[arg(long, value_name = "URL", env = "WIGWAG_ORIGINS", value_delimiter = ',')]
    pub(crate) origin: Vec<String>,
    /// The certificate with its chain, as PEM: speak TLS
    #[arg(long, value_name = "FILE", env = "WIGWAG_TLS_CERT", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The certificate's private key, as PEM
    #[arg(long, value_name = "FILE", env = "WIGWAG_TLS_KEY", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Certificate authorities of clients, as PEM: require client certificates (mTLS)
    #[arg(long, value_name = "FILE", env = "WIGWAG_TLS_CLIENT_CA")]
    pub(crate) tls_client_ca: Option<PathBuf>,
    /// IP address of a reverse proxy whose `X-Forwarded-For` is trusted; may be given several times
    #[arg(long, value_name = "ADDRESS", env = "WIGWAG_TRUSTED_PROXIES", value_delimiter = ',')]
    pub(crate) trusted_proxy: Vec<std::net::IpAddr>,
    /// Requests per second of one client address, or `off`; burst: twice as many [default: off]
    #[arg(long, value_name = "N", env = "WIGWAG_ADDRESS_RATE", value_parser = input::rate)]
    pub(crate) address_rate: Option<input::Rate>,
    /// Requests per second of one token, or `off`; burst: twice as many [default: off]
    #[arg(long, value_name = "N", env = "WIGWAG_TOKEN_RATE", value_parser = input::rate)]
    pub(crate) token_rate: Option<input::Rate>,
    /// Allow unauthenticated writes to the store at `/s3` of a server without tokens; default: read-only
    #[arg(long, env = "WIGWAG_S3_WRITE")]
    pub(crate) s3_write: bool,
    /// Remove finished runs after this, such as `30d`; else they are kept
    #[arg(long, value_name = "SPAN", env = "WIGWAG_KEEP", value_parser = input::span)]
    pub(crate) keep: Option<Duration>,
    /// Disable authentication, even on non-loopback addresses and behind a proxy
    #[arg(long, env = "WIGWAG_INSECURE")]
    pub(crate) insecure: bool,
    /// Messages a second that one connection may send to the hub, or `off`; twice as many at once [default: 1000]
    #[arg(long, value_name = "N", env = "WIGWAG_HUB_RATE", value_parser = input::rate)]
    pub(crate) hub_rate: Option<input::Rate>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Token {
    /// Who will have it; signals are sent in this name
    pub(crate) name: String,
    /// What it may do: `runs:read`, `runs:write`, `signals:NAME`, `signals:*`, `tasks`, `hub:own:PATTERN`, `hub:send:PATTERN`,
    /// `hub:publish:PATTERN`, `hub:read:PATTERN` or `admin`
    #[arg(long, required = true, value_name = "SCOPE")]
    pub(crate) scope: Vec<wigwag_server::Scope>,
    /// Lifetime of the token, such as `90d`; else it never expires
    #[arg(long, value_name = "SPAN", value_parser = input::span)]
    pub(crate) expires: Option<Duration>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Bench {
    /// How long each of the four loads lasts, such as `10s`
    #[arg(long, value_name = "SPAN", default_value = "3s", value_parser = input::span)]
    pub(crate) span: Duration,
    /// How many at once in the second half
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub(crate) clients: u16,
}
