//! One HTTP request and its answer: addresses, tokens, timeouts, retries, and errors in words.

use std::error::Error as _;
use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Method, Response, StatusCode, Url};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use wigwag_core::RunId;
use wigwag_server::{Code, FieldProblem};
use wigwag_store::{Clock as _, System};

use crate::args::StoreArgs;
use crate::error::Failed;
use crate::output::{now, short};

type Result<T> = std::result::Result<T, Failed>;

/// Environment variable with the token, if no file is named.
const TOKEN: &str = "WIGWAG_TOKEN";

/// Maximum length of a token.
const TOKEN_BYTES_MAX: usize = 8 * 1024;

/// Timeout for establishing a connection.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// Timeout for an answer: a server gives up on a request after 30 s and reports that.
const ANSWER_MAX: Duration = Duration::from_secs(40);

/// Maximum number of attempts for a request that may be retried.
const TRIES_MAX: u32 = 4;

/// Delay before the first retry; each further delay is three times as long.
const PAUSE: Duration = Duration::from_millis(100);

/// Maximum length of a quoted answer that is not from a wigwag server.
const SHOWN_MAX: usize = 80;

/// The token that authenticates the user, sent only to the named server.
#[derive(Clone)]
pub struct Token {
    text: HeaderValue,
    /// Description of its source, for messages.
    from: String,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Token from {}", self.from)
    }
}

impl Token {
    /// Reads the token for a server from a file or the environment; never from a flag, which other users could read
    /// in the process list. Rejected if plain HTTP would expose it.
    pub(crate) fn read(args: &StoreArgs, server: &str) -> Result<Option<Self>> {
        let found = Self::find(args.token_file.as_deref())?;
        match &found {
            Some(token) if !args.allow_http => token.check_way(server, "`--allow-http`")?,
            _ => {}
        }
        Ok(found)
    }

    /// Checks a token that a program gave. Rejected if plain HTTP would expose it, unless that is allowed.
    pub fn given(text: &str, server: &str, allow_http: bool) -> Result<Self> {
        let token = Self::of(text, "the argument `token`".into())?;
        match allow_http {
            true => Ok(token),
            false => token.check_way(server, "`allow_http`").map(|()| token),
        }
    }

    /// Rejects plain HTTP to another machine, which would expose the token.
    fn check_way(&self, server: &str, flag: &str) -> Result<()> {
        let Ok(url) = server.parse::<Url>() else { return Ok(()) };
        if url.scheme() != "http" || is_here(&url) {
            return Ok(());
        }
        let what = format!("unencrypted HTTP to `{server}` would expose the token in {}", self.from);
        Err(Failed::wrong(what).hint(format!("use `https://`, or {flag} on a network that you trust")))
    }

    fn find(file: Option<&Path>) -> Result<Option<Self>> {
        if let Some(path) = file {
            crate::input::warn_if_others_may_read(path);
            let name = path.display();
            let text = std::fs::read_to_string(path).map_err(|error| {
                Failed::wrong(format!("cannot read `{name}`: {error}"))
                    .hint("`--token-file` expects a file that contains only a token")
            })?;
            return Self::of(&text, format!("`{name}`")).map(Some);
        }
        match std::env::var_os(TOKEN).filter(|text| !text.is_empty()) {
            Some(text) => Self::of(&text.to_string_lossy(), format!("`{TOKEN}`")).map(Some),
            None => Ok(None),
        }
    }

    /// Returns the token itself, for callers that build their own requests.
    pub(crate) fn secret(&self) -> &str {
        self.text.to_str().unwrap_or_default().trim_start_matches("Bearer ")
    }

    /// Returns the source of the token, for messages.
    pub(crate) fn origin(&self) -> &str {
        &self.from
    }

