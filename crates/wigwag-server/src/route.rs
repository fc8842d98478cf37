//! One route: method, path, what it needs, what does it, and what its description says.
//!
//! Holds: a route cannot be made without saying what scope it needs, and every route made so is described.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts as _, RawPathParams, Request, State};
use axum::handler::Handler;
use axum::http::Method;
use axum::http::header::AUTHORIZATION;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::generate::SchemaGenerator;
use schemars::{JsonSchema, Schema};
use serde::Deserialize;

use crate::app::App;
use crate::audit::{Record, Subject};
use crate::auth::{Caller, Need};
use crate::limits::TOKEN_BYTES_MAX;
use crate::peer::ClientAddress;
use crate::problem::{Code, Problem, Result};

/// How long a route may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// As long as any request.
    Usual,
    /// It waits for something on purpose, and begins its answer after that.
    Own,
}

/// What a parameter, body or answer looks like; made when the description is.
pub(crate) type Shape = fn(&mut SchemaGenerator) -> Schema;

fn shape<T: JsonSchema>(schemas: &mut SchemaGenerator) -> Schema {
    schemas.subschema_for::<T>()
}

/// A query's fields stand in the description one by one, so that it is not made a schema of its own.
fn fields<T: JsonSchema>(schemas: &mut SchemaGenerator) -> Schema {
    T::json_schema(schemas)
}

/// An answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) kind: &'static str,
    pub(crate) what: &'static str,
    pub(crate) shape: Option<Shape>,
}

/// What a route's description says.
#[derive(Debug)]
pub(crate) struct About {
    pub(crate) id: &'static str,
    pub(crate) group: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) more: &'static str,
    pub(crate) query: Option<Shape>,
    pub(crate) body: Option<Shape>,
    pub(crate) keyed: bool,
    pub(crate) last_event_id: bool,
    pub(crate) asks_nobody: bool,
    pub(crate) answers: Vec<Answer>,
    pub(crate) codes: Vec<Code>,
}

/// One route.
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) need: Need,
    pub(crate) pace: Pace,
    pub(crate) about: About,
    /// Action name in the audit log, if the route is audited.
    audit: Option<&'static str>,
    handler: MethodRouter<App, Infallible>,
}

