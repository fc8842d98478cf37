//! Resume links: created for a caller that may send the signal, shown on a page without side effects, used by a button.
//!
//! Holds: opening a link sends nothing, so that the prefetch of a mail scanner approves nothing. The token is only in the
//! path: responses forbid caching, sending it as a referrer, and framing the page.

mod fields;

use std::borrow::Cow;
use std::time::Duration;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::{FromRequest as _, Request, State};
use axum::http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use wigwag::{Link, Payload};

use super::signals::Sent;
use crate::app::App;
use crate::audit::Subject;
use crate::auth::{Caller, Need, shown};
use crate::extract::{self, Json, Path};
use crate::html::escaped;
use crate::limits::{LINK_BYTES_MAX, LINK_LIFE};
use crate::peer::ClientAddress;
use crate::problem::{Code, Problem, Result};
use crate::wire::{self, Raw, Span};
use crate::words;

/// Parameters of a new link.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Make {
    /// Id of the run.
    #[schemars(with = "words::Id")]
    run: String,
    /// Name of the signal.
    #[schemars(with = "words::Word")]
    name: String,
    /// Lifetime of the link; a week if absent.
    #[schemars(with = "Option<words::LinkLife>")]
    expires_in: Option<Span>,
    /// Whether the link can be used only once.
    #[serde(default)]
    once: bool,
    /// Sender of the signal when the link is used; the caller if absent. Naming another sender needs the scope `admin`.
    #[schemars(with = "Option<words::Short>")]
    sender: Option<String>,
}

/// A link. Anyone who has it may send the signal.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Made {
    token: String,
    /// Path of the link on this server.
    path: String,
    /// Full URL of the link, if the server has a public URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    #[serde(flatten)]
    link: Shown,
}

/// Permissions of a link.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Shown {
    /// The link's id, for revocation and audit logs. Not secret.
    id: String,
    run: String,
    name: String,
    expires: String,
    /// Sender of the signal.
    #[serde(skip_serializing_if = "Option::is_none")]
    sender: Option<String>,
    once: bool,
}

impl From<Link> for Shown {
    fn from(link: Link) -> Self {
        let Link { id, run, name, expires, sender, once, .. } = link;
        Self { id, run: run.to_string(), name: name.to_string(), expires: expires.to_string(), sender, once }
    }
}

pub(crate) async fn make(
    State(app): State<App>,
    caller: Caller,
    Json(wanted): Json<Make>,
) -> std::result::Result<(Extension<Subject>, Raw), Refusal> {
    // Refused operations have a subject in the audit log, too.
    let what = format!("run={} signal={}", shown(&wanted.run), shown(&wanted.name));
    try_make(&app, &caller, wanted).await.map_err(|problem| (Extension(Subject { who: None, what }), problem))
}

/// A refused operation, with its subject for the audit log.
type Refusal = (Extension<Subject>, Problem);

async fn try_make(app: &App, caller: &Caller, wanted: Make) -> Result<(Extension<Subject>, Raw)> {
    caller.may_signal(&wanted.name)?;
    // A link does not start a run: a link to a missing or finished run could never be used.
    let status = app.client.run(&wanted.run)?.status().await?;
    if status.is_final() {
        return Err(Problem::new(Code::NotRunning, format!("run `{}` has already finished: `{status}`", wanted.run)));
    }
    let span = wanted.expires_in.map_or(LINK_LIFE, |span| span.0);
    if span < Duration::from_secs(1) {
        return Err(Problem::new(Code::Invalid, "the lifetime must be at least 1s").hint("`2d` is a good value"));
    }
    let link = app.client.link(&wanted.run, &wanted.name, span);
    let link = if wanted.once { link.once() } else { link };
    let link = match caller.sender(wanted.sender)? {
        // If an authenticated caller names the sender, the signature vouches for that name.
        Some(sender) if caller.name().is_some() => link.sender(sender.name),
        Some(sender) => link.claimed_sender(sender.name),
        None => link,
    };
    let token = link.token().await?;
    let path = format!("/v1/links/{token}");
    // Built from the configured URL, never from `Host`, which the client can forge.
    let url = app.settings.public_url.as_ref().map(|url| format!("{}{path}", url.trim_end_matches('/')));
    let link = app.client.verify_link(&token)?;
    let subject = subject(&link, None);
    Ok((Extension(subject), wire::json(201, &Made { token, path, url, link: link.into() })?))
}

