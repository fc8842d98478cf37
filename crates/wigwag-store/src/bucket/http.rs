//! The HTTP service under `object_store`: reads the `Date` of every response, and keeps details
//! that `object_store` drops.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use object_store::client::{
    ClientOptions, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
    ReqwestConnector,
};

use super::date::DateClock;

tokio::task_local! {
    /// Details of the last response to the current task's request.
    static SEEN: Arc<Mutex<Seen>>;
}

/// Details of a response, before `object_store` converts it to an error.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) status: Option<u16>,
    pub(super) retry_after: Option<Duration>,
    pub(super) broken: Option<HttpErrorKind>,
}

/// Runs a request and returns the details of its response.
pub(super) async fn watched<T>(request: impl Future<Output = T>) -> (T, Seen) {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let answer = SEEN.scope(Arc::clone(&seen), request).await;
    let seen = *seen.lock().unwrap_or_else(PoisonError::into_inner);
    (answer, seen)
}

#[derive(Debug)]
pub(super) struct Connector {
    pub(super) dates: Arc<DateClock>,
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let inner = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(Service { inner, dates: Arc::clone(&self.dates) }))
    }
}

#[derive(Debug)]
struct Service {
    inner: HttpClient,
    dates: Arc<DateClock>,
}

#[async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        // Credentials are fetched from other hosts, whose time is not the bucket's.
        let is_ours = !request.uri().host().is_some_and(is_metadata);
        let asked = self.dates.boot();
        let answer = self.inner.execute(request).await;
        let seen = match &answer {
            Ok(response) => {
                let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
                if let Some(date) = header("date").filter(|_| is_ours) {
                    self.dates.observe(asked, self.dates.boot(), date);
                }
                let retry_after =
                    header("retry-after").and_then(|text| text.trim().parse().ok()).map(Duration::from_secs);
                Seen { status: Some(response.status().as_u16()), retry_after, broken: None }
            }
            Err(error) => Seen { status: None, retry_after: None, broken: Some(error.kind()) },
        };
        let _ = SEEN.try_with(|cell| *cell.lock().unwrap_or_else(PoisonError::into_inner) = seen);
        answer
    }
}

/// Whether a host hands out credentials and not objects.
fn is_metadata(host: &str) -> bool {
    host.starts_with("169.254.") || host == "metadata.google.internal" || host.starts_with("sts.")
}
