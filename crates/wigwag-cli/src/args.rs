//! The command-line arguments. Their help texts are the reference page `docs/reference/cli.md`.

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
    "Exit codes: 0 success, 1 failure, 2 invalid usage, 3 not found, 4 conflict, not running or not waiting.
Results go to standard output; progress, warnings and hints go to standard error.";

/// Default value of `--store`.
pub(crate) const DEFAULT_STORE: &str = "./.wigwag";

/// Options that select the store or the server.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct StoreArgs {
    /// Set if `--store` came from a flag or the environment
    #[arg(skip)]
    pub(crate) is_given: bool,
    /// Store URL: `./dir`, `file:dir`, `memory:`, `s3://bucket/prefix`, `gs://…`, `az://…`, or a server's `http://…/s3`
    #[arg(long, global = true, value_name = "URL", env = "WIGWAG_STORE", default_value = DEFAULT_STORE)]
    pub(crate) store: String,
    /// Send the command to a server instead of a store, such as `http://127.0.0.1:7070`
    #[arg(long, global = true, value_name = "URL", env = "WIGWAG_SERVER", help_heading = "Servers", value_parser = input::server)]
    pub(crate) server: Option<String>,
    /// Read the server's token from this file instead of `WIGWAG_TOKEN`
    #[arg(long, global = true, value_name = "FILE", help_heading = "Servers")]
    pub(crate) token_file: Option<PathBuf>,
    /// Allow unencrypted `http://` to other machines, which exposes tokens and secrets
    #[arg(long, global = true, env = "WIGWAG_ALLOW_HTTP", help_heading = "Servers")]
    pub(crate) allow_http: bool,
    /// Endpoint of an S3-compatible server, such as `http://127.0.0.1:9000`
    #[arg(long, global = true, value_name = "URL", env = "WIGWAG_ENDPOINT", help_heading = "Buckets")]
    pub(crate) endpoint: Option<String>,
    /// Region of the bucket
    #[arg(long, global = true, value_name = "NAME", env = "WIGWAG_REGION", help_heading = "Buckets")]
    pub(crate) region: Option<String>,
    /// Profile in the AWS configuration files
    #[arg(long, global = true, value_name = "NAME", help_heading = "Buckets")]
    pub(crate) profile: Option<String>,
    /// Use virtual-hosted-style URLs: the bucket name in the host instead of the path
    #[arg(long, global = true, help_heading = "Buckets")]
    pub(crate) virtual_hosted: bool,
}

/// The meaning of the positional arguments depends on a flag, so the usage is written by hand.
pub(crate) const SIGNAL_USAGE: &str =
    "wigwag signal [OPTIONS] RUN NAME [PAYLOAD]\n       wigwag signal [OPTIONS] --all-waiting NAME [PAYLOAD]";
