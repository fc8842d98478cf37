//! `/s3`: the store as a bucket for S3 tools and remote workers.
//!
//! Implements only the necessary part of S3: one bucket, `wigwag`; list, read, conditional put and delete of whole objects.
//! Unsupported requests are rejected with `NotImplemented`, never ignored.
//!
//! Holds: a put is answered when it is durable; an `ETag` names a version, so that `If-Match` is exact; the kind of a store's error
//! is the same on the client's side (`fault.rs`).

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
use wigwag_store::limits::BODY_BYTES_MAX;
use wigwag_store::{Clock as _, System};

pub use keys::S3Keys;

use self::ask::{Ask, BUCKET, Operation};
use self::fault::{DENIED, Fault, Result};
use self::keys::Access;
use self::sign::Caller;
use crate::app::App;
use crate::audit::Pending;
use crate::limits::S3_DELETE_BYTES_MAX;
use crate::peer::ClientAddress;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");
const REGION: HeaderName = HeaderName::from_static("x-amz-bucket-region");

/// Any region of a client is accepted; this one is returned.
const OUR_REGION: &str = "us-east-1";

/// Returns the routes of the bucket's API.
pub(crate) fn routes() -> Router<App> {
    Router::new().route("/s3", any(serve)).route("/s3/", any(serve)).route("/s3/{*key}", any(serve))
}

async fn serve(State(app): State<App>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let id = format!("{:016X}", fastrand::u64(..));
    let from = parts.extensions.get::<ClientAddress>().copied().unwrap_or(ClientAddress(None));
    let (operation, answer) = match admit(&app, from).and_then(|()| Ask::read(&parts)) {
        Ok(ask) => (ask.operation, admitted(&app, &ask, from, body).await),
        Err(fault) => (Operation::Other, Err(fault)),
    };
    let mut response = answer.unwrap_or_else(|fault| refuse(&parts, &fault, &id));
    let labels = [("operation", operation.name().to_owned()), ("status", response.status().as_u16().to_string())];
    metrics::counter!("wigwag_s3_requests_total", &labels).increment(1);
    let headers = response.headers_mut();
    object::set(headers, REQUEST_ID, &id);
    // Clients learn the store's time from `Date`. By default it would be the machine's time, which may jump.
    if let Ok(now) = app.client.store().now().await {
        object::set(headers, DATE, &time::http(now.at));
    }
    response
}

fn refuse(parts: &Parts, fault: &Fault, id: &str) -> Response {
    // Lost races are normal when workers share work, so they are not warnings.
    tracing::debug!(code = fault.code, status = fault.status, "refused");
    fault.answer(parts.uri.path(), id, parts.method == Method::HEAD)
}

/// Enforces the request rate of an address.
fn admit(app: &App, from: ClientAddress) -> Result<()> {
    app.limits.admit_address(from).map_err(|_| Fault::new(503, "SlowDown", "this address exceeds its request rate"))
}

/// Authenticates a request, performs it, and writes the audit record.
async fn admitted(app: &App, ask: &Ask, from: ClientAddress, body: Body) -> Result<Response> {
    let known = app.known.get();
    let open = known.is_s3_open.then(|| Access::all(app.settings.s3_write));
    let mut caller = match sign::check(ask, &known.s3, open, System.wall()) {
        Ok(caller) => caller,
        Err(fault) => {
            app.denials.write(from, None, "/s3", fault.code);
            return match app.slow_down(from).await {
                true => Err(fault),
                false => Err(Fault::new(503, "SlowDown", "too many failed authentications of this address")),
            };
        }
    };
    let who = caller.id.clone();
    if app.limits.admit_caller(who.as_deref()).is_err() {
        return Err(Fault::new(503, "SlowDown", "this access key exceeds its request rate"));
    }
    let (action, writes) = (ask.operation.name(), ask.operation.writes());
    let pending = writes.then(|| Pending::of_store(action, who.as_deref(), from, format!("key={}", ask.key)));
    let done = answer(app, ask, &mut caller, from, body).await;
    let outcome = done.as_ref().map_or_else(|fault| fault.code, |_| "done");
    match pending {
        Some(pending) => pending.finish(None, outcome),
        None if outcome == DENIED => app.denials.write(from, who.as_deref(), "/s3", outcome),
        None => {}
    }
    done
}

