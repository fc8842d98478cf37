//! The store in a bucket: S3 and its kin, GCS, Azure.
//!
//! `object_store` is used inside this module only; none of its types leave it. Its own retries are off, because they would
//! repeat a create unseen; [`Retry`](crate::Retry) repeats only idempotent requests.
//!
//! What if we die here? A batch is executed in order, one request after another, so the landed operations are always a
//! prefix of it. Callers order their batches so that every prefix is harmless.
//!
//! What an answer means (`failure.rs`): 412 is a lost race. **409 is not**: S3 gives it when conditional
//! writes collide and nothing landed. A lost connection, 500, 502 and 504 leave it open whether a write landed.

#[cfg(feature = "s3")]
mod credentials;
mod date;
mod failure;
mod http;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
#[cfg(feature = "s3")]
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
#[cfg(feature = "azure")]
use object_store::azure::MicrosoftAzureBuilder;
#[cfg(feature = "gcs")]
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path;
use object_store::{
    ClientOptions, GetOptions, ObjectMeta, ObjectStore, PutMode, PutOptions, RetryConfig, UpdateVersion,
};

use self::date::DateClock;
use self::failure::{Asked, Failure};
use self::http::{Connector, watched};
use crate::limits::LIST_PAGE;
use crate::{
    Action, Batch, Changes, Clock, Error, ErrorKind, LAYOUT_KEY, Listed, Notifications, Now, Object, Operation, Page,
    Peers, Put, Receipt, Result, Stamp, Store, System, Traits, Version, VersionForm, When,
};

/// A whole bucket. Put [`Prefix`](crate::Prefix) around it for a corner of one, [`Retry`](crate::Retry) around
/// that, and [`Proven`](crate::Proven) outermost; [`open`](crate::open()) does.
#[derive(Clone)]
pub struct Bucket {
    objects: Arc<dyn ObjectStore>,
    pages: Arc<dyn Pages>,
    dates: Arc<DateClock>,
    url: String,
}

/// Well-known access key and secret of a server without authentication.
#[cfg(feature = "remote")]
const OPEN_SECRET: &str = "wigwag";

/// How to reach a bucket; missing settings come from the provider's usual environment variables.
#[derive(Clone)]
#[non_exhaustive]
pub struct BucketSettings {
    /// Address of a server other than the provider's own (`http://127.0.0.1:9000`).
    pub endpoint: Option<String>,
    /// The region; `us-east-1` by default.
    pub region: Option<String>,
    /// The profile in the AWS configuration files.
    pub profile: Option<String>,
    /// Access key id and secret, unless they come from the environment.
    pub keys: Option<(String, String)>,
    /// Whether the bucket's name is in the host name instead of the path.
    pub virtual_hosted: bool,
    /// Allows plain HTTP to a wigwag server on another machine, which exposes the access key's secret. `WIGWAG_ALLOW_HTTP=1`
    /// does the same.
    pub allow_http: bool,
    /// Timeout of one request.
    pub request_max: Duration,
    /// Timeout of connecting.
    pub connect_max: Duration,
    /// The machine's clock, against which the bucket's is measured.
    pub clock: Arc<dyn Clock>,
}

impl Default for BucketSettings {
    fn default() -> Self {
        Self {
            endpoint: None,
            region: None,
            profile: None,
            keys: None,
            virtual_hosted: false,
            allow_http: false,
            request_max: Duration::from_secs(10),
            connect_max: Duration::from_secs(5),
            clock: Arc::new(System),
        }
    }
}

impl std::fmt::Debug for BucketSettings {
    /// Without the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BucketSettings")
            .field("endpoint", &self.endpoint)
            .field("region", &self.region)
            .field("profile", &self.profile)
            .field("access_key_id", &self.keys.as_ref().map(|(id, _)| id))
            .finish_non_exhaustive()
    }
}

/// The paginated list of `object_store`, with a `Debug` bound.
trait Pages: PaginatedListStore + std::fmt::Debug {}
impl<T: PaginatedListStore + std::fmt::Debug> Pages for T {}

