//! One route: method, path, required scope, handler and description.
//!
//! Holds: a route cannot be created without its required scope, and every route is described.

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
use crate::audit::{Pending, Subject};
use crate::auth::{Caller, Need};
use crate::limits::TOKEN_BYTES_MAX;
use crate::peer::ClientAddress;
use crate::problem::{Code, Problem};

/// Time limit of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// The usual request timeout.
    Usual,
    /// A long-poll or stream, which has a separate limit.
    Own,
}

/// Schema of a parameter, body or response; generated with the description.
pub(crate) type Shape = fn(&mut SchemaGenerator) -> Schema;

fn shape<T: JsonSchema>(schemas: &mut SchemaGenerator) -> Schema {
    schemas.subschema_for::<T>()
}

/// Inlines a query's schema, because its fields are described as separate parameters.
fn fields<T: JsonSchema>(schemas: &mut SchemaGenerator) -> Schema {
    T::json_schema(schemas)
}

/// A response in a route's description.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) kind: &'static str,
    pub(crate) what: &'static str,
    pub(crate) shape: Option<Shape>,
}

/// Description of a route.
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

/// A route with its handler and description.
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

    /// Sets the operation id and the summary.
    pub(crate) fn named(mut self, id: &'static str, summary: &'static str) -> Self {
        (self.about.id, self.about.summary) = (id, summary);
        self
    }

    /// Adds a longer description.
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

    /// Declares the header `Idempotency-Key`.
    pub(crate) fn keyed(mut self) -> Self {
        self.about.keyed = true;
        self
    }

    /// Declares the header `Last-Event-ID`.
    pub(crate) fn resumable(mut self) -> Self {
        self.about.last_event_id = true;
        self
    }

    pub(crate) fn answers<T: JsonSchema>(self, status: u16, what: &'static str) -> Self {
        self.answer(Answer { status, kind: "application/json", what, shape: Some(shape::<T>) })
    }

    /// Declares a response of server-sent events of this type.
    pub(crate) fn streams<T: JsonSchema>(self, status: u16, what: &'static str) -> Self {
        self.answer(Answer { status, kind: "text/event-stream", what, shape: Some(shape::<T>) })
    }

    /// Declares a response that is not JSON.
    pub(crate) fn gives(self, status: u16, kind: &'static str, what: &'static str) -> Self {
        self.answer(Answer { status, kind, what, shape: None })
    }

    fn answer(mut self, answer: Answer) -> Self {
        self.about.answers.push(answer);
        self
    }

    /// Declares problems in addition to those of all routes.
    pub(crate) fn problems(mut self, codes: &[Code]) -> Self {
        self.about.codes.extend_from_slice(codes);
        self
    }

    /// Declares that the handler does not use the engine.
    pub(crate) fn plain(mut self) -> Self {
        self.about.asks_nobody = true;
        self
    }

    /// Declares a long-poll or stream.
    pub(crate) fn slow(mut self) -> Self {
        self.pace = Pace::Own;
        self
    }

    /// Writes each request to the audit log as this action.
    pub(crate) fn audited(mut self, action: &'static str) -> Self {
        self.audit = Some(action);
        self
    }

    /// Returns the path and the handler behind its guard.
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
    /// Whether the token may be in the query, because an `EventSource` cannot send headers.
    query_token: bool,
    audit: Option<&'static str>,
}

/// Authenticates and authorizes a request, applies its timeout, and writes the audit record.
async fn guard(State(rule): State<Rule>, request: Request, next: Next) -> Response {
    let from = request.extensions().get::<ClientAddress>().copied().unwrap_or(ClientAddress(None));
    let caller = match admit(&rule, &request) {
        Ok(caller) => caller,
        Err(denial) => {
            let Denial { who, problem } = *denial;
            return rule.app.deny(from, who.as_deref(), rule.path, problem).await.into_response();
        }
    };
    if let Err(problem) = rule.app.limits.admit_caller(caller.name()) {
        return problem.into_response();
    }
    let name = caller.name().map(str::to_owned);
    let Some(action) = rule.audit else {
        let response = perform(&rule, from, caller, request, next).await;
        // Scopes that depend on the body or the signal's name are checked by the handler.
        if response.extensions().get::<Code>() == Some(&Code::NotAllowed) {
            rule.app.denials.write(from, name.as_deref(), rule.path, Code::NotAllowed.name());
        }
        return response;
    };
    let (mut parts, body) = request.into_parts();
    let params = RawPathParams::from_request_parts(&mut parts, &()).await.ok();
    let run = params.as_ref().and_then(|params| params.iter().find(|(name, _)| *name == "id"));
    let run = run.map(|(_, id)| format!("run={id}")).unwrap_or_default();
    let pending = Pending::new(action, name.as_deref(), from, run);
    let mut response = perform(&rule, from, caller, Request::from_parts(parts, body), next).await;
    let subject = response.extensions_mut().remove::<Subject>();
    pending.finish(subject, response.extensions().get::<Code>().map_or("done", |code| code.name()));
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
        // A long-poll has its own timeout; the time before and after it needs a limit too.
        Pace::Own => usual + rule.app.settings.wait_max,
    };
    match tokio::time::timeout(span, next.run(request)).await {
        Ok(response) => response,
        Err(_) => too_slow(span).into_response(),
    }
}

pub(crate) fn too_slow(span: Duration) -> Problem {
    Problem::new(Code::RequestTimeout, format!("the request was not completed within {span:?}"))
}

/// A rejected request, and its caller if that is known.
struct Denial {
    who: Option<String>,
    problem: Problem,
}

/// Identifies the caller and checks its scope.
fn admit(rule: &Rule, request: &Request) -> Result<Caller, Box<Denial>> {
    let known = rule.app.known.get();
    let auth = &known.auth;
    if auth.is_empty() || rule.need == Need::Public {
        return Ok(Caller::anybody());
    }
    let unknown = |what: &str| Box::new(Denial { who: None, problem: Problem::new(Code::NotAuthenticated, what) });
    if let Some((id, secret)) = basic(request).filter(|_| rule.need == Need::Store) {
        return known.s3.identify(&id, &secret).ok_or_else(|| unknown("invalid access key or secret"));
    }
    let given = bearer(request, rule.query_token).ok_or_else(|| unknown("this request needs a token"))?;
    if rule.need == Need::Store && rule.app.fleet_key.matches(&given) {
        return Ok(Caller::fleet());
    }
    // Which of the two is not said: it would help to guess.
    let caller = auth.identify(&given).ok_or_else(|| unknown("the token is unknown or expired"))?;
    match caller.may(rule.need) {
        Ok(()) => Ok(caller),
        Err(problem) => Err(Box::new(Denial { who: caller.name().map(str::to_owned), problem })),
    }
}

/// Returns the access key and secret of a request (HTTP Basic).
fn basic(request: &Request) -> Option<(String, String)> {
    let (scheme, value) = request.headers().get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") || value.len() > TOKEN_BYTES_MAX {
        return None;
    }
    let text = String::from_utf8(STANDARD.decode(value.trim()).ok()?).ok()?;
    text.split_once(':').map(|(id, secret)| (id.to_owned(), secret.to_owned()))
}

/// Returns the token of a request; from its query only where a browser cannot send headers.
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