/// Rejects an operation or key beyond the caller's permissions.
fn check_access(ask: &Ask, caller: &Caller) -> Result<()> {
    if ask.operation.writes() && !caller.access.write {
        let what = match &caller.id {
            None => "`/s3` is read-only; start the server with `--s3-write` to allow unauthenticated writes",
            Some(_) => {
                "this access key is read-only; set `write = true`, or start a server without tokens with `--s3-write`"
            }
        };
        return Err(Fault::denied(what));
    }
    let reached = match ask.operation {
        Operation::ListObjects | Operation::ListObjectsV2 => ask.value("prefix").unwrap_or_default(),
        Operation::GetObject | Operation::HeadObject | Operation::PutObject | Operation::DeleteObject => &ask.key,
        // The keys of `DeleteObjects` are in its body, and checked there.
        _ => return Ok(()),
    };
    if caller.access.covers(reached) { Ok(()) } else { Err(Fault::outside(reached)) }
}

async fn answer(app: &App, ask: &Ask, caller: &mut Caller, from: ClientAddress, body: Body) -> Result<Response> {
    if ask.operation == Operation::Other {
        return Err(ask.unknown());
    }
    check_access(ask, caller)?;
    if ask.operation != Operation::ListBuckets && ask.bucket != BUCKET {
        let shown: String = ask.bucket.escape_debug().take(80).collect();
        return Err(Fault::new(404, "NoSuchBucket", format!("the only bucket is `{BUCKET}`, got: `{shown}`")));
    }
    let share = app.limits.s3_bodies.share(from.0, caller.id.as_deref());
    let held = match ask.operation {
        Operation::PutObject => {
            object::check_put(ask)?;
            Some(payload::read(app, ask, caller, (body, share), BODY_BYTES_MAX).await?)
        }
        Operation::DeleteObjects => Some(payload::read(app, ask, caller, (body, share), S3_DELETE_BYTES_MAX).await?),
        _ => None,
    };
    let bytes = held.as_ref().map(|held| held.bytes.clone()).unwrap_or_default();
    let span = app.settings.request_timeout;
    let done = tokio::time::timeout(span, perform(app, ask, &caller.access, bytes)).await;
    // The operation may still take effect; clients interpret a 500 as unknown outcome.
    done.unwrap_or_else(|_| Err(Fault::new(500, "InternalError", format!("the store did not answer within {span:?}"))))
}

async fn perform(app: &App, ask: &Ask, access: &Access, body: bytes::Bytes) -> Result<Response> {
    let store = &**app.client.store();
    match ask.operation {
        Operation::ListBuckets => Ok(document(buckets())),
        Operation::HeadBucket => {
            let mut response = empty(200);
            object::set(response.headers_mut(), REGION, OUR_REGION);
            Ok(response)
        }
        Operation::CreateBucket => Err(Fault::new(409, "BucketAlreadyOwnedByYou", "the bucket is there already")),
        // An empty location means `us-east-1` in S3.
        Operation::GetBucketLocation => Ok(document(xml::Document::new("LocationConstraint"))),
        Operation::GetBucketVersioning => Ok(document(xml::Document::new("VersioningConfiguration"))),
        Operation::ListObjects | Operation::ListObjectsV2 => list::list(store, ask).await,
        Operation::GetObject | Operation::HeadObject => object::get(store, ask).await,
        Operation::PutObject => object::put(store, ask, body).await,
        Operation::DeleteObject => object::delete(store, ask).await,
        Operation::DeleteObjects => object::delete_many(store, access, &body).await,
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