impl Route {
    pub(crate) fn get<H, T>(path: &'static str, need: Need, handler: H) -> Self
    where
        H: Handler<T, App>,
        T: 'static,
    {
        Self::new(Method::GET, path, need, on(MethodFilter::GET, handler))
    }

    pub(crate) fn post<H, T>(path: &'static str, need: Need, handler: H) -> Self
    where
        H: Handler<T, App>,
        T: 'static,
    {
        Self::new(Method::POST, path, need, on(MethodFilter::POST, handler))
    }

    fn new(method: Method, path: &'static str, need: Need, handler: MethodRouter<App>) -> Self {
        let group = path.trim_start_matches("/v1").trim_start_matches('/').split('/').next().unwrap_or_default();
        let about = About {
            id: "",
            group,
            summary: "",
            more: "",
            query: None,
            body: None,
            keyed: false,
            last_event_id: false,
            asks_nobody: false,
            answers: Vec::new(),
            codes: Vec::new(),
        };
        Self { method, path, need, pace: Pace::Usual, about, audit: None, handler }
    }

    /// What it is called, and what it does.
    pub(crate) fn named(mut self, id: &'static str, summary: &'static str) -> Self {
        (self.about.id, self.about.summary) = (id, summary);
        self
    }

    /// More about what it does.
    pub(crate) fn more(mut self, more: &'static str) -> Self {
        self.about.more = more;
        self
    }

    pub(crate) fn query<T: JsonSchema>(mut self) -> Self {
        self.about.query = Some(fields::<T>);
        self
    }

    pub(crate) fn body<T: JsonSchema>(mut self) -> Self {
        self.about.body = Some(shape::<T>);
        self
    }

    /// It takes `Idempotency-Key`.
    pub(crate) fn keyed(mut self) -> Self {
        self.about.keyed = true;
        self
    }

    /// It takes `Last-Event-ID`.
    pub(crate) fn resumable(mut self) -> Self {
        self.about.last_event_id = true;
        self
    }

    pub(crate) fn answers<T: JsonSchema>(self, status: u16, what: &'static str) -> Self {
        self.answer(Answer { status, kind: "application/json", what, shape: Some(shape::<T>) })
    }

    /// Answers with server-sent events of that shape, one after the other.
    pub(crate) fn streams<T: JsonSchema>(self, status: u16, what: &'static str) -> Self {
        self.answer(Answer { status, kind: "text/event-stream", what, shape: Some(shape::<T>) })
    }

    /// Answers with something else than JSON.
    pub(crate) fn gives(self, status: u16, kind: &'static str, what: &'static str) -> Self {
        self.answer(Answer { status, kind, what, shape: None })
    }

    fn answer(mut self, answer: Answer) -> Self {
        self.about.answers.push(answer);
        self
    }

    /// Problems of its own, beside those that any route may have.
    pub(crate) fn problems(mut self, codes: &[Code]) -> Self {
        self.about.codes.extend_from_slice(codes);
        self
    }

    /// It answers by itself, without the engine.
    pub(crate) fn plain(mut self) -> Self {
        self.about.asks_nobody = true;
        self
    }

    /// It waits for something on purpose.
    pub(crate) fn slow(mut self) -> Self {
        self.pace = Pace::Own;
        self
    }

    /// Writes each request to the audit log as this action.
    pub(crate) fn audited(mut self, action: &'static str) -> Self {
        self.audit = Some(action);
        self
    }

    /// What serves it, behind its guard.
    pub(crate) fn guarded(self, app: &App) -> (&'static str, MethodRouter<App>) {
        let rule = Rule {
            app: app.clone(),
            path: self.path,
            need: self.need,
            pace: self.pace,
            query_token: self.about.last_event_id,
            audit: self.audit,
        };
        (self.path, self.handler.layer(from_fn_with_state(rule, guard)))
    }
}

#[derive(Clone, Debug)]
struct Rule {
    app: App,
    path: &'static str,
    need: Need,
    pace: Pace,
    /// Browsers follow events, and cannot send headers when they do.
    query_token: bool,
    audit: Option<&'static str>,
}

/// Authenticates and authorizes a request, applies its timeout, and writes the audit record.
async fn guard(State(rule): State<Rule>, request: Request, next: Next) -> Response {
    let from = request.extensions().get::<ClientAddress>().copied().unwrap_or(ClientAddress(None));
    let caller = match admit(&rule, &request) {
        Ok(caller) => caller,
        Err(problem) => return rule.app.deny(from, rule.path, problem).await.into_response(),
    };
    if let Err(problem) = rule.app.limits.admit_caller(&caller) {
        return problem.into_response();
    }
    let Some(action) = rule.audit else { return perform(&rule, from, caller, request, next).await };
    let (mut parts, body) = request.into_parts();
    let params = RawPathParams::from_request_parts(&mut parts, &()).await.ok();
    let run = params.as_ref().and_then(|params| params.iter().find(|(name, _)| *name == "id"));
    let run = run.map(|(_, id)| format!("run={id}")).unwrap_or_default();
    let name = caller.name().map(str::to_owned);
    let mut response = perform(&rule, from, caller, Request::from_parts(parts, body), next).await;
    let subject = response.extensions_mut().remove::<Subject>();
    let who = name.or_else(|| subject.as_ref().and_then(|subject| subject.who.clone()));
    let what = subject.map_or(run, |subject| subject.what);
    let outcome = response.extensions().get::<Code>().map_or("done", |code| code.name());
    Record { action, who: who.as_deref(), from, what: &what, outcome }.write();
    response
}

/// Runs the handler within its timeout. The body's memory share is held until there is a response.
async fn perform(rule: &Rule, from: ClientAddress, caller: Caller, mut request: Request, next: Next) -> Response {
    let share = rule.app.limits.bodies.share(from.0, caller.name());
    let share = Arc::new(tokio::sync::Mutex::new(share));
    request.extensions_mut().insert(Arc::clone(&share));
    request.extensions_mut().insert(caller);
    let usual = rule.app.settings.request_timeout;
    let span = match rule.pace {
        Pace::Usual => usual,
        // What it waits for on purpose has its own end; what comes before and after has not.
        Pace::Own => usual + rule.app.settings.wait_max,
    };
    match tokio::time::timeout(span, next.run(request)).await {
        Ok(response) => response,
        Err(_) => too_slow(span).into_response(),
    }
}

pub(crate) fn too_slow(span: Duration) -> Problem {
    Problem::new(Code::RequestTimeout, format!("the request was not done within {span:?}"))
}

fn admit(rule: &Rule, request: &Request) -> Result<Caller> {
    let known = rule.app.known.get();
    let auth = &known.auth;
    if auth.is_empty() || rule.need == Need::Public {
        return Ok(Caller::anybody());
    }
    let unknown = |what: &str| Problem::new(Code::NotAuthenticated, what);
    if let Some((id, secret)) = basic(request).filter(|_| rule.need == Need::Store) {
        let prefixes = known.s3.identify(&id, &secret);
        let prefixes = prefixes.ok_or_else(|| unknown("the access key or its secret is wrong"))?;
        return Ok(Caller::key(id, prefixes));
    }
    let given = bearer(request, rule.query_token).ok_or_else(|| unknown("this needs a token"))?;
    // Which of the two is not said: it would help to guess.
    let caller = auth.identify(&given).ok_or_else(|| unknown("the token is wrong or out of date"))?;
    caller.may(rule.need)?;
    Ok(caller)
}

/// The access key and secret that a request brings (HTTP Basic).
fn basic(request: &Request) -> Option<(String, String)> {
    let (scheme, value) = request.headers().get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") || value.len() > TOKEN_BYTES_MAX {
        return None;
    }
    let text = String::from_utf8(STANDARD.decode(value.trim()).ok()?).ok()?;
    text.split_once(':').map(|(id, secret)| (id.to_owned(), secret.to_owned()))
}

/// The token that a request brings; in its query only where a browser cannot send headers.
fn bearer(request: &Request, query_token: bool) -> Option<String> {
    #[derive(Deserialize)]
    struct InQuery {
        access_token: Option<String>,
    }
    if let Some(header) = request.headers().get(AUTHORIZATION) {
        let (scheme, token) = header.to_str().ok()?.split_once(' ')?;
        return scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned());
    }
    let query = axum::extract::Query::<InQuery>::try_from_uri(request.uri()).ok().filter(|_| query_token)?;
    query.0.access_token
}