/// Describes a link for the audit log, without its token.
fn subject(link: &Link, who: Option<String>) -> Subject {
    Subject { who, what: format!("run={} signal={} link={}", link.run, link.name, link.id) }
}

/// The link to revoke: by its token, or, with the scope `admin`, by its run and id.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Revoke {
    token: Option<String>,
    run: Option<String>,
    id: Option<String>,
}

impl JsonSchema for Revoke {
    fn schema_name() -> Cow<'static, str> {
        "Revoke".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mut run = words::Id::rule();
        run["description"] = "Its run, with `id`.".into();
        json_schema!({
            "type": "object",
            "description": "The link to revoke: by its token, or, with the scope `admin`, by its run and id.",
            "properties": {
                "token": {
                    "type": "string", "minLength": 1, "maxLength": LINK_BYTES_MAX, "description": "The link's token.",
                },
                "run": run,
                "id": {"type": "string", "pattern": "^[0-9a-f]{32}$", "description": "Its id, with `run`."},
            },
            "additionalProperties": false,
            "oneOf": [
                {"required": ["token"], "maxProperties": 1},
                {"required": ["run", "id"], "maxProperties": 2},
            ],
        })
    }
}

/// Outcome of a revocation.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Revoked {
    id: String,
    run: String,
    /// Whether this request revoked it.
    new: bool,
}

pub(crate) async fn revoke(
    State(app): State<App>,
    caller: Caller,
    Json(wanted): Json<Revoke>,
) -> std::result::Result<(Extension<Subject>, Raw), Refusal> {
    // A token is a secret: without a valid one nothing is known of the link.
    let what = match (&wanted.token, &wanted.run, &wanted.id) {
        (None, Some(run), Some(id)) => format!("run={} link={}", shown(run), shown(id)),
        (Some(token), None, None) if token.len() <= LINK_BYTES_MAX => {
            app.client.verify_link(token).map(|link| subject(&link, None).what).unwrap_or_default()
        }
        _ => String::new(),
    };
    try_revoke(&app, &caller, wanted).await.map_err(|problem| (Extension(Subject { who: None, what }), problem))
}

async fn try_revoke(app: &App, caller: &Caller, wanted: Revoke) -> Result<(Extension<Subject>, Raw)> {
    let (run, id) = match (wanted.token, wanted.run, wanted.id) {
        (Some(token), None, None) if token.len() <= LINK_BYTES_MAX => {
            let link =
                app.client.verify_link(&token).map_err(|_| Problem::new(Code::NotFound, "there is no such link"))?;
            caller.may_signal(link.name.as_str())?;
            (link.run.to_string(), link.id)
        }
        (None, Some(run), Some(id)) => {
            caller.may(Need::Admin)?;
            (run, id)
        }
        _ => {
            let what = "identify the link by `token`, or by `run` and `id`";
            return Err(Problem::new(Code::InvalidBody, what));
        }
    };
    let call = app.client.revoke_link(&run, &id);
    let new = match caller.name() {
        Some(name) => call.on_behalf_of(name).await?,
        None => call.await?,
    };
    let subject = Subject { who: None, what: format!("run={run} link={id}") };
    Ok((Extension(subject), wire::json(200, &Revoked { id, run, new })?))
}

