//! Extractors for bodies, queries, paths and headers. Invalid input is rejected with a problem document.

use std::sync::Arc;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::{FromRequest, FromRequestParts, MatchedPath, RawPathParams, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName};
use bytes::BytesMut;
use futures_util::StreamExt as _;
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use tokio::sync::Mutex;
use wigwag::RunHandle;
use wigwag_core::limits::SENDER_BYTES_MAX;

use crate::app::App;
use crate::problem::{Code, Problem, Result};
use crate::room::Share;
use crate::wire::Object;

/// A JSON body; an absent body is an empty object.
#[derive(Debug)]
pub(crate) struct Json<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<App> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self> {
        let kind = media_type(request.headers());
        let body = read_body(request, app).await?;
        if body.is_empty() && kind.is_empty() {
            return parse(b"{}").map(Self);
        }
        if !is_json(&kind) {
            return Err(not_json(&kind));
        }
        parse(&body).map(Self)
    }
}

/// Returns the media type of the body, without its parameters.
pub(crate) fn media_type(headers: &HeaderMap) -> String {
    let given = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

pub(crate) fn is_json(kind: &str) -> bool {
    kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"))
}

pub(crate) fn not_json(kind: &str) -> Problem {
    let got: String = kind.escape_debug().take(80).collect();
    Problem::new(Code::UnsupportedMediaType, format!("expected `application/json`, got: `{got}`"))
}

/// Reads the whole body, within its limits of size and time.
pub(crate) async fn read_body(request: Request, app: &App) -> Result<Bytes> {
    check_size(&request, app)?;
    let span = app.settings.body_timeout;
    let share = request.extensions().get::<Arc<Mutex<Share>>>().cloned();
    let share = share.ok_or_else(|| Problem::new(Code::Internal, "a body without a guard"))?;
    let receiving = receive(request.into_body(), app.settings.body_bytes_max, &share);
    match tokio::time::timeout(span, receiving).await {
        Ok(body) => body,
        Err(_) => Err(Problem::new(Code::BodyTimeout, format!("the request body did not arrive within {span:?}"))),
    }
}

/// Rejects a body whose announced length is too large, before any of it is read.
pub(crate) fn check_size(request: &Request, app: &App) -> Result<()> {
    let max = app.settings.body_bytes_max;
    match request.body().size_hint().lower() > max as u64 {
        true => Err(too_large(max)),
        false => Ok(()),
    }
}

/// Receives the body, counting its bytes against the memory budget.
async fn receive(body: Body, max: usize, share: &Mutex<Share>) -> Result<Bytes> {
    let mut share = share.lock().await;
    let mut frames = body.into_data_stream();
    let mut received = BytesMut::new();
    let mut first: Option<Bytes> = None;
    while let Some(frame) = frames.next().await {
        // The client disconnected, or sent another length than it announced: no client will read the response.
        let frame = frame.map_err(|_| Problem::new(Code::MalformedJson, "the request body ended early"))?;
        let so_far = received.len() + first.as_ref().map_or(0, Bytes::len);
        if so_far + frame.len() > max {
            return Err(too_large(max));
        }
        share.grow(frame.len()).await.map_err(|full| Problem::new(Code::Overloaded, full.detail()))?;
        // Most bodies are one frame, which need not be copied.
        match first.take() {
            None if received.is_empty() => first = Some(frame),
            earlier => earlier.into_iter().chain([frame]).for_each(|part| received.extend_from_slice(&part)),
        }
    }
    Ok(first.unwrap_or_else(|| received.freeze()))
}

fn too_large(max: usize) -> Problem {
    Problem::new(Code::BodyTooLarge, format!("the request body exceeds {max} bytes"))
}

pub(crate) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    serde_json::from_slice(body).map(|Object(read)| read).map_err(|error| match error.classify() {
        Category::Data => Problem::new(Code::InvalidBody, error.to_string()),
        _ => Problem::new(Code::MalformedJson, error.to_string()),
    })
}

/// The query string of the request.
#[derive(Debug)]
pub(crate) struct Query<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<App> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self> {
        let read = axum::extract::Query::<T>::try_from_uri(&parts.uri);
        read.map(|query| Self(query.0)).map_err(|rejection| Problem::new(Code::InvalidQuery, rejection.body_text()))
    }
}

/// The variable parts of the path.
#[derive(Debug)]
pub(crate) struct Path<T>(pub(crate) T);

impl<T: DeserializeOwned + Send> FromRequestParts<App> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
        let read = axum::extract::Path::<T>::from_request_parts(parts, app).await;
        read.map(|path| Self(path.0)).map_err(|rejection| Problem::new(Code::InvalidPath, rejection.body_text()))
    }
}

/// The run that a path names by `{id}`: below `/v1/tasks` a task, elsewhere a workflow's run.
#[derive(Debug)]
pub(crate) struct Of(pub(crate) RunHandle);

impl FromRequestParts<App> for Of {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
        let is_task = parts.extensions.get::<MatchedPath>().is_some_and(|path| path.as_str().contains("/v1/tasks/"));
        let params = RawPathParams::from_request_parts(parts, app).await;
        let params = params.map_err(|rejection| Problem::new(Code::InvalidPath, rejection.body_text()))?;
        let named = params.iter().find(|(name, _)| *name == "id").map(|(_, id)| id);
        let id = named.ok_or_else(|| Problem::new(Code::Internal, "a route without an id"))?;
        Ok(Self(if is_task { app.task(id)? } else { app.run(id)? }))
    }
}

/// `Idempotency-Key`: repeated requests with the same key take effect once.
#[derive(Debug)]
pub(crate) struct Key(pub(crate) Option<String>);

pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

impl FromRequestParts<App> for Key {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self> {
        let mut values = parts.headers.get_all(IDEMPOTENCY_KEY).iter();
        let Some(first) = values.next() else { return Ok(Self(None)) };
        let key = first.to_str().ok().filter(|key| !key.is_empty() && key.len() <= SENDER_BYTES_MAX);
        match (key, values.next()) {
            (Some(key), None) => Ok(Self(Some(key.to_owned()))),
            _ => Err(Problem::new(
                Code::InvalidHeader,
                format!("`Idempotency-Key` must have 1 to {SENDER_BYTES_MAX} ASCII characters"),
            )),
        }
    }
}

impl Key {
    /// Returns the key from the header or the body, unless the two differ.
    pub(crate) fn or(self, in_body: Option<String>) -> Result<Option<String>> {
        match (self.0, in_body) {
            (Some(header), Some(body)) if header != body => {
                Err(Problem::new(Code::InvalidHeader, "`Idempotency-Key` and the body's `key` differ")
                    .hint("give one of them"))
            }
            (header, body) => Ok(header.or(body)),
        }
    }
}