const LINK_USAGE: &str = "wigwag link [OPTIONS] RUN NAME --expires <DURATION>\n       wigwag link [OPTIONS] --verify <TOKEN>\n       \
     wigwag link [OPTIONS] --revoke <TOKEN>";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a development server
    ///
    /// Serves the dashboard, the API and the hub at 127.0.0.1:7070 on an embedded store in `./.wigwag`, which is kept between runs. With
    /// `--demo`, starts a sample order that waits for an approval and prints the commands that resume it.
    #[command(after_help = "Example:\n  wigwag dev --demo")]
    Dev(Dev),
    /// Start a production server
    ///
    /// Serves the API, the hub and the dashboard, and runs the sweeper and retention. Runs no workflow code: your workers do, on the same
    /// store. Flags override environment variables, which override `wigwag.toml`. Tokens are required on non-loopback addresses, behind a
    /// proxy and with a public URL. SIGHUP reloads tokens, keys, certificates and link secrets from the file.
    #[command(
        after_help = "Example:\n  wigwag serve --store s3://orders --bind 0.0.0.0:7070 --config /etc/wigwag.toml"
    )]
    Serve(Serve),
    /// Benchmark a store
    ///
    /// Measures runs of three steps and runs that wait for a signal, sequentially and then concurrently. Writes only below `bench/` and
    /// removes it at the end. Creates the embedded store if it does not exist.
    #[command(after_help = "Example:\n  wigwag bench --store s3://orders --span 10s")]
    Bench(Bench),
    /// Create an API token for a server
    ///
    /// Prints the token on standard output and the matching lines for `wigwag.toml` on standard error. The file holds only
    /// the SHA-256 of the token.
    #[command(after_help = "Example:\n  wigwag token ci --scope runs:read --scope signals:approval --expires 90d")]
    Token(Token),
    /// Check a store and every run in it
    ///
    /// Tests conditional writes under races, read-after-write, list order, stale updates and the clock. Writes only below `proof/` and
    /// removes it at the end. Creates the embedded store if it does not exist. Then checks the log, snapshot, signals, indexes and wake-ups
    /// of every run. Exits with 1 if a check fails.
    #[command(after_help = "Example:\n  wigwag doctor --store s3://orders --endpoint http://127.0.0.1:9000\n  \
                            wigwag doctor --no-store --limit 1000")]
    Doctor(Doctor),
    /// List the keys of a store
    ///
    /// Prints one key per line in key order; with `--json`, one JSON object per line.
    #[command(after_help = "Example:\n  wigwag ls workflow/ --long --limit 20")]
    Ls {
        /// List only keys with this prefix
        #[arg(default_value = "")]
        prefix: String,
        /// List only keys after this one
        #[arg(long, value_name = "KEY", default_value = "")]
        after: String,
        /// Maximum number of results
        #[arg(long, value_name = "N")]
        limit: Option<usize>,
        /// Show the size in bytes and the modification time
        #[arg(long, short)]
        long: bool,
    },
    /// Print an object of a store
    ///
    /// Prints the stored bytes. With `--json`, prints key, size, modification time and body.
    #[command(after_help = "Example:\n  wigwag cat wigwag.json")]
    Cat {
        /// Key of the object
        key: String,
    },
    /// Start a run
    ///
    /// Prints the run id once the run is durable; a worker that has the workflow's code executes it. Starting the same id again with the
    /// same type and input returns the same run. Creates the embedded store if it does not exist.
    #[command(after_help = "Example:\n  wigwag start order '{\"item\": \"kettle\"}' --id order-17 --wait --timeout 5m")]
    Start(Start),
    /// Show the status of a run or task
    ///
    /// Shows the current steps, open waits with their deadlines, failures and the next retry, the reason of a pause and how to resume, the
    /// result and the cost. With `--json`, prints the full state.
    ///
    /// The cost counts the store requests of the run's turns at S3 Standard list prices, without storage and traffic; on an embedded store
    /// it is an estimate. Requests of clients, of idle workers and after the last log entry of a turn are not counted.
    #[command(after_help = "Example:\n  wigwag status order-17")]
    Status {
        /// Id of the run
        id: String,
    },
    /// List runs
    ///
    /// Lists unfinished runs first, then finished runs, newest first. With `--json`, prints one JSON object per line.
    #[command(after_help = "Example:\n  wigwag list --type order --status failed --limit 20")]
    List(List),
    /// List the steps of a run
    ///
    /// Lists calls, sleeps, waits and children in start order. With `--json`, prints one JSON object per line, with full results.
    #[command(after_help = "Example:\n  wigwag steps order-17")]
    Steps {
        /// Id of the run
        id: String,
    },
    /// Show the event history of a run
    ///
    /// Prints one event per line, oldest first. With `--json`, prints one log entry per line.
    #[command(after_help = "Example:\n  wigwag history order-17 --follow")]
    History(History),
    /// Send a signal to a run
    ///
    /// A signal is a named JSON message. The command returns once the signal is durable and reports whether a wait is open or the signal is
    /// buffered until the run waits for it. With `--all-waiting`, omit RUN: the signal goes to every run that waits for NAME.
    #[command(
        override_usage = SIGNAL_USAGE,
        after_help = "Example:\n  wigwag signal order-17 approval '{\"by\": \"ada\"}' --key click-1 --wait\n  \
                      wigwag signal --all-waiting approval @yes.json --type order --dry-run"
    )]
    Signal(Signal),
    /// List the runs that wait for a signal
    ///
    /// Shows how long each run has waited and its deadline. With `--json`, prints one JSON object per line.
    #[command(after_help = "Example:\n  wigwag inbox approval --limit 20")]
    Inbox(Inbox),
    /// Explain why a run or task does not proceed
    ///
    /// For each open step: its requirements, what is satisfied, and the next action.
    #[command(after_help = "Example:\n  wigwag explain order-17")]
    Explain {
        /// Id of the run
        id: String,
    },
    /// List the signals sent to a run or task
    ///
    /// Shows sender, payload and outcome of each signal. With `--json`, prints one JSON object per line.
    #[command(after_help = "Example:\n  wigwag signals order-17 approval")]
    Signals {
        /// Id of the run
        id: String,
        /// List only signals with this name
        name: Option<String>,
    },
    /// Create a signed link that can send one signal to one run
    ///
    /// Prints a token, or a URL with `--public-url` or `--server`, for example for approvals by mail. Anyone with the link can send that
    /// signal until it expires. With `--server`, the server signs the link; otherwise the secret in `WIGWAG_LINK_SECRET` does, which must
    /// match the server's.
    #[command(
        override_usage = LINK_USAGE,
        after_help = "Example:\n  wigwag link order-17 approval --expires 2d --once --public-url https://wigwag.example.com"
    )]
    Link(Link),
    /// Cancel a run or task
    ///
    /// Running steps are notified, then completed steps are compensated in reverse order.
    #[command(after_help = "Example:\n  wigwag cancel order-17 --reason 'the customer changed their mind'")]
    Cancel {
        /// Id of the run
        id: String,
        /// Reason, recorded with the run
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Pause a run
    ///
    /// No new step starts; running steps finish. Relative timers are extended by the length of the pause.
    #[command(after_help = "Example:\n  wigwag pause order-17")]
    Pause {
        /// Id of the run
        id: String,
    },
    /// Resume a paused run
    ///
    /// A run that was paused by a version mismatch needs `wigwag migrate`, or a worker with compatible code.
    #[command(after_help = "Example:\n  wigwag resume order-17")]
    Resume {
        /// Id of the run
        id: String,
        /// Skip the compatibility check, for example after a rollback to the previous code
        #[arg(long)]
        anyway: bool,
    },
    /// Restart a finished or paused run
    ///
    /// Keeps the run's id, input and history.
    #[command(after_help = "Example:\n  wigwag restart order-17 --from charge")]
    Restart {
        /// Id of the run
        id: String,
        /// Keep the results of earlier steps, and run this step and all later ones again
        #[arg(long, value_name = "STEP")]
        from: Option<String>,
    },
    /// Migrate a run to changed workflow code
    ///
    /// For runs paused by a version mismatch; `wigwag status` lists the incompatible steps. The run resumes once it is compatible.
    #[command(after_help = "Example:\n  wigwag migrate order-17 --rename charge=pay --skip gift-wrap")]
    Migrate(Migrate),
    /// Submit, show or cancel tasks
    ///
    /// A task is a run of one step, executed by a worker that serves its queue.
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "Example:\n  wigwag task submit mail '{\"to\": \"ada\"}'"
    )]
    Task(Task),
    /// Exchange messages through a server's hub
    ///
    /// Connects to `--server`, by default to http://127.0.0.1:7070.
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "Example:\n  wigwag hub listen '@(worker/a)'\n  wigwag hub send '@(worker/a)' job:run '{\"n\": 1}'"
    )]
    Hub(Hub),
    /// Find orphaned runs and reschedule them
    ///
    /// Workers and servers do this in the background; in normal operation there is nothing to repair.
    #[command(after_help = "Example:\n  wigwag sweep --dry-run")]
    Sweep(Sweep),
    /// Delete old finished runs
    ///
    /// Unfinished runs are never deleted. The id of a deleted run becomes available again after a day.
    #[command(after_help = "Example:\n  wigwag prune --older-than 30d --status completed --dry-run")]
    Prune(Prune),
    /// Return the free space of an embedded store to the disk
    ///
    /// A store returns most of its free space by itself. A directory of an early version is rebuilt once; that needs
    /// its size as free space, and no other process may have it open.
    #[command(after_help = "Example:\n  wigwag vacuum --store ./data")]
    Vacuum,
    /// Generate shell completions
    ///
    /// Save the output where your shell loads completions from.
    #[command(after_help = "Example:\n  wigwag completions bash > ~/.local/share/bash-completion/completions/wigwag")]
    Completions {
        /// Shell to generate completions for
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Start {
    /// Name of the workflow
    #[arg(value_name = "TYPE")]
    pub(crate) of: String,
    /// Input: JSON text, `@file`, or `-` for standard input
    #[arg(default_value = "null", allow_negative_numbers = true)]
    pub(crate) input: String,
    /// Id of the run; generated if omitted
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
    #[command(flatten)]
    pub(crate) when: When,
    /// Wait until it finishes and print the result as JSON
    #[arg(long)]
    pub(crate) wait: bool,
    /// Maximum time to wait, such as `5m`
    #[arg(long, value_name = "DURATION", requires = "wait", value_parser = input::span)]
    pub(crate) timeout: Option<Duration>,
}

/// Start time of a run or task.
#[derive(Debug, ClapArgs)]
pub(crate) struct When {
    /// Start no earlier than this time, such as `2026-01-28T12:00:00Z`
    #[arg(long, value_name = "TIME", value_parser = input::time)]
    pub(crate) at: Option<Time>,
    /// Start after this delay, such as `15m`
    #[arg(long, value_name = "DURATION", conflicts_with = "at", value_parser = input::span)]
    pub(crate) delay: Option<Duration>,
}

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct List {
    /// List only runs of this type
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) of: Option<String>,
    /// List only runs with this status: `pending`, `running`, `waiting_signal`, `paused`, `compensating`, `completed`,
    /// `failed` or `cancelled`
    #[arg(long, value_parser = input::status)]
    pub(crate) status: Option<Status>,
    /// List tasks instead of workflow runs
    #[arg(long)]
    pub(crate) tasks: bool,
    /// Queue of the tasks, with `--type`
    #[arg(long, value_name = "NAME", requires = "tasks", requires = "of", default_value = "default")]
    pub(crate) queue: String,
    /// Maximum number of results
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub(crate) limit: u16,
    /// Continue after this cursor, printed by the previous page
    #[arg(long, value_name = "CURSOR")]
    pub(crate) after: Option<String>,
    /// Count by type and status, without reading runs
    #[arg(long, conflicts_with_all = ["status", "after", "limit"])]
    pub(crate) count: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct History {
    /// Id of the run
    pub(crate) id: String,
    /// First log entry to show
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) from: u64,
    /// Maximum number of log entries
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,
    /// Print new events until the run finishes
    #[arg(long, short)]
    pub(crate) follow: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Signal {
    /// Id of the run; omitted with `--all-waiting`
    #[arg(value_name = "RUN")]
    pub(crate) first: Option<String>,
    /// Name of the signal
    #[arg(value_name = "NAME", allow_negative_numbers = true)]
    pub(crate) second: Option<String>,
    /// Payload: JSON text, `@file`, or `-` for standard input [default: null]
    #[arg(value_name = "PAYLOAD", allow_negative_numbers = true)]
    pub(crate) third: Option<String>,
    /// Idempotency key: repeats with the same key send one signal
    #[arg(long, value_name = "TEXT")]
    pub(crate) key: Option<String>,
    /// Name of the sender; recorded, and counted by a quorum
    #[arg(long, value_name = "NAME")]
    pub(crate) by: Option<String>,
    /// Reject the signal unless the run is waiting for it
    #[arg(long)]
    pub(crate) only_if_waiting: bool,
    /// Address the wait at this step, if several steps wait for the same signal
    #[arg(long, value_name = "STEP")]
    pub(crate) point: Option<String>,
    /// Wait until the run consumes the signal, `60s` by default, and show what it waits for next
    #[arg(long, value_name = "DURATION", num_args = 0..=1, default_missing_value = "60s", value_parser = input::wait)]
    pub(crate) wait: Option<Duration>,
    /// Start a run of this type if RUN does not exist
    #[arg(long, value_name = "TYPE", conflicts_with = "only_if_waiting")]
    pub(crate) start: Option<String>,
    /// Input of the run started by `--start`: JSON text, `@file`, or `-` for standard input
    #[arg(long, value_name = "INPUT", requires = "start", default_value = "null", allow_negative_numbers = true)]
    pub(crate) input: String,
    /// RUN is the id of a task
    #[arg(long, conflicts_with = "start")]
    pub(crate) task: bool,
    /// Send the signal to every run that waits for it
    #[arg(long, conflicts_with_all = ["point", "wait", "start", "task"], help_heading = "To many")]
    pub(crate) all_waiting: bool,
    /// Send only to runs of this type
    #[arg(long = "type", value_name = "TYPE", requires = "all_waiting", help_heading = "To many")]
    pub(crate) of: Option<String>,
    /// List the recipients without sending
    #[arg(long, requires = "all_waiting", help_heading = "To many")]
    pub(crate) dry_run: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Inbox {
    /// List only waits for this signal
    pub(crate) name: Option<String>,
    /// Maximum number of results
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub(crate) limit: u16,
    /// Continue after this cursor, printed by the previous page
    #[arg(long, value_name = "CURSOR")]
    pub(crate) after: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Link {
    /// Id of the run
    pub(crate) run: Option<String>,
    /// Name of the signal
    pub(crate) name: Option<String>,
    /// Lifetime of the link, such as `2d`
    #[arg(long, value_name = "DURATION", value_parser = input::lifetime)]
    pub(crate) expires: Option<Duration>,
    /// Allow a single use
    #[arg(long)]
    pub(crate) once: bool,
    /// Sender of the signal; recorded, and counted by a quorum
    #[arg(long, value_name = "NAME")]
    pub(crate) sender: Option<String>,
    /// Public URL of the server, such as `https://wigwag.example.com`: print a full URL
    #[arg(long, value_name = "URL", value_parser = input::server)]
    pub(crate) public_url: Option<String>,
    /// Verify a link by its token or URL and show its permissions; `-` for standard input
    #[arg(long, value_name = "TOKEN", conflicts_with_all = ["run", "name", "expires", "once", "sender", "public_url"])]
    pub(crate) verify: Option<String>,
    /// Revoke a link by its token or URL; `-` for standard input
    #[arg(long, value_name = "TOKEN", conflicts_with_all = ["run", "name", "expires", "once", "sender", "public_url", "verify"])]
    pub(crate) revoke: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Migrate {
    /// Id of the run
    pub(crate) id: String,
    /// Map a renamed step; can be repeated
    #[arg(long, value_name = "OLD=NEW", value_parser = input::renamed)]
    pub(crate) rename: Vec<(String, String)>,
    /// Skip a step that no longer exists; can be repeated
    #[arg(long, value_name = "STEP")]
    pub(crate) skip: Vec<String>,
    /// Hash, or its beginning, of the target definition; the newest by default
    #[arg(long, value_name = "HASH")]
    pub(crate) to: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// Submit a task
    ///
    /// Prints the task id once the task is durable. Creates the embedded store if it does not exist.
    #[command(
        after_help = "Example:\n  wigwag task submit mail '{\"to\": \"ada\"}' --key welcome-ada --retries 5 --wait"
    )]
    Submit(Submit),
    /// Show the status of a task
    ///
    /// With `--json`, prints the full state.
    #[command(after_help = "Example:\n  wigwag task status 01kx3v9m2q8r5t7w0y4z6a1b3c")]
    Status {
        /// Id of the task
        id: String,
    },
    /// Cancel a task
    ///
    /// A running task is notified.
    #[command(after_help = "Example:\n  wigwag task cancel 01kx3v9m2q8r5t7w0y4z6a1b3c --reason 'sent by hand'")]
    Cancel {
        /// Id of the task
        id: String,
        /// Reason, recorded with the run
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Submit {
    /// Name of the task
    #[arg(value_name = "TYPE")]
    pub(crate) of: String,
    /// Input: JSON text, `@file`, or `-` for standard input
    #[arg(default_value = "null", allow_negative_numbers = true)]
    pub(crate) input: String,
    /// Idempotency key: the same type and key is the same task
    #[arg(long, value_name = "TEXT")]
    pub(crate) key: Option<String>,
    /// Queue to submit to
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub(crate) queue: String,
    /// Maximum number of retries
    #[arg(long, value_name = "N")]
    pub(crate) retries: Option<u32>,
    /// Timeout of one attempt, such as `90s`
    #[arg(long, value_name = "DURATION", value_parser = input::span)]
    pub(crate) timeout: Option<Duration>,
    #[command(flatten)]
    pub(crate) when: When,
    /// Fail if no worker starts it within this time, such as `1h`
    #[arg(long, value_name = "DURATION", value_parser = input::span)]
    pub(crate) expires: Option<Duration>,
    /// Wait until it finishes and print the result as JSON
    #[arg(long)]
    pub(crate) wait: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Hub {
    /// Receive and print messages
    ///
    /// Registers ADDRESS, which disconnects its previous holder; without ADDRESS, uses an address of the session and prints it. Messages
    /// of subscribed topics are printed too, and gaps are reported. A message is acknowledged once it is printed. Reconnects if the
    /// server restarts, and ends on Ctrl-C or when the runs of all topics have finished. With `--json`, prints one JSON object per line.
    #[command(after_help = "Example:\n  wigwag hub listen '@(worker/a)' --topic orders/new --topic run/order-17")]
    Listen(Listen),
    /// Send a message to an actor, or a signal to a run
    ///
    /// Returns when the hub reports that the message was delivered, or queued until the actor reconnects. The address of a run is
    /// `@(workflow/RUN)`; TYPE is then the name of the signal.
    #[command(after_help = "Example:\n  wigwag hub send '@(worker/a)' job:run '{\"n\": 1}' --ttl 5m --require-ack\n  \
                            wigwag hub send '@(worker/a)' add '[2, 3]' --reply")]
    Send(HubSend),
    /// Publish a message to a topic
    ///
    /// Prints the position of the message in the topic and the number of subscribers.
    #[command(after_help = "Example:\n  wigwag hub publish orders/new order:new '{\"id\": 17}'")]
    Publish(HubPublish),
    /// List registered actors
    ///
    /// Sorted by address. With `--json`, prints one JSON object per line.
    #[command(after_help = "Example:\n  wigwag hub actors '@(worker/*)' --capability add")]
    Actors(HubActors),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Listen {
    /// Address to register, such as `@(worker/a)`
    pub(crate) address: Option<String>,
    /// Topic to subscribe to; can be repeated
    #[arg(long, value_name = "TOPIC")]
    pub(crate) topic: Vec<String>,
    /// Resume the topic after this position, as far as the hub's history reaches
    #[arg(long, value_name = "EPOCH:SEQ", requires = "topic", value_parser = input::position)]
    pub(crate) after: Option<(u64, u64)>,
    /// Capability to register with the address; can be repeated
    #[arg(long, value_name = "NAME", requires = "address")]
    pub(crate) capability: Vec<String>,
    /// Exit after this many messages
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct HubSend {
    /// Target address: `@(worker/a)`, or `@(workflow/RUN)` for a run
    pub(crate) to: String,
    /// Message type, such as `job:run`
    #[arg(value_name = "TYPE")]
    pub(crate) of: String,
    /// Payload: JSON text, `@file`, or `-` for standard input
    #[arg(default_value = "null", allow_negative_numbers = true)]
    pub(crate) data: String,
    /// Register and send from this address, which disconnects its previous holder
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) from: Option<String>,
    /// Send at most once, without a delivery receipt
    #[arg(long, conflicts_with_all = ["require_ack", "reply"])]
    pub(crate) tell: bool,
    /// Report delivery only after the target has acknowledged the message
    #[arg(long)]
    pub(crate) require_ack: bool,
    /// Wait for the target's reply and print its payload
    #[arg(long)]
    pub(crate) reply: bool,
    /// Time to live, such as `5m`; also the timeout for a reply or an acknowledgement
    #[arg(long, value_name = "DURATION", value_parser = input::span)]
    pub(crate) ttl: Option<Duration>,
    /// Message id: repeats from the same address with the same id are delivered once
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct HubPublish {
    /// Topic, such as `orders/new`
    pub(crate) topic: String,
    /// Message type, such as `order:new`
    #[arg(value_name = "TYPE")]
    pub(crate) of: String,
    /// Payload: JSON text, `@file`, or `-` for standard input
    #[arg(default_value = "null", allow_negative_numbers = true)]
    pub(crate) data: String,
}

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct HubActors {
    /// Address pattern; `*` matches any text
    pub(crate) pattern: Option<String>,
    /// List only actors with this capability
    #[arg(long, value_name = "NAME")]
    pub(crate) capability: Option<String>,
    /// Maximum number of results
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub(crate) limit: u16,
    /// Continue after this cursor, printed by the previous page
    #[arg(long, value_name = "CURSOR")]
    pub(crate) after: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Sweep {
    /// Report orphaned runs without repairing them
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Run one pass (the default without `--interval`)
    #[arg(long, conflicts_with = "interval")]
    pub(crate) once: bool,
    /// Repeat at this interval, such as `10m`, until Ctrl-C
    #[arg(long, value_name = "DURATION", value_parser = input::interval)]
    pub(crate) interval: Option<Duration>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Prune {
    /// Delete runs that finished longer ago than this, such as `30d`
    #[arg(long, value_name = "DURATION", value_parser = input::span)]
    pub(crate) older_than: Duration,
    /// Delete only runs with this status: `completed`, `failed` or `cancelled`
    #[arg(long, value_parser = input::final_status)]
    pub(crate) status: Option<Status>,
    /// Report what would be deleted without deleting
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Arguments of `wigwag doctor`.
#[derive(Debug, clap::Args)]
pub(crate) struct Doctor {
    /// Skip the checks of the store
    #[arg(long, conflicts_with = "no_runs")]
    pub(crate) no_store: bool,
    /// Skip the checks of runs
    #[arg(long)]
    pub(crate) no_runs: bool,
    /// Maximum number of runs to check
    #[arg(long, value_name = "N", conflicts_with = "no_runs")]
    pub(crate) limit: Option<usize>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Dev {
    /// Address to listen on; port 0 picks a free port [default: 127.0.0.1:7070]
    #[arg(long, value_name = "ADDRESS", env = "WIGWAG_BIND")]
    pub(crate) bind: Option<String>,
    /// Start a sample order that waits for an approval, and other sample runs
    #[arg(long)]
    pub(crate) demo: bool,
    /// Open the dashboard in a browser
    #[arg(long)]
    pub(crate) open: bool,
    /// Allow unauthenticated writes at `/s3`, which is read-only by default
    #[arg(long)]
    pub(crate) s3_write: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Serve {
    /// Address to listen on; port 0 picks a free port [default: 127.0.0.1:7070]
    #[arg(long, value_name = "ADDRESS", env = "WIGWAG_BIND")]
    pub(crate) bind: Option<String>,
    /// Configuration file [default: wigwag.toml, if it exists]
    #[arg(long, value_name = "FILE", env = "WIGWAG_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Public URL, such as `https://wigwag.example.com`; used in links
    #[arg(long, value_name = "URL", env = "WIGWAG_PUBLIC_URL", value_parser = input::server)]
    pub(crate) public_url: Option<String>,
    /// URL at which other processes on the same bucket reach this server for notifications, such as `http://10.0.0.7:7070`
    ///
    /// Defaults to the listen address, or to `--public-url` if that is a loopback or unspecified address.
    #[arg(long, value_name = "URL", env = "WIGWAG_ADVERTISE", value_parser = input::server)]
    pub(crate) advertise: Option<String>,
    /// Allowed CORS origin, such as `https://admin.example.com`; can be repeated
    #[arg(long, value_name = "URL", env = "WIGWAG_ORIGINS", value_delimiter = ',')]
    pub(crate) origin: Vec<String>,
    /// TLS certificate chain (PEM); enables TLS
    #[arg(long, value_name = "FILE", env = "WIGWAG_TLS_CERT", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", env = "WIGWAG_TLS_KEY", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Certificate authorities for client certificates (PEM); enables mTLS
    #[arg(long, value_name = "FILE", env = "WIGWAG_TLS_CLIENT_CA")]
    pub(crate) tls_client_ca: Option<PathBuf>,
    /// IP address of a reverse proxy whose `X-Forwarded-For` is trusted; can be repeated
    #[arg(long, value_name = "ADDRESS", env = "WIGWAG_TRUSTED_PROXIES", value_delimiter = ',')]
    pub(crate) trusted_proxy: Vec<std::net::IpAddr>,
    /// Maximum requests per second and client address, or `off`; bursts of twice the rate [default: 2000, without a limit on
    /// loopback]
    #[arg(long, value_name = "N", env = "WIGWAG_ADDRESS_RATE", value_parser = input::rate)]
    pub(crate) address_rate: Option<input::Rate>,
    /// Maximum requests per second and token or access key, or `off`; bursts of twice the rate [default: 10000]
    #[arg(long, value_name = "N", env = "WIGWAG_TOKEN_RATE", value_parser = input::rate)]
    pub(crate) token_rate: Option<input::Rate>,
    /// Allow unauthenticated writes at `/s3` of a server without tokens, which is read-only by default
    #[arg(long, env = "WIGWAG_S3_WRITE")]
    pub(crate) s3_write: bool,
    /// Delete finished runs after this time, such as `30d`; kept by default
    #[arg(long, value_name = "DURATION", env = "WIGWAG_KEEP", value_parser = input::span)]
    pub(crate) keep: Option<Duration>,
    /// Disable authentication, even on non-loopback addresses and behind a proxy
    #[arg(long, env = "WIGWAG_INSECURE")]
    pub(crate) insecure: bool,
    /// Maximum hub messages per second and connection, or `off`; bursts of twice the rate [default: 1000]
    #[arg(long, value_name = "N", env = "WIGWAG_HUB_RATE", value_parser = input::rate)]
    pub(crate) hub_rate: Option<input::Rate>,
    /// Maximum hub messages per second and token, or `off`; bursts of twice the rate [default: 20000]
    #[arg(long, value_name = "N", env = "WIGWAG_HUB_TOKEN_RATE", value_parser = input::rate)]
    pub(crate) hub_token_rate: Option<input::Rate>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Token {
    /// Name of the token; recorded as the sender of signals
    pub(crate) name: String,
    /// Scope: `runs:read`, `runs:write`, `signals:NAME`, `signals:*`, `tasks`, `hub:own:PATTERN`, `hub:send:PATTERN`,
    /// `hub:publish:PATTERN`, `hub:read:PATTERN` or `admin`
    #[arg(long, required = true, value_name = "SCOPE")]
    pub(crate) scope: Vec<wigwag_server::Scope>,
    /// Lifetime of the token, such as `90d`; unlimited by default
    #[arg(long, value_name = "DURATION", value_parser = input::span)]
    pub(crate) expires: Option<Duration>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct Bench {
    /// Duration of each of the four workloads, such as `10s`
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = input::span)]
    pub(crate) span: Duration,
    /// Number of concurrent clients
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub(crate) clients: u16,
}