impl std::fmt::Debug for Bucket {
    /// Omits the fields, which contain secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bucket").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Bucket {
    /// Opens `s3://bucket`, `gs://bucket` or `az://container`. Nothing is sent yet.
    pub fn open(url: &str, settings: &BucketSettings) -> Result<Self> {
        let (scheme, name) =
            url.split_once("://").ok_or_else(|| Error::invalid(format!("not a bucket's URL: `{url}`")))?;
        if name.is_empty() || name.contains('/') {
            return Err(Error::invalid(format!("want a bucket's name after `{scheme}://`, got: `{name}`")));
        }
        // Without an installed provider reqwest would fail to create a client; another may be installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let dates = Arc::new(DateClock::new(Arc::clone(&settings.clock)));
        let connector = Connector { dates: Arc::clone(&dates) };
        match scheme {
            #[cfg(feature = "s3")]
            "s3" => Ok(Self::from(settings.s3(name, connector)?, dates, url)),
            #[cfg(feature = "gcs")]
            "gs" => Ok(Self::from(settings.gcs(name, connector)?, dates, url)),
            #[cfg(feature = "azure")]
            "az" => Ok(Self::from(settings.azure(name, connector)?, dates, url)),
            #[cfg(not(feature = "s3"))]
            "s3" => Err(crate::open::not_built(url, "s3")),
            #[cfg(not(feature = "gcs"))]
            "gs" => Err(crate::open::not_built(url, "gcs")),
            #[cfg(not(feature = "azure"))]
            "az" => Err(crate::open::not_built(url, "azure")),
            other => Err(Error::invalid(format!("want `s3://`, `gs://` or `az://`, got: `{other}://`"))),
        }
    }

    fn from<T: ObjectStore + PaginatedListStore + std::fmt::Debug>(store: T, dates: Arc<DateClock>, url: &str) -> Self {
        let store = Arc::new(store);
        Self { objects: Arc::clone(&store) as Arc<dyn ObjectStore>, pages: store, dates, url: url.to_owned() }
    }

    async fn put(&self, put: &Put) -> Result<Version> {
        let asked = Asked { action: Action::Write, key: &put.key, url: &self.url, creates: put.when == When::Absent };
        let mode = match &put.when {
            When::Any => PutMode::Overwrite,
            When::Absent => PutMode::Create,
            When::Version(Version(VersionForm::Tag { e_tag, version })) if e_tag.is_some() || version.is_some() => {
                PutMode::Update(UpdateVersion { e_tag: e_tag.clone(), version: version.clone() })
            }
            // The version of another store, or an unknown one, matches no object here.
            When::Version(_) => return Err(Error::changed(&put.key)),
        };
        let options = PutOptions { mode, ..PutOptions::default() };
        let path = path(&put.key)?;
        let (answer, seen) = watched(self.objects.put_opts(&path, put.body.clone().into(), options)).await;
        let put = answer.map_err(|error| Failure { error, seen }.explain(&asked))?;
        Ok(Version(VersionForm::Tag { e_tag: put.e_tag, version: put.version }))
    }

    async fn delete(&self, keys: &[&str]) -> Result<()> {
        let paths = keys.iter().map(|key| path(key)).collect::<Result<Vec<_>>>()?;
        let stream = futures_util::stream::iter(paths.into_iter().map(Ok)).boxed();
        let (answers, seen) = watched(self.objects.delete_stream(stream).collect::<Vec<_>>()).await;
        for (answer, key) in answers.into_iter().zip(keys) {
            match answer {
                Ok(_) => {}
                Err(error) => {
                    let asked = Asked { action: Action::Write, key, url: &self.url, creates: false };
                    Failure { error, seen }.or_absent::<()>(&asked)?;
                }
            }
        }
        Ok(())
    }

    /// One request: keys in order, and the cursor of the next page.
    async fn page(
        &self,
        prefix: &str,
        after: &str,
        limit: usize,
        token: Option<String>,
    ) -> Result<(Vec<Listed>, Option<String>)> {
        let options = PaginatedListOptions {
            offset: (!after.is_empty()).then(|| after.to_owned()),
            max_keys: Some(limit),
            page_token: token,
            ..PaginatedListOptions::default()
        };
        // When it lists Azure, `object_store` omits an object whose name equals the prefix; one letter less finds it.
        let exact = self.url.starts_with("az://") && !prefix.ends_with('/');
        let shorter = || prefix.char_indices().next_back().map_or("", |(last, _)| &prefix[..last]);
        let prefix_asked = if exact { shorter() } else { prefix };
        let prefix_wanted = (!prefix_asked.is_empty()).then_some(prefix_asked);
        let (answer, seen) = watched(self.pages.list_paginated(prefix_wanted, options)).await;
        let asked = Asked { action: Action::List, key: prefix, url: &self.url, creates: false };
        let found = answer.map_err(|error| Failure { error, seen }.explain(&asked))?;
        let mut entries: Vec<Listed> = found.result.objects.into_iter().map(listed).collect();
        // Servers differ in whether `after` itself is returned, and our guarantees include the order.
        entries.retain(|entry| entry.key.as_str() > after && entry.key.starts_with(prefix));
        entries.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        Ok((entries, found.page_token))
    }
}