    fn of(text: &str, from: String) -> Result<Self> {
        let text = text.trim();
        let is_token =
            !text.is_empty() && text.len() <= TOKEN_BYTES_MAX && text.bytes().all(|byte| byte.is_ascii_graphic());
        let header = HeaderValue::from_str(&format!("Bearer {text}")).ok().filter(|_| is_token);
        let mut header = header.ok_or_else(|| {
            Failed::wrong(format!("{from} does not contain a valid token"))
                .hint(format!("a token is 1 to {TOKEN_BYTES_MAX} ASCII letters without spaces"))
        })?;
        header.set_sensitive(true);
        Ok(Self { text: header, from })
    }
}

/// A server, and the connection settings for it.
#[derive(Clone, Debug)]
pub struct Remote {
    http: reqwest::Client,
    base: Url,
    token: Option<Token>,
}

/// A request to the server.
#[derive(Debug)]
pub struct Request {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) body: Option<Vec<u8>>,
    /// The header `Idempotency-Key`.
    pub(super) key: Option<String>,
    pub(super) last_event_id: Option<String>,
    /// Whether a request that may have been carried out is sent again.
    pub(super) repeatable: bool,
    /// How long the server waits deliberately before it answers.
    pub(super) wait: Duration,
}

impl Request {
    fn new(method: Method, url: Url, repeatable: bool) -> Self {
        Self { method, url, body: None, key: None, last_event_id: None, repeatable, wait: Duration::ZERO }
    }

    /// Sets how long the server waits deliberately.
    pub fn wait(mut self, span: Duration) -> Self {
        self.wait = span;
        self
    }

    /// Adds a query parameter.
    pub fn query(mut self, name: &str, value: &dyn Display) -> Self {
        self.url.query_pairs_mut().append_pair(name, &value.to_string());
        self
    }

    /// Adds a query parameter that is present.
    pub fn query_if(self, name: &str, value: Option<&dyn Display>) -> Self {
        match value {
            Some(value) => self.query(name, value),
            None => self,
        }
    }

    /// Makes the request idempotent by a key.
    pub fn once(mut self, key: String) -> Self {
        (self.key, self.repeatable) = (Some(key), true);
        self
    }

    /// Marks the request as safe to repeat.
    pub fn repeatable(mut self) -> Self {
        self.repeatable = true;
        self
    }
}

/// Returns a new random key.
pub fn new_key() -> String {
    format!("cli-{:032x}", fastrand::u128(..))
}

/// Returns the id of a new run. The client chooses it, so that a retry starts the same run.
pub fn new_id() -> RunId {
    RunId::at(now(), fastrand::u128(..))
}

/// A problem document from the server.
#[derive(Debug, Deserialize)]
pub(super) struct Problem {
    detail: String,
    code: String,
    hint: Option<String>,
    fault: Option<Box<serde_json::Value>>,
    #[serde(default)]
    errors: Vec<FieldProblem>,
}

impl Remote {
    /// Returns a client of the server at a URL, without a request.
    pub fn new(base: &str, token: Option<Token>) -> Result<Self> {
        let wrong = |error: &dyn Display| {
            Failed::wrong(format!("invalid server URL `{base}`: {error}"))
                .hint("use a URL such as `http://127.0.0.1:7070` or `https://wigwag.example.com`")
        };
        let mut url = base.parse::<Url>().map_err(|error| wrong(&error))?;
        if url.host_str().is_none_or(str::is_empty) || !url.username().is_empty() || url.password().is_some() {
            return Err(wrong(&"it needs a host, and must not have a user or password"));
        }
        url.set_query(None);
        url.set_fragment(None);
        // Without a crypto provider, reqwest cannot create a client; another part may have installed one already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("wigwag/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_MAX)
            // The token is only for the named server, and a redirected POST becomes a GET.
            .redirect(reqwest::redirect::Policy::none());
        if is_here(&url) {
            builder = builder.no_proxy();
        }
        let http =
            builder.build().map_err(|error| Failed::new(format!("cannot create an HTTP client: {}", cause(&error))))?;
        Ok(Self { http, base: url, token })
    }

