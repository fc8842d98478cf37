//! From a URL to a store with the usual layers around it.

use std::path::PathBuf;
use std::sync::Arc;

use crate::nudged::Source;
use crate::{
    Bucket, BucketSettings, Embedded, EmbeddedSettings, Error, Memory, Meter, Nudged, Prefix, Proven, Result, Retry,
    RetrySettings, Store, Usage,
};

/// How a store is opened; what its kind has no use for is passed over.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct OpenSettings {
    /// How an embedded store is opened.
    pub embedded: EmbeddedSettings,
    /// How a bucket is reached.
    pub bucket: BucketSettings,
    /// How often failed requests to a bucket are repeated.
    pub retry: RetrySettings,
    /// Leave the bucket unproven: for `doctor`, which proves it itself.
    pub unproven: bool,
}

/// A store that was opened by its URL.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The store, with its layers.
    pub store: Arc<dyn Store>,
    /// The same as an embedded store, if it is one.
    pub embedded: Option<Embedded>,
    meter: Arc<dyn Metered>,
}

impl Opened {
    /// What was asked of the store so far.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.meter.usage()
    }
}

trait Metered: std::fmt::Debug + Send + Sync {
    fn usage(&self) -> Usage;
}

impl<S: Store> Metered for Meter<S> {
    fn usage(&self) -> Usage {
        Self::usage(self)
    }
}

/// Opens the store that a URL names.
///
/// `./dir`, `/dir` and `file:dir` are embedded; `memory:` is gone with the process; `s3://bucket/prefix`,
/// `gs://…` and `az://…` are buckets, and `http://host:port/s3` is that of a wigwag server. Nothing is sent to a bucket yet. Blocks while an embedded store is opened.
pub fn open(url: &str, settings: &OpenSettings) -> Result<Opened> {
    if url == "memory:" {
        let meter = Meter::new(Memory::new());
        return Ok(Opened { store: Arc::new(meter.clone()), embedded: None, meter: Arc::new(meter) });
    }
    if let Some((scheme, rest)) = url.split_once("://").filter(|(scheme, _)| *scheme != "file") {
        return match scheme {
            "http" | "https" => open_server(url, settings),
            _ => open_bucket(scheme, rest, settings),
        };
    }
    let path = url.strip_prefix("file://").or_else(|| url.strip_prefix("file:")).unwrap_or(url);
    if path.is_empty() {
        return Err(Error::invalid("want a store, got an empty name").hint(FORMS));
    }
    if let Some((scheme, _)) = path.split_once(':').filter(|(scheme, _)| is_scheme(scheme)) {
        return Err(Error::invalid(format!("no kind of store is called `{scheme}:`")).hint(FORMS));
    }
    let store = Embedded::open_with(PathBuf::from(path), &settings.embedded)?;
    let meter = Meter::new(store.clone());
    Ok(Opened { store: Arc::new(meter.clone()), embedded: Some(store), meter: Arc::new(meter) })
}

const FORMS: &str = "a store is `./dir`, `file:dir`, `memory:`, `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`, \
     or a server's `http://host:port/s3`";

fn open_bucket(scheme: &str, rest: &str, settings: &OpenSettings) -> Result<Opened> {
    if !["s3", "gs", "az"].contains(&scheme) {
        return Err(Error::invalid(format!("no kind of store is called `{scheme}://`")).hint(FORMS));
    }
    let (name, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let bucket = Bucket::open(&format!("{scheme}://{name}"), &settings.bucket)?;
    Ok(layered(Meter::new(Prefix::new(bucket, prefix)?), settings))
}

/// The bucket of a wigwag server, which tells of what is put into it.
fn open_server(url: &str, settings: &OpenSettings) -> Result<Opened> {
    let url = url.trim_end_matches('/');
    let home = url.strip_suffix("/s3").filter(|home| home.split_once("://").is_some_and(|(_, host)| !host.is_empty()));
    let plain = home.filter(|home| !home.contains(['@', '?', '#']) && !home.contains(char::is_whitespace));
    let changes = plain.and_then(|home| reqwest::Url::parse(&format!("{home}/v1/changes")).ok());
    let Some(changes) = changes else {
        let what =
            "a server's store is `http://host:port/s3` or `https://…/s3`, without names, queries or spaces in it";
        return Err(Error::invalid(what).hint("keys come from `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`"));
    };
    if settings.bucket.endpoint.is_some() {
        let what = format!("the store `{url}` says by itself where it is, and another endpoint is given");
        return Err(Error::invalid(what).hint("leave `--endpoint` out"));
    }
    let mut reached = settings.bucket.clone();
    let keys = reached.keys_of_server()?;
    reached.check_server(&changes, &keys)?;
    (reached.endpoint, reached.keys) = (Some(url.to_owned()), Some(keys.clone()));
    let bucket = Bucket::open("s3://wigwag", &reached)?;
    let (connect_max, clock) = (reached.connect_max, Arc::clone(&reached.clock));
    let source = Source { url: changes, keys, connect_max, clock };
    Ok(layered(Meter::new(Nudged::new(bucket, source)), settings))
}

fn layered<S: Store + Clone>(meter: Meter<S>, settings: &OpenSettings) -> Opened {
    let retry = Retry::with_clock(meter.clone(), settings.retry.clone(), Arc::clone(&settings.bucket.clock));
    let store: Arc<dyn Store> = if settings.unproven { Arc::new(retry) } else { Arc::new(Proven::new(retry)) };
    Opened { store, embedded: None, meter: Arc::new(meter) }
}

/// `C:` is a disk and `a:b` may be a folder, but a word before a colon is most likely a mistyped URL.
fn is_scheme(text: &str) -> bool {
    text.len() > 1 && text.chars().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_sent_to_a_server_over_plain_http_beyond_this_machine() {
        let opened = |url: &str, secret: &str, allow_http: bool| {
            let mut settings = OpenSettings::default();
            settings.bucket.keys = Some(("worker".to_owned(), secret.to_owned()));
            settings.bucket.allow_http = allow_http;
            open(url, &settings)
        };
        for refused in ["http://192.0.2.1:7070/s3", "http://wigwag.example.com/s3", "http://localhost.example.com/s3"] {
            let error = opened(refused, "s3cret of the key", false).unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::Denied, "{error}");
            assert!(error.advice().is_some_and(|advice| advice.contains("WIGWAG_ALLOW_HTTP")), "{error:?}");
            assert!(!format!("{error:?}").contains("s3cret"), "{error:?}");
            assert!(opened(refused, "s3cret of the key", true).is_ok(), "allowed by the setting");
            assert!(opened(refused, "wigwag", false).is_ok(), "the well-known key is not secret");
        }
        for safe in
            ["https://wigwag.example.com/s3", "http://127.0.0.1:7070/s3", "http://localhost/s3", "http://[::1]:1/s3"]
        {
            assert!(opened(safe, "s3cret of the key", false).is_ok(), "{safe}");
        }
    }
}