pub(crate) async fn show(
    State(app): State<App>,
    Extension(from): Extension<ClientAddress>,
    Path(token): Path<String>,
    headers: HeaderMap,
) -> Response {
    let for_people = wants_html(&headers);
    let answer = match read(&app, from, &token).await {
        Ok(link) if for_people => {
            let wait = open_wait(&app, &link).await;
            let fields = wait.as_ref().and_then(|wait| fields::of(wait.schema.as_ref()?));
            let about = wait.as_ref().and_then(|wait| wait.about.as_deref());
            page(StatusCode::OK, "Send this signal?", &confirm(&link, about, fields.as_deref()))
        }
        Ok(link) => wire::json(200, &Shown::from(link)).into_response(),
        Err(problem) => refused(problem, for_people),
    };
    guarded(answer)
}

pub(crate) async fn using(
    State(app): State<App>,
    Extension(from): Extension<ClientAddress>,
    Path(token): Path<String>,
    request: Request,
) -> Response {
    let by_form = extract::media_type(request.headers()) == FORM;
    let for_people = by_form || wants_html(request.headers());
    // Verified before the body is read: an invalid link must not cost memory.
    let link = match extract::check_size(&request, &app) {
        Ok(()) => read(&app, from, &token).await,
        Err(problem) => Err(problem),
    };
    let link = match link {
        Ok(link) => link,
        Err(problem) => {
            let mut answer = refused(problem, for_people);
            // A valid signature on an expired or revoked link: the audit log names the link.
            if let Some(link) = Some(&token).filter(|token| token.len() <= LINK_BYTES_MAX)
                && let Ok(link) = app.client.verify_link(link)
            {
                let who = link.sender.clone();
                answer.extensions_mut().insert(subject(&link, who));
            }
            return guarded(answer);
        }
    };
    let mut answer = match send(&app, &token, &link, by_form, request).await {
        Ok(sent) if for_people => {
            let said = match sent.is_repeated() {
                true => "This signal was already sent.",
                false => "You can close this page.",
            };
            page(StatusCode::OK, "Sent", &format!("<p>{said}</p>"))
        }
        Ok(sent) => wire::json(200, &sent).into_response(),
        Err(problem) => refused(problem, for_people),
    };
    let who = link.sender.clone();
    answer.extensions_mut().insert(subject(&link, who));
    guarded(answer)
}

const FORM: &str = "application/x-www-form-urlencoded";

/// Body of a request that uses a link.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Use {
    /// Payload of the signal; `null` if absent.
    #[schemars(with = "serde_json::Value")]
    #[serde(default = "Payload::null")]
    payload: Payload,
}

/// The wait that the link's signal is for, if it is open.
async fn open_wait(app: &App, link: &Link) -> Option<wigwag::OpenWait> {
    let waits = app.client.run(&link.run).ok()?.waiting().await.ok()?;
    waits.into_iter().find(|wait| wait.name == link.name)
}

async fn send(app: &App, token: &str, link: &Link, by_form: bool, request: Request) -> Result<Sent> {
    let payload = match by_form {
        false => Json::<Use>::from_request(request, app).await?.0.payload,
        true => {
            let body = extract::read_body(request, app).await?;
            let filled = form(body, app).await?;
            // The payload is shown as fields if its schema can be.
            let schema = open_wait(app, link).await.and_then(|wait| wait.schema);
            let fields = schema.and_then(|schema| fields::of(&schema)).unwrap_or_default();
            match fields::read(&fields, &filled) {
                Some(payload) => Payload::of(&payload)?,
                None => typed(&filled)?,
            }
        }
    };
    Ok(app.client.use_link(token, &payload).await?.into())
}

/// Parses the payload that was entered as JSON.
fn typed(filled: &[(String, String)]) -> Result<Payload> {
    let text = filled.iter().find(|(name, _)| name == "payload").map_or("", |(_, text)| text.trim());
    if text.is_empty() {
        return Ok(Payload::null());
    }
    Payload::parse(text).map_err(|refusal| {
        Problem::new(Code::MalformedJson, refusal.to_string()).hint("a JSON string needs quotes, as in `\"ada\"`")
    })
}