    /// Returns the server's URL as given by the user.
    pub(super) fn base(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    fn url(&self, parts: &[&str]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().push("v1").extend(parts);
        }
        url
    }

    /// Returns a request that reads; its path is `v1` and these parts.
    pub fn get(&self, parts: &[&str]) -> Request {
        Request::new(Method::GET, self.url(parts), true)
    }

    /// Returns a request with a JSON body; its path is `v1` and these parts. It is not repeated unless it is marked.
    pub fn post<T: Serialize>(&self, parts: &[&str], body: &T) -> Result<Request> {
        let body = serde_json::to_vec(body).map_err(|error| Failed::new(error.to_string()))?;
        Ok(Request { body: Some(body), ..Request::new(Method::POST, self.url(parts), false) })
    }

    /// Sends a request and parses the answer as JSON.
    pub async fn json<T: DeserializeOwned>(&self, request: &Request) -> Result<T> {
        self.read(&self.answer(request).await?)
    }

    pub(super) fn read<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T> {
        serde_json::from_slice(body).map_err(|error| {
            Failed::new(format!("cannot read the response of `{}`: {error}", self.base()))
                .hint("the server may have a different version than this command; compare with `wigwag --version`")
        })
    }

    /// Sends a request, with retries where that is safe, and returns the body of a successful answer.
    pub(super) async fn answer(&self, request: &Request) -> Result<Vec<u8>> {
        let response = self.send(request).await?;
        let read = tokio::time::timeout(ANSWER_MAX, response.bytes()).await.map_err(|_| Broken::Late(ANSWER_MAX));
        let body = read.and_then(|body| body.map_err(Broken::Http)).map_err(|broken| self.broken(request, &broken))?;
        Ok(body.to_vec())
    }

    /// Sends a request; a successful status means that it was carried out.
    pub(super) async fn send(&self, request: &Request) -> Result<Response> {
        let mut pause = PAUSE;
        let mut tries = 1;
        loop {
            let may_repeat = tries < TRIES_MAX;
            match self.send_once(request).await {
                Ok(response) if response.status().is_success() => return Ok(response),
                Ok(response) => {
                    let busy = matches!(response.status(), StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE);
                    if !(may_repeat && busy && request.repeatable) {
                        return Err(self.refused(response).await);
                    }
                }
                Err(broken) => {
                    if !(may_repeat && broken.may_repeat(request)) {
                        return Err(self.broken(request, &broken));
                    }
                }
            }
            System.sleep(pause.mul_f64(0.75 + fastrand::f64() / 2.0)).await;
            (pause, tries) = (pause * 3, tries + 1);
        }
    }

    /// Sends a request once and waits for the head of the answer; the body may be an endless stream.
    pub(super) async fn send_once(&self, request: &Request) -> std::result::Result<Response, Broken> {
        let mut builder = self.http.request(request.method.clone(), request.url.clone());
        builder = builder.header(ACCEPT, "application/json, text/event-stream");
        if let Some(token) = &self.token {
            builder = builder.header(AUTHORIZATION, token.text.clone());
        }
        if let Some(key) = &request.key {
            builder = builder.header("idempotency-key", key);
        }
        if let Some(id) = &request.last_event_id {
            builder = builder.header("last-event-id", id);
        }
        if let Some(body) = &request.body {
            builder = builder.header(CONTENT_TYPE, "application/json").body(body.clone());
        }
        let span = ANSWER_MAX + request.wait;
        match tokio::time::timeout(span, builder.send()).await {
            Ok(outcome) => outcome.map_err(Broken::Http),
            Err(_) => Err(Broken::Late(span)),
        }
    }

    /// Converts an error answer to a failure, with the server's own message.
    pub(super) async fn refused(&self, response: Response) -> Failed {
        let status = response.status();
        let kind =
            response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("no type").to_owned();
        let body = tokio::time::timeout(ANSWER_MAX, response.bytes()).await;
        let body = body.ok().and_then(std::result::Result::ok).unwrap_or_default();
        match serde_json::from_slice::<Problem>(&body) {
            Ok(problem) => self.problem(problem),
            Err(_) => self.foreign(status, &kind, &body),
        }
    }

