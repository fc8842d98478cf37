//! A server on loopback with an engine, and a client that validates every response.

use std::sync::Arc;
use std::time::Duration;

use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use wigwag::{Client, Ctx, Engine, Failure, Graph, LinkSecret, Settings as EngineSettings, StepCtx, permanent};
use wigwag_server::{Builder, Running, Server, Settings};
use wigwag_store::{Clock as _, Memory, Store, System};

pub(crate) struct Kit {
    pub(crate) engine: Engine,
    pub(crate) server: Running,
    pub(crate) http: reqwest::Client,
    pub(crate) store: Arc<dyn Store>,
}

/// A complete response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
    }

    /// Asserts a success status, and returns the body.
    #[track_caller]
    pub(crate) fn ok(self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        assert_eq!(self.header("content-type"), "application/json");
        self.json()
    }

    /// Asserts a problem document with this code.
    #[track_caller]
    pub(crate) fn problem(self, code: &str) -> Value {
        assert_eq!(self.header("content-type"), "application/problem+json", "{self:?}");
        let problem = self.json();
        assert_eq!(problem["code"], code, "{problem}");
        assert_eq!(problem["status"], self.status.as_u16(), "{problem}");
        assert_eq!(problem["type"], format!("urn:wigwag:problem:{code}"));
        for field in ["title", "detail", "hint"] {
            assert!(problem[field].as_str().is_some_and(|text| !text.is_empty()), "{field}: {problem}");
        }
        problem
    }
}

/// Sends a request with a token.
pub(crate) async fn with(kit: &Kit, token: &str, method: Method, path: &str, body: Option<Value>) -> Answer {
    let request = kit.request(method, path).bearer_auth(token);
    answer(match body {
        Some(body) => request.json(&body),
        None => request,
    })
    .await
}

pub(crate) async fn answer(request: RequestBuilder) -> Answer {
    let response = request.send().await.unwrap();
    let (status, headers) = (response.status(), response.headers().clone());
    // The stream of changes has no end.
    let is_endless = status == 200 && response.url().path() == "/v1/changes";
    let text = if is_endless { String::new() } else { response.text().await.unwrap() };
    Answer { status, headers, text }
}

/// Settings that allow unauthenticated writes at `/s3`.
pub(crate) fn writable() -> Settings {
    let mut settings = Settings::default();
    settings.s3_write = true;
    settings
}

impl Kit {
    pub(crate) async fn new() -> Self {
        Self::with(|server| server).await
    }

    pub(crate) async fn with(change: impl FnOnce(Builder) -> Builder) -> Self {
        Self::on(Arc::new(Memory::new()), change).await
    }

    pub(crate) async fn on(store: Arc<dyn Store>, change: impl FnOnce(Builder) -> Builder) -> Self {
        let engine = engine(Arc::clone(&store)).await;
        let server = Server::builder(engine.client()).bind(([127, 0, 0, 1], 0).into());
        let server = change(server).start().await.unwrap();
        // Another test may have been first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { engine, server, http, store }
    }

    pub(crate) fn client(&self) -> Client {
        self.engine.client()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.server.addr())
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, self.url(path))
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        answer(self.request(Method::GET, path)).await
    }

    /// The same for a path that is built dynamically.
    pub(crate) async fn get_owned(&self, path: String) -> Answer {
        self.get(&path).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        answer(self.request(Method::POST, path).json(&body)).await
    }

    /// Starts a run that waits for `approval`, and returns once it does.
    pub(crate) async fn waiting(&self, id: &str) {
        self.post("/v1/runs", json!({"type": "approve", "id": id})).await.ok(201);
        self.until(&format!("/v1/runs/{id}/waiting"), |found| found["items"] != json!([])).await;
    }

    /// Polls until the condition holds.
    pub(crate) async fn until(&self, path: &str, so: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        for _ in 0..500 {
            last = self.get(path).await.json();
            if so(&last) {
                return last;
            }
            // A poll of a condition, not a fixed delay.
            System.sleep(Duration::from_millis(10)).await;
        }
        panic!("`{path}` stays so: {last}");
    }
}

async fn engine(store: Arc<dyn Store>) -> Engine {
    let mut settings = EngineSettings::default();
    settings.link_secret = Some(LinkSecret::new("a secret of the tests").unwrap());
    settings.grace = Duration::from_millis(200);
    let builder = Engine::builder(store).settings(settings);
    builder
        .function("echo", 1, |_: Ctx, input: Value| async move { Ok::<_, Failure>(input) })
        .function("fail", 1, |_: Ctx, _: Value| async move { Err::<(), _>(permanent("no luck")) })
        .function("approve", 1, approve)
        .function("gather", 1, gather)
        .function("vote", 1, |ctx: Ctx, _: Value| async move { ctx.wait::<Value>("vote").quorum(2).await })
        .function("verified", 1, |ctx: Ctx, _: Value| async move { ctx.wait::<Value>("vote").authenticated().await })
        .function("gift", 1, |ctx: Ctx, _: Value| async move {
            ctx.wait::<Value>("thanks").about("a lamp\nfor <b>ada</b>").await
        })
        .workflow(loan())
        .function("nap", 1, |ctx: Ctx, _: Value| async move { ctx.sleep("nap", Duration::from_secs(3_600)).await })
        .workflow(order())
        .task(
            "double",
            |ctx: StepCtx<Value>| async move { Ok::<_, Failure>(ctx.input()?.as_i64().unwrap_or_default() * 2) },
        )
        .task("same", |ctx: StepCtx<Value>| async move { ctx.input() })
        .task("hopeless", |_: StepCtx<Value>| async move { Err::<(), _>(permanent("no luck")) })
        .start()
        .await
        .unwrap()
}

async fn approve(ctx: Ctx, _: Value) -> Result<Value, Failure> {
    let by: Value = ctx.wait("approval").await?;
    ctx.step("note", || async { Ok::<_, Failure>(()) }).await?;
    Ok(by)
}

/// Waits for `item` as often as its input says.
async fn gather(ctx: Ctx, count: u64) -> Result<Vec<Value>, Failure> {
    let mut items = Vec::new();
    for _ in 0..count {
        items.push(ctx.wait("item").await?);
    }
    Ok(items)
}

/// A graph whose wait is described by the run's data; without a borrower the description panics.
fn loan() -> Graph<Value> {
    let about = |data: &Value| format!("{} for {}", data["cents"], data["borrower"].as_str().expect("a borrower"));
    Graph::<Value>::new("loan").signal("approval").about(about)
}

/// A graph that waits for `{"yes": true}` or `{"yes": false}` between two steps.
fn order() -> Graph<Value> {
    Graph::<Value>::new("order")
        .step("first", |_: StepCtx<Value>| async move { Ok::<_, Failure>(1) })
        .signal("approval")
        .after("first")
        .schema(json!({"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"]}))
        .step("last", |_: StepCtx<Value>| async move { Ok::<_, Failure>("done") })
        .after("approval")
}