#[async_trait]
impl Store for Bucket {
    async fn get(&self, key: &str) -> Result<Option<Object>> {
        crate::check_key(key)?;
        let path = path(key)?;
        let asked = Asked { action: Action::Get, key, url: &self.url, creates: false };
        let read = async {
            let found = self.objects.get_opts(&path, GetOptions::default()).await?;
            let meta = found.meta.clone();
            Ok((meta, found.bytes().await?))
        };
        match watched(read).await {
            (Ok((meta, body)), _) => {
                let modified = listed(meta.clone()).modified;
                Ok(Some(Object {
                    body,
                    version: Version(VersionForm::Tag { e_tag: meta.e_tag, version: meta.version }),
                    modified,
                }))
            }
            (Err(error), seen) => Failure { error, seen }.or_absent(&asked),
        }
    }

    async fn write(&self, mut batch: Batch) -> Result<Receipt> {
        batch.check()?;
        batch.check_parts()?;
        let mut receipt = Receipt::default();
        if batch.wants_stamp() {
            let stamp = batch.stamp_at(self.now().await?.at)?;
            batch.fill(stamp);
            receipt.stamp = Some(stamp);
        }
        let mut landed = 0;
        while let Some(operation) = batch.operations.get(landed) {
            let done = match operation {
                Operation::Put(put) => self.put(put).await.map(|version| {
                    receipt.versions.push(version);
                    1
                }),
                Operation::Delete(_) => {
                    let keys = deletes(&batch.operations[landed..]);
                    self.delete(&keys).await.map(|()| keys.len())
                }
            };
            match done {
                Ok(more) => landed += more,
                Err(error) => return Err(error.after_landing(landed, receipt.versions)),
            }
        }
        Ok(receipt)
    }

    /// A server's page may be short or empty without being the last: only the token decides.
    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page> {
        let (mut entries, mut token) = (Vec::new(), None);
        while entries.len() < limit {
            let wanted = (limit - entries.len()).min(LIST_PAGE);
            let (more, next) = self.page(prefix, after, wanted, token).await?;
            entries.extend(more);
            token = next;
            if token.is_none() {
                break;
            }
        }
        Ok(Page { entries, more: token.is_some() })
    }

    async fn now(&self) -> Result<Now> {
        if let Some(now) = self.dates.now() {
            return Ok(now);
        }
        // Every response has a date, even a rejection.
        let answer = self.get(LAYOUT_KEY).await;
        if let Some(now) = self.dates.now() {
            return Ok(now);
        }
        answer?;
        self.dates.now().ok_or_else(|| {
            Error::new(ErrorKind::Invalid, "the server's answers carry no `Date`, so that its time cannot be known")
                .on(Action::Now, &self.url)
        })
    }

    fn changes(&self, _: &str) -> Changes {
        Changes::silent()
    }

    fn traits(&self) -> Traits {
        Traits {
            kind: "bucket",
            atomic: false,
            stamps_at_commit: false,
            update_if: true,
            notifications: Notifications::Silent,
        }
    }

    fn peers(&self) -> Option<Arc<dyn Peers>> {
        None
    }
}

/// The deletes at the head, as many as one request takes where the server can.
fn deletes(operations: &[Operation]) -> Vec<&str> {
    let keys = operations.iter().take(DELETES_MAX).map_while(|operation| match operation {
        Operation::Delete(delete) => Some(delete.key.as_str()),
        Operation::Put(_) => None,
    });
    keys.collect()
}

/// Number of objects that S3 deletes in one request.
const DELETES_MAX: usize = 1_000;

fn path(key: &str) -> Result<Path> {
    Path::parse(key).map_err(|error| Error::invalid(format!("not a key a bucket can hold: `{key}`")).because(error))
}

fn listed(meta: ObjectMeta) -> Listed {
    let micros = u64::try_from(meta.last_modified.timestamp_micros()).unwrap_or_default();
    Listed { key: meta.location.into(), size: meta.size, modified: Stamp::from_micros(micros) }
}

impl BucketSettings {
    /// The access key and secret for a wigwag server: the configured ones, else those of the environment, else the
    /// defaults that a server without tokens accepts.
    #[cfg(feature = "remote")]
    pub(crate) fn keys_of_server(&self) -> Result<(String, String)> {
        if let Some(keys) = &self.keys {
            return Ok(keys.clone());
        }
        if let Some(name) = &self.profile {
            let found = credentials::Profile::load(Some(name))?.keys();
            let none = || Error::new(ErrorKind::Denied, format!("profile `{name}` has no access key and secret"));
            return found.ok_or_else(none);
        }
        let variable = |name| credentials::variable(name);
        let found = variable("AWS_ACCESS_KEY_ID").zip(variable("AWS_SECRET_ACCESS_KEY"));
        Ok(found.unwrap_or_else(|| (OPEN_SECRET.to_owned(), OPEN_SECRET.to_owned())))
    }

