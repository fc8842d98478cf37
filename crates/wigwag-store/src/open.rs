//! From a URL to a store with the usual layers around it.

use std::sync::Arc;

#[cfg(feature = "_bucket")]
use crate::{Announced, Bucket, BucketSettings, Fleet, FleetSettings, Prefix, Proven, Retry};
#[cfg(feature = "embedded")]
use crate::{Embedded, EmbeddedSettings};
use crate::{Error, Memory, Meter, Notices, Result, RetrySettings, Store, Usage};
#[cfg(feature = "remote")]
use crate::{Nudged, nudged::Source};

/// Settings for opening a store; settings that do not apply to its kind are ignored.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct OpenSettings {
    /// How an embedded store is opened.
    #[cfg(feature = "embedded")]
    pub embedded: EmbeddedSettings,
    /// How a bucket is reached.
    #[cfg(feature = "_bucket")]
    pub bucket: BucketSettings,
    /// Retry policy for failed requests to a bucket.
    pub retry: RetrySettings,
    /// How processes that share a bucket notify each other.
    #[cfg(feature = "_bucket")]
    pub fleet: FleetSettings,
    /// Leave the bucket unproven: for `doctor`, which proves it itself.
    pub unproven: bool,
}

/// A store that was opened by its URL.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The store, with its layers.
    pub store: Arc<dyn Store>,
    /// The embedded store, if the opened store is one.
    #[cfg(feature = "embedded")]
    pub embedded: Option<Embedded>,
    /// Notifications, where the store itself announces nothing: a bucket's.
    pub notices: Option<Notices>,
    meter: Arc<dyn Metered>,
}

impl Opened {
    /// Wraps a store without layers other than the meter.
    fn of<S: Store + Clone>(store: S) -> Self {
        Self::measured(Meter::new(store))
    }

    fn measured<S: Store + Clone>(meter: Meter<S>) -> Self {
        Self {
            store: Arc::new(meter.clone()),
            #[cfg(feature = "embedded")]
            embedded: None,
            notices: None,
            meter: Arc::new(meter),
        }
    }

    /// Requests to the store so far.
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
        return Ok(Opened::of(Memory::new()));
    }
    if let Some((scheme, rest)) = url.split_once("://").filter(|(scheme, _)| *scheme != "file") {
        return match scheme {
            "http" | "https" => open_server(url, settings),
            "s3" | "gs" | "az" => open_bucket(scheme, rest, settings),
            _ => Err(Error::invalid(format!("unknown store scheme: `{scheme}://`")).hint(FORMS)),
        };
    }
    let path = url.strip_prefix("file://").or_else(|| url.strip_prefix("file:")).unwrap_or(url);
    if path.is_empty() {
        return Err(Error::invalid("want a store, got an empty name").hint(FORMS));
    }
    if let Some((scheme, _)) = path.split_once(':').filter(|(scheme, _)| is_scheme(scheme)) {
        return Err(Error::invalid(format!("unknown store scheme: `{scheme}:`")).hint(FORMS));
    }
    open_embedded(path, settings)
}

#[cfg(feature = "embedded")]
fn open_embedded(path: &str, settings: &OpenSettings) -> Result<Opened> {
    let store = Embedded::open_with(std::path::PathBuf::from(path), &settings.embedded)?;
    Ok(Opened { embedded: Some(store.clone()), ..Opened::of(store) })
}

#[cfg(not(feature = "embedded"))]
fn open_embedded(path: &str, _: &OpenSettings) -> Result<Opened> {
    Err(not_built(path, "embedded"))
}

/// The kind of store exists, and this program was built without it.
#[cfg(not(all(feature = "embedded", feature = "s3", feature = "gcs", feature = "azure", feature = "remote")))]
pub(crate) fn not_built(url: &str, feature: &str) -> Error {
    Error::invalid(format!("this program was built without the stores of `{url}`"))
        .hint(format!("enable the feature `{feature}` of `wigwag` or `wigwag-store`"))
}

const FORMS: &str = "a store is `./dir`, `file:dir`, `memory:`, `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`, \
     or a server's `http://host:port/s3`";

#[cfg(not(feature = "_bucket"))]
fn open_bucket(scheme: &str, rest: &str, _: &OpenSettings) -> Result<Opened> {
    let feature = match scheme {
        "gs" => "gcs",
        "az" => "azure",
        _ => "s3",
    };
    Err(not_built(&format!("{scheme}://{rest}"), feature))
}

#[cfg(feature = "_bucket")]
fn open_bucket(scheme: &str, rest: &str, settings: &OpenSettings) -> Result<Opened> {
    let (name, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let bucket = Bucket::open(&format!("{scheme}://{name}"), &settings.bucket)?;
    let endpoint = settings.bucket.endpoint.as_deref().unwrap_or_default();
    let meter = Meter::new(Prefix::new(bucket, prefix)?);
    let opened = layered(meter, settings, &format!("{scheme}://{name} {endpoint}"));
    let notices = Notices::of(&format!("{scheme}://{name}/{prefix} {endpoint}"));
    let fleet = FleetSettings { clock: Arc::clone(&settings.bucket.clock), ..settings.fleet.clone() };
    // `None` if another handle of this process has connected it already.
    let _ = Fleet::connect(Arc::clone(&opened.store), &notices, fleet);
    let store = Arc::new(Announced::new(opened.store, notices.clone()));
    Ok(Opened { store, notices: Some(notices), ..opened })
}

#[cfg(not(feature = "remote"))]
fn open_server(url: &str, _: &OpenSettings) -> Result<Opened> {
    Err(not_built(url, "remote"))
}

/// The bucket of a wigwag server, with notifications of its puts.
#[cfg(feature = "remote")]
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
    Ok(layered(Meter::new(Nudged::new(bucket, source)), settings, url))
}

#[cfg(feature = "_bucket")]
fn layered<S: Store + Clone>(meter: Meter<S>, settings: &OpenSettings, address: &str) -> Opened {
    let retry = Retry::with_clock(meter.clone(), settings.retry.clone(), Arc::clone(&settings.bucket.clock));
    let retry = retry.throttled_with(address);
    let store: Arc<dyn Store> = if settings.unproven { Arc::new(retry) } else { Arc::new(Proven::new(retry)) };
    Opened { store, ..Opened::measured(meter) }
}

/// `C:` is a disk and `a:b` may be a folder, but a word before a colon is most likely a mistyped URL.
fn is_scheme(text: &str) -> bool {
    text.len() > 1 && text.chars().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit())
}

#[cfg(all(test, feature = "remote"))]
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
