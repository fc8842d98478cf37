//! Every flag; its help text is the reference.

use clap::{Args as ClapArgs, Parser, Subcommand};

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

const EXIT_CODES: &str = "Exit codes: 0 done, 1 failed, 2 wrong call, 3 not found, 4 conflict.
Data goes to standard output, talk to standard error.";

/// Which store, and how it is reached.
#[derive(Debug, ClapArgs)]
pub(crate) struct StoreArgs {
    /// The store: `./dir`, `file:dir`, `memory:`, `s3://bucket/prefix`, `gs://…` or `az://…`
    #[arg(long, global = true, value_name = "URL", env = "WIGWAG_STORE", default_value = "./.wigwag")]
    pub(crate) store: String,
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

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Prove that a store keeps its word
    ///
    /// Races writers for the same keys, reads and lists after writes, updates at old versions, and looks at the
    /// clock. Writes below `proof/` only and removes it again. An embedded store that does not exist is made.
    #[command(after_help = "Example:\n  wigwag doctor --store s3://orders --endpoint http://127.0.0.1:9000")]
    Doctor,
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
}
