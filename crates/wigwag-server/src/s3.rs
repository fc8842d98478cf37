//! `/s3`: the store as a bucket that other people's tools and remote workers can use.
//!
//! Enough of S3 for that, and no more: one bucket, `wigwag`; whole objects, listed, read, put on a condition and deleted.
//! What is not there is refused as `NotImplemented`, never passed over.
//!
//! Holds: a put is answered when it is durable; an `ETag` names a version, so that `If-Match` holds; what a store's error
//! means is the same on the other side (`fault.rs`).

mod ask;
mod checksum;
mod fault;
mod keys;
mod list;
mod object;
mod payload;
mod sign;
mod time;
mod xml;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, DATE};
use axum::http::request::Parts;
use axum::http::{HeaderName, Method, StatusCode};
use axum::response::Response;
use axum::routing::any;
use tokio::sync::Semaphore;
use wigwag::store::limits::BODY_BYTES_MAX;
use wigwag::store::{Clock as _, System};

pub use keys::S3Keys;

use self::ask::{Ask, BUCKET, Operation};
use self::fault::{Fault, Result};
use self::keys::Access;
use crate::app::App;
use crate::limits::{S3_BODIES_BYTES_MAX, S3_DELETE_BYTES_MAX};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");
const REGION: HeaderName = HeaderName::from_static("x-amz-bucket-region");

/// Whatever region a client names is right; this is the one that it is told.
const OUR_REGION: &str = "us-east-1";

/// What stands at the door of `/s3`.
#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) keys: S3Keys,
    /// Who signs nothing is let in as well.
    open: bool,
    /// Room for bodies that are being received, in KiB.
    room: Semaphore,
}

impl Gate {
    pub(crate) fn new(keys: S3Keys, open: bool) -> Self {
        let keys = if open { keys.opened() } else { keys };
        Self { keys, open, room: Semaphore::new(S3_BODIES_BYTES_MAX / 1024) }
    }
}

/// The routes.
pub(crate) fn routes() -> Router<App> {
    Router::new().route("/s3", any(serve)).route("/s3/", any(serve)).route("/s3/{*key}", any(serve))
}

async fn serve(State(app): State<App>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let id = format!("{:016X}", fastrand::u64(..));
    let (operation, answer) = match Ask::read(&parts) {
        Ok(ask) => (ask.operation, answer(&app, &ask, body).await),
        Err(fault) => (Operation::Other, Err(fault)),
    };
    let mut response = answer.unwrap_or_else(|fault| refuse(&parts, &fault, &id));
    let labels = [("operation", operation.name().to_owned()), ("status", response.status().as_u16().to_string())];
    metrics::counter!("wigwag_s3_requests_total", &labels).increment(1);
    let headers = response.headers_mut();
    object::set(headers, REQUEST_ID, &id);
    // Clients learn the store's time from it. Without this it would be the machine's, which may step.
    if let Ok(now) = app.client.store().now().await {
        object::set(headers, DATE, &time::http(now.at));
    }
    response
}

fn refuse(parts: &Parts, fault: &Fault, id: &str) -> Response {
    // A lost race is how workers share their work, and nothing to tell of.
    tracing::debug!(code = fault.code, status = fault.status, "refused");
    fault.answer(parts.uri.path(), id, parts.method == Method::HEAD)
}

async fn answer(app: &App, ask: &Ask, body: Body) -> Result<Response> {
    let mut caller = sign::check(ask, &app.s3.keys, app.s3.open, System.wall())?;
    if ask.operation == Operation::Other {
        return Err(ask.unknown());
    }
    if ask.operation.writes() && caller.access == Access::ReadOnly {
        return Err(Fault::denied("this access key may only read"));
    }
    if ask.operation != Operation::ListBuckets && ask.bucket != BUCKET {
        let shown: String = ask.bucket.escape_debug().take(80).collect();
        return Err(Fault::new(404, "NoSuchBucket", format!("the only bucket is `{BUCKET}`, got: `{shown}`")));
    }
    let held = match ask.operation {
        Operation::PutObject => {
            object::check_put(ask)?;
            Some(payload::read(app, ask, &mut caller, body, BODY_BYTES_MAX).await?)
        }
        Operation::DeleteObjects => Some(payload::read(app, ask, &mut caller, body, S3_DELETE_BYTES_MAX).await?),
        _ => None,
    };
    let bytes = held.as_ref().map(|held| held.bytes.clone()).unwrap_or_default();
    let span = app.settings.request_timeout;
    let done = tokio::time::timeout(span, perform(app, ask, bytes)).await;
    // It may be done all the same, which is what clients take this for.
    done.unwrap_or_else(|_| Err(Fault::new(500, "InternalError", format!("the store did not answer within {span:?}"))))
}

async fn perform(app: &App, ask: &Ask, body: bytes::Bytes) -> Result<Response> {
    let store = &**app.client.store();
    match ask.operation {
        Operation::ListBuckets => Ok(document(buckets())),
        Operation::HeadBucket => {
            let mut response = empty(200);
            object::set(response.headers_mut(), REGION, OUR_REGION);
            Ok(response)
        }
        Operation::CreateBucket => Err(Fault::new(409, "BucketAlreadyOwnedByYou", "the bucket is there already")),
        // No location at all is S3's way of saying `us-east-1`.
        Operation::GetBucketLocation => Ok(document(xml::Document::new("LocationConstraint"))),
        Operation::GetBucketVersioning => Ok(document(xml::Document::new("VersioningConfiguration"))),
        Operation::ListObjects | Operation::ListObjectsV2 => list::list(store, ask).await,
        Operation::GetObject | Operation::HeadObject => object::get(store, ask).await,
        Operation::PutObject => object::put(store, ask, body).await,
        Operation::DeleteObject => object::delete(store, ask).await,
        Operation::DeleteObjects => object::delete_many(store, &body).await,
        Operation::Other => Err(ask.unknown()),
    }
}

fn buckets() -> xml::Document {
    let mut text = xml::Document::new("ListAllMyBucketsResult");
    text.begin("Owner").text("ID", BUCKET).close();
    text.begin("Buckets").begin("Bucket").text("Name", BUCKET);
    text.text("CreationDate", "1970-01-01T00:00:00.000Z");
    text
}

fn document(text: xml::Document) -> Response {
    let mut response = Response::new(Body::from(text.end()));
    object::set(response.headers_mut(), CONTENT_TYPE, "application/xml");
    response
}

fn empty(status: u16) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if status == 200 {
        object::set(response.headers_mut(), CONTENT_LENGTH, "0");
    }
    response
}