    /// Converts a problem document to a failure. The general hint of the error code is omitted, since a command may
    /// have a better one.
    pub(super) fn problem(&self, problem: Problem) -> Failed {
        let Problem { detail, code, hint, fault, errors } = problem;
        self.worded(detail, &code, hint).with_facts(fault, errors)
    }

    /// Returns the failure if a part of an answer is a problem document.
    pub fn problem_of(&self, part: &serde_json::Value) -> Option<Failed> {
        Deserialize::deserialize(part).ok().map(|problem| self.problem(problem))
    }

    fn worded(&self, detail: String, code: &str, hint: Option<String>) -> Failed {
        let known = Code::ALL.iter().copied().find(|known| known.name() == code);
        let Some(code) = known else {
            let failed = Failed::new(detail);
            return if let Some(hint) = hint { failed.hint(hint) } else { failed };
        };
        let base = self.base();
        let said = hint.filter(|hint| hint != code.action());
        match (code, &self.token) {
            (Code::NotAuthenticated, None) => Failed::of(code, format!("`{base}` requires a token: {detail}"))
                .hint(format!("set `{TOKEN}`, or use `--token-file FILE`")),
            (Code::NotAuthenticated, Some(token)) => Failed::of(code, format!("`{base}` rejected the token: {detail}"))
                .hint(format!("check the token in {}", token.from)),
            (Code::NotAllowed, Some(token)) => Failed::of(code, format!("`{base}` denied the request: {detail}"))
                .hint(said.unwrap_or_else(|| format!("the token in {} lacks the required scope", token.from))),
            (Code::NoRoute | Code::MethodNotAllowed, _) => {
                Failed::of(code, format!("`{base}` does not support this command: {detail}"))
                    .hint("the server may be older than this command, or the API may be at another path")
            }
            (Code::Unavailable | Code::Stopped, _) => {
                Failed::of(code, format!("`{base}`: {detail}")).hint(said.unwrap_or_else(|| "try again later".into()))
            }
            _ => {
                let failed = Failed::of(code, detail);
                if let Some(hint) = said { failed.hint(hint) } else { failed }
            }
        }
    }

    /// Reports an answer that is not from a wigwag server, but from a proxy or another program.
    fn foreign(&self, status: StatusCode, kind: &str, body: &[u8]) -> Failed {
        let text = String::from_utf8_lossy(body.get(..4 * SHOWN_MAX).unwrap_or(body)).into_owned();
        let text = short(text.trim(), SHOWN_MAX);
        let base = self.base();
        Failed::new(format!("unexpected response from `{base}`: {status} with {kind}: `{text}`"))
            .hint(format!("check the URL and any proxy in between; a wigwag server responds at `{base}/v1/health`"))
    }

    /// Reports a missing or incomplete answer.
    pub(super) fn broken(&self, request: &Request, broken: &Broken) -> Failed {
        let base = self.base();
        let after = match request.repeatable {
            true => "try again later",
            false => "the request may have succeeded; check before you repeat it",
        };
        match broken {
            Broken::Late(span) => Failed::new(format!("`{base}` did not respond within {span:?}")).hint(after),
            Broken::Http(error) if error.is_connect() => Failed::new(format!(
                "cannot reach `{base}`: {}",
                cause(error)
            ))
            .hint(
                "check that the server is running and that its URL is correct; use `--store` to work without a server",
            ),
            Broken::Http(error) if error.is_decode() || error.is_body() || error.is_request() => {
                Failed::new(format!("lost the connection to `{base}`: {}", cause(error))).hint(after)
            }
            Broken::Http(error) => Failed::new(format!("`{base}`: {}", cause(error))).hint(after),
        }
    }
}

/// Why the answer is missing or incomplete.
#[derive(Debug)]
pub(super) enum Broken {
    Late(Duration),
    Http(reqwest::Error),
}