async fn form(body: Bytes, app: &App) -> Result<Vec<(String, String)>> {
    let request = Request::post("/").header(CONTENT_TYPE, FORM).body(body.into());
    let unread = || Problem::new(Code::InvalidBody, "the form cannot be read");
    let read = axum::Form::<Vec<(String, String)>>::from_request(request.map_err(|_| unread())?, app).await;
    read.map(|filled| filled.0).map_err(|_| unread())
}

/// Reads a link from its token. An invalid signature counts as a failed authentication.
async fn read(app: &App, from: ClientAddress, token: &str) -> Result<Link> {
    let read = match token.len() > LINK_BYTES_MAX {
        true => Err(Problem::new(Code::Invalid, "this link is not valid")),
        false => app.client.read_link(token).await.map_err(Problem::from),
    };
    match read {
        Err(problem) if problem.code == Code::Invalid => Err(app.deny(from, None, "/v1/links/{token}", problem).await),
        read => read,
    }
}

fn wants_html(headers: &HeaderMap) -> bool {
    headers.get(ACCEPT).and_then(|value| value.to_str().ok()).is_some_and(|accept| accept.contains("text/html"))
}

fn refused(problem: Problem, for_people: bool) -> Response {
    if !for_people {
        return problem.into_response();
    }
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let hint = problem.hint.as_deref().unwrap_or_default();
    page(status, &problem.title, &format!("<p>{}</p><p>{}</p>", escaped(&problem.detail), escaped(hint)))
}

fn confirm(link: &Link, about: Option<&str>, fields: Option<&[fields::Field]>) -> String {
    let (name, run, expires) =
        (escaped(link.name.as_str()), escaped(link.run.as_str()), escaped(&link.expires.to_string()));
    let once = if link.once { ", and once" } else { "" };
    let sender = link.sender.as_deref().map(|sender| format!(" as <b>{}</b>", escaped(sender))).unwrap_or_default();
    let about = about.map(|about| format!("<p><b>{}</b></p>", escaped(about))).unwrap_or_default();
    let inputs = fields.map_or_else(
        || {
            "<div class=\"field\"><label for=\"payload\">Payload as JSON</label>\
             <textarea class=\"input mono\" id=\"payload\" name=\"payload\" rows=\"4\">null</textarea></div>"
                .to_owned()
        },
        fields::html,
    );
    format!(
        "{about}<p>The signal <b>{name}</b> goes to the run <b>{run}</b>{sender}. This link can be used until {expires}{once}.</p>\
         <form class=\"fields\" method=\"post\">{inputs}<button class=\"btn prime\">Send {name}</button></form>"
    )
}

/// Returns the style sheet of the dashboard, if this server has one.
fn style() -> String {
    #[cfg(feature = "dashboard")]
    let style = format!("<link rel=\"stylesheet\" href=\"/ui/{}/style.css\">", crate::dashboard::version());
    #[cfg(not(feature = "dashboard"))]
    let style = String::new();
    style
}

fn page(status: StatusCode, title: &str, body: &str) -> Response {
    let title = escaped(title);
    let text = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title} · wigwag</title>{style}\
         <meta name=\"color-scheme\" content=\"light dark\"><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         </head><body class=\"linkpage\"><main class=\"card\"><header><h1>{title}</h1></header><div class=\"in fields\">{body}</div></main></body></html>",
        style = style(),
    );
    (status, [(CONTENT_TYPE, "text/html; charset=utf-8")], text).into_response()
}

/// Adds headers that forbid caching, referrers and framing.
///
/// The referrer policy allows this server itself: without a referrer, browsers send the page's form with `Origin: null`.
fn guarded(mut answer: Response) -> Response {
    use axum::http::HeaderValue;
    let headers = answer.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    let policy = "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    answer
}
