//! Selects the store or the server: a flag overrides the environment, and flags for both conflict.

use std::ffi::OsString;

use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _};

use crate::args::{Args, StoreArgs};
use crate::error::Failed;

/// Parses the command line.
pub(crate) fn args(args: impl IntoIterator<Item = OsString>) -> Result<Args, Failed> {
    let matches = Args::command().get_matches_from(args);
    let mut args = Args::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    args.store.is_given = source(&matches, "store") != Some(ValueSource::DefaultValue);
    settle(&mut args.store, |name| source(&matches, name))?;
    Ok(args)
}

/// Returns the source of a value; a flag may precede or follow the command.
fn source(matches: &ArgMatches, name: &str) -> Option<ValueSource> {
    let here = matches.value_source(name);
    let below = matches.subcommand().and_then(|(_, matches)| source(matches, name));
    here.max(below)
}

/// Drops the server if the store is selected.
fn settle(args: &mut StoreArgs, source: impl Fn(&str) -> Option<ValueSource>) -> Result<(), Failed> {
    let is_flag = |name: &str| source(name) == Some(ValueSource::CommandLine);
    let Some(server) = &args.server else { return without_server(is_flag("token_file")) };
    match (is_flag("store"), is_flag("server")) {
        (true, true) => {
            let what = format!("`--store` and `--server` are mutually exclusive: `{}` and `{server}`", args.store);
            return Err(Failed::wrong(what).hint("use only one of them"));
        }
        (true, false) => {
            args.server = None;
            return without_server(is_flag("token_file"));
        }
        (false, false) if source("store") == Some(ValueSource::EnvVariable) => {
            return Err(Failed::wrong("`WIGWAG_STORE` and `WIGWAG_SERVER` are both set")
                .hint("unset one of them, or use the flag `--store` or `--server`"));
        }
        (false, _) => {}
    }
    let of_buckets = ["endpoint", "region", "profile", "virtual_hosted"];
    match of_buckets.into_iter().find(|name| is_flag(name)) {
        Some(name) => Err(Failed::wrong(format!(
            "`--{}` applies to a bucket, not to the server `{server}`",
            name.replace('_', "-")
        ))
        .hint("omit it: the server has its own store settings")),
        None => Ok(()),
    }
}

fn without_server(token_file: bool) -> Result<(), Failed> {
    match token_file {
        true => {
            Err(Failed::wrong("`--token-file` needs `--server`").hint("add `--server URL`, or omit `--token-file`"))
        }
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the server of a command line, or else the store.
    fn chosen(words: &[&str]) -> Result<String, Failed> {
        let matches = Args::command().try_get_matches_from([&["wigwag"], words].concat()).unwrap();
        let mut args = Args::from_arg_matches(&matches).unwrap();
        settle(&mut args.store, |name| source(&matches, name))?;
        Ok(args.store.server.unwrap_or(args.store.store))
    }

    #[test]
    fn flags_apply_before_and_after_the_command() {
        assert_eq!(chosen(&["list"]).unwrap(), "./.wigwag");
        assert_eq!(chosen(&["list", "--store", "a"]).unwrap(), "a");
        assert_eq!(chosen(&["--server", "http://a", "list"]).unwrap(), "http://a");
        assert_eq!(chosen(&["task", "--server", "http://a", "status", "x"]).unwrap(), "http://a");
        for wrong in [
            &["--store", "a", "list", "--server", "http://a"][..],
            &["task", "status", "x", "--server", "http://a", "--store", "a"],
            &["list", "--server", "http://a", "--region", "here"],
            &["list", "--token-file", "a"],
        ] {
            assert!(chosen(wrong).is_err(), "{wrong:?}");
        }
    }
}