impl Broken {
    /// Whether a retry is safe: the request was never sent, or is idempotent. A timed-out request would
    /// probably time out again.
    fn may_repeat(&self, request: &Request) -> bool {
        match self {
            Self::Late(_) => false,
            Self::Http(error) => error.is_connect() || request.repeatable,
        }
    }
}

/// Returns the innermost cause of an error: the outer ones repeat the address.
fn cause(error: &reqwest::Error) -> String {
    let mut last = error.source();
    while let Some(deeper) = last.and_then(std::error::Error::source) {
        last = Some(deeper);
    }
    last.map_or_else(|| error.to_string(), ToString::to_string)
}

/// Whether the address is of this machine, which is never reached through a proxy.
fn is_here(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn remote(base: &str) -> Remote {
        Remote::new(base, None).unwrap()
    }

    #[test]
    fn urls_are_joined_with_or_without_a_trailing_slash() {
        for base in ["http://127.0.0.1:7070", "http://127.0.0.1:7070/"] {
            assert_eq!(remote(base).url(&["runs", "a"]).as_str(), "http://127.0.0.1:7070/v1/runs/a");
        }
        let below = remote("https://example.com/wigwag/");
        assert_eq!(below.url(&["links", "a/b?"]).as_str(), "https://example.com/wigwag/v1/links/a%2Fb%3F");
        assert_eq!(below.base(), "https://example.com/wigwag");
        for wrong in ["http://", "http://ada:secret@example.com", "nothing"] {
            assert!(Remote::new(wrong, None).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_token_is_one_word_and_is_not_shown() {
        let token = Token::of(" s3cret\n", "`a file`".into()).unwrap();
        assert_eq!((token.text.to_str().unwrap(), token.secret()), ("Bearer s3cret", "s3cret"));
        assert_eq!(format!("{token:?} {:?}", token.text), "Token from `a file` Sensitive");
        for wrong in ["", " \n", "two words", "umläut"] {
            assert!(Token::of(wrong, "`a file`".into()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_token_is_not_sent_over_plain_http_beyond_this_machine() {
        let token = Token::of("s3cret", "`a file`".into()).unwrap();
        for safe in ["https://example.com", "http://localhost:7070", "http://127.0.0.1", "http://[::1]:7070"] {
            assert!(token.check_way(safe, "`--allow-http`").is_ok(), "{safe}");
            assert!(Token::given("s3cret", safe, false).is_ok(), "{safe}");
        }
        for open in ["http://example.com", "http://10.0.0.1:7070", "http://localhost.example.com"] {
            assert!(
                Token::given("s3cret", open, true).is_ok() && Token::given("s3cret", open, false).is_err(),
                "{open}"
            );
            let failed = token.check_way(open, "`--allow-http`").unwrap_err();
            assert!(failed.what().contains(open) && !failed.what().contains("s3cret"), "{failed:?}");
            assert!(failed.advice().unwrap().contains("--allow-http"));
        }
    }

    #[test]
    fn requests_to_this_machine_use_no_proxy() {
        for here in ["http://localhost:1", "http://127.0.0.1", "http://[::1]:7070"] {
            assert!(is_here(&here.parse().unwrap()), "{here}");
        }
        assert!(!is_here(&"https://example.com".parse().unwrap()));
    }

    #[test]
    fn the_general_hint_of_an_error_code_is_omitted() {
        let remote = remote("http://127.0.0.1:7070");
        let problem = |code: &str, hint: &str| {
            serde_json::from_value(json!({ "detail": "no", "code": code, "hint": hint })).unwrap()
        };
        assert_eq!(remote.problem(problem("not_found", Code::NotFound.action())).advice(), None);
        assert_eq!(remote.problem(problem("not_found", "look")).advice(), Some("look"));
        let newer = remote.problem(problem("of_a_newer_server", "look"));
        assert_eq!((newer.code(), newer.advice()), (None, Some("look")));
    }
}
