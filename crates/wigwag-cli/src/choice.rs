//! Which of store and server is meant: a flag beats the environment, and the two do not go together.

use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _};

use crate::args::{Args, StoreArgs};
use crate::error::Failed;

/// The call as it was written.
pub(crate) fn args() -> Result<Args, Failed> {
    let matches = Args::command().get_matches();
    let mut args = Args::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    args.store.is_given = source(&matches, "store") != Some(ValueSource::DefaultValue);
    settle(&mut args.store, |name| source(&matches, name))?;
    Ok(args)
}

/// Where a value came from; a flag may stand before the command or after it.
fn source(matches: &ArgMatches, name: &str) -> Option<ValueSource> {
    let here = matches.value_source(name);
    let below = matches.subcommand().and_then(|(_, matches)| source(matches, name));
    here.max(below)
}

/// Leaves the server out if the store is meant.
fn settle(args: &mut StoreArgs, source: impl Fn(&str) -> Option<ValueSource>) -> Result<(), Failed> {
    let is_flag = |name: &str| source(name) == Some(ValueSource::CommandLine);
    let Some(server) = &args.server else { return without_server(is_flag("token_file")) };
    match (is_flag("store"), is_flag("server")) {
        (true, true) => {
            let what = format!("a store and a server are named: `{}` and `{server}`", args.store);
            return Err(
                Failed::wrong(what).hint("leave out `--store` to ask the server, `--server` to look at the store")
            );
        }
        (true, false) => {
            args.server = None;
            return without_server(is_flag("token_file"));
        }
        (false, false) if source("store") == Some(ValueSource::EnvVariable) => {
            return Err(Failed::wrong("`WIGWAG_STORE` and `WIGWAG_SERVER` are both set")
                .hint("unset one of them, or say which with `--store` or `--server`"));
        }
        (false, _) => {}
    }
    let of_buckets = ["endpoint", "region", "profile", "virtual_hosted"];
    match of_buckets.into_iter().find(|name| is_flag(name)) {
        Some(name) => {
            Err(Failed::wrong(format!("`--{}` is about a bucket, and `{server}` is a server", name.replace('_', "-")))
                .hint("leave it out: the server has its own way to its store"))
        }
        None => Ok(()),
    }
}

fn without_server(token_file: bool) -> Result<(), Failed> {
    match token_file {
        true => Err(Failed::wrong("`--token-file` is for a server, and none is named")
            .hint("name it with `--server`, or leave the token out")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is chosen of a call: the server, or else the store.
    fn chosen(words: &[&str]) -> Result<String, Failed> {
        let matches = Args::command().try_get_matches_from([&["wigwag"], words].concat()).unwrap();
        let mut args = Args::from_arg_matches(&matches).unwrap();
        settle(&mut args.store, |name| source(&matches, name))?;
        Ok(args.store.server.unwrap_or(args.store.store))
    }

    #[test]
    fn flags_count_wherever_they_stand() {
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