    #[cfg(feature = "remote")]
    /// Rejects plain HTTP to another machine, which would expose the secret.
    pub(crate) fn check_server(&self, url: &reqwest::Url, keys: &(String, String)) -> Result<()> {
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let is_here = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
        let is_secret = keys.1 != OPEN_SECRET;
        let is_allowed = self.allow_http || credentials::is_set(&credentials::variable, "WIGWAG_ALLOW_HTTP");
        if url.scheme() != "http" || is_here || !is_secret || is_allowed {
            return Ok(());
        }
        let what = format!(
            "`http://{host}` is not on this machine: plain HTTP would expose the secret of access key `{}`",
            keys.0
        );
        Err(Error::new(ErrorKind::Denied, what)
            .hint("use `https://`, or set `WIGWAG_ALLOW_HTTP=1` on a network that you trust"))
    }

    fn client(&self, endpoint: Option<&str>) -> ClientOptions {
        let plain = endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"));
        ClientOptions::new()
            .with_timeout(self.request_max)
            .with_connect_timeout(self.connect_max)
            .with_allow_http(plain)
    }

    #[cfg(feature = "s3")]
    fn s3(&self, name: &str, connector: Connector) -> Result<object_store::aws::AmazonS3> {
        if name.ends_with("--x-s3") {
            return Err(Error::invalid(format!(
                "`{name}` is a directory bucket (S3 Express), which lists in no order"
            ))
            .hint("use an ordinary bucket: wigwag finds due work by listing in order"));
        }
        let profile = credentials::Profile::load(self.profile.as_deref())?;
        let mut builder = AmazonS3Builder::from_env().with_bucket_name(name);
        builder = profile.fill(builder, self, &credentials::variable)?;
        let virtual_hosted =
            self.virtual_hosted || credentials::is_set(&credentials::variable, "AWS_VIRTUAL_HOSTED_STYLE_REQUEST");
        let endpoint = self.endpoint.clone().or_else(|| profile.endpoint(&credentials::variable));
        if let Some(endpoint) = &endpoint {
            let (scheme, host) = check_endpoint(endpoint)?;
            let endpoint = if virtual_hosted { format!("{scheme}://{name}.{host}") } else { endpoint.clone() };
            // Both are set: the environment's value for the second would override the first.
            builder = builder.with_endpoint(&endpoint).with_config(AmazonS3ConfigKey::S3Endpoint, endpoint);
        }
        builder
            .with_virtual_hosted_style_request(virtual_hosted)
            .with_conditional_put(S3ConditionalPut::ETagMatch)
            .with_client_options(self.client(endpoint.as_deref()))
            .with_retry(no_retries())
            .with_http_connector(connector)
            .build()
            .map_err(|error| unopened(name, error))
    }

    #[cfg(feature = "gcs")]
    fn gcs(&self, name: &str, connector: Connector) -> Result<object_store::gcp::GoogleCloudStorage> {
        let mut builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(name);
        if let Some(endpoint) = &self.endpoint {
            check_endpoint(endpoint)?;
            builder = builder.with_base_url(endpoint);
        }
        builder
            .with_client_options(self.client(self.endpoint.as_deref()))
            .with_retry(no_retries())
            .with_http_connector(connector)
            .build()
            .map_err(|error| unopened(name, error))
    }

    #[cfg(feature = "azure")]
    fn azure(&self, name: &str, connector: Connector) -> Result<object_store::azure::MicrosoftAzure> {
        let mut builder = MicrosoftAzureBuilder::from_env().with_container_name(name);
        if let Some(endpoint) = &self.endpoint {
            check_endpoint(endpoint)?;
            builder = builder.with_endpoint(endpoint.clone());
        }
        builder
            .with_client_options(self.client(self.endpoint.as_deref()))
            .with_retry(no_retries())
            .with_http_connector(connector)
            .build()
            .map_err(|error| unopened(name, error))
    }
}

/// Splits an endpoint into its scheme and the rest.
fn check_endpoint(endpoint: &str) -> Result<(&str, &str)> {
    match endpoint.split_once("://") {
        Some((scheme @ ("http" | "https"), host)) if !host.is_empty() => Ok((scheme, host)),
        _ => Err(Error::invalid(format!("an endpoint starts with `https://` or `http://`, got: `{endpoint}`"))),
    }
}

fn unopened(name: &str, error: object_store::Error) -> Error {
    Error::invalid(format!("cannot open bucket `{name}`: {error}")).because(error)
}

/// Retries are left to [`Retry`](crate::Retry), which knows the idempotent requests.
fn no_retries() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}
