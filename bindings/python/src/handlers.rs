//! The code of workflows, by the numbers under which Python keeps it.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use wigwag::dynamic::{FunctionHandler, StepHandler, UndoHandler};
use wigwag::{Ctx, Failure, Payload, StepCtx};

use crate::mailbox::Post;
use crate::scope::{self, Held};

/// Code under a number.
#[derive(Clone, Debug)]
pub(crate) struct Code {
    pub(crate) post: Arc<Post>,
    pub(crate) number: u64,
}

/// The arguments of a step's code.
#[derive(serde::Serialize)]
struct StepBegins<'a> {
    run: &'a str,
    attempt: u32,
    key: String,
    input: &'a Payload,
    data: &'a Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
}

fn step_begins(ctx: &StepCtx<Value>, result: Option<&Payload>) -> String {
    let data = ctx.data_map();
    let result = result.map(|result| serde_json::from_str(result.text()).unwrap_or(RawValue::NULL));
    let begins = StepBegins {
        run: ctx.workflow_id().as_str(),
        attempt: ctx.attempt(),
        key: ctx.idempotency_key(),
        input: ctx.input_payload(),
        data: &data,
        result,
    };
    serde_json::to_string(&begins).unwrap_or_default()
}

impl StepHandler for Code {
    fn call(&self, ctx: StepCtx<Value>) -> BoxFuture<'static, Result<Payload, Failure>> {
        let text = step_begins(&ctx, None);
        scope::run(Arc::clone(&self.post), Held::Step(ctx), self.number, text).boxed()
    }
}

impl UndoHandler for Code {
    fn call(&self, ctx: StepCtx<Value>, result: Option<Payload>) -> BoxFuture<'static, Result<(), Failure>> {
        let text = step_begins(&ctx, result.as_ref());
        let running = scope::run(Arc::clone(&self.post), Held::Step(ctx), self.number, text);
        async move { running.await.map(drop) }.boxed()
    }
}

impl FunctionHandler for Code {
    fn call(&self, ctx: Ctx, input: Payload) -> BoxFuture<'static, Result<Payload, Failure>> {
        let text = format!("{{\"run\":{},\"input\":{}}}", json!(ctx.workflow_id().as_str()), input.text());
        scope::run(Arc::clone(&self.post), Held::Function(ctx), self.number, text).boxed()
    }
}

impl Code {
    /// Asks code that is called on the run's data, outside of any step.
    pub(crate) fn ask(&self, data: &Payload, signal: Option<&Payload>) -> BoxFuture<'static, Result<Value, Failure>> {
        let signal = signal.map_or("null", Payload::text);
        let text = format!("{{\"data\":{},\"signal\":{signal}}}", data.text());
        let asked = Arc::clone(&self.post).call(self.number, 1, text, None);
        async move { Ok(asked.await.into_result()?.value()) }.boxed()
    }
}
