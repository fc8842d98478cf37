//! Further sample runs, so that the dashboard has something of every kind to show.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use wigwag::schemars::{self, JsonSchema};
use wigwag::{Builder, Client, Ctx, ErrorKind, Failure, Graph, Result, Retry, StepCtx, permanent, retryable};
use wigwag_store::{Clock as _, System};

/// Decision about a refund.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Decision {
    approved: bool,
    by: String,
    /// Text for the customer.
    #[schemars(length(max = 500))]
    note: Option<String>,
}

/// One of two signatures under a payout.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Signature {
    agreed: bool,
    /// Where the payout was checked.
    checked: Checked,
}

/// Source of a check.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Checked {
    Ledger,
    Bank,
    Both,
}

/// Registers the sample workflows.
pub(crate) fn register(engine: Builder) -> Builder {
    engine
        .workflow(refund())
        .workflow(shipment())
        .function("demo-payout", 1, payout)
        .function("demo-contract", 1, contract)
        .function("demo-form", 1, form)
        .function("demo-invoice", 1, invoice)
        .function("demo-sync", 1, sync)
        .function("demo-digest", 1, digest)
        .function("demo-import", 1, import)
        .function("demo-batch", 1, batch)
        .task("demo-row", |ctx: StepCtx<Value>| async move { ctx.input() })
}

/// Waits for an approval that is due within the hour.
fn refund() -> Graph<Value> {
    Graph::<Value>::new("demo-refund")
        .step("look-up", |_: StepCtx<Value>| async move { Ok::<_, Failure>("third refund this month") })
        .signal("approval")
        .after("look-up")
        .timeout(Duration::from_secs(52 * 60))
        .schema_of::<Decision>()
        .step("pay-back", |_: StepCtx<Value>| async move { Ok::<_, Failure>("paid back") })
        .after("approval")
}

/// Fails at its fourth step, and compensates the steps before.
fn shipment() -> Graph<Value> {
    let reserve =
        |city: &'static str| move |_: StepCtx<Value>| async move { Ok::<_, Failure>(format!("reserved in {city}")) };
    Graph::<Value>::new("demo-shipment")
        .step("validate", |_: StepCtx<Value>| async move { Ok::<_, Failure>(()) })
        .step("reserve-berlin", reserve("Berlin"))
        .after("validate")
        .compensate(|_: StepCtx<Value>, _: Option<String>| async { Ok::<_, Failure>(()) })
        .step("reserve-porto", reserve("Porto"))
        .after("validate")
        .compensate(|_: StepCtx<Value>, _: Option<String>| async { Ok::<_, Failure>(()) })
        .step("charge", |_: StepCtx<Value>| async move { Ok::<_, Failure>("charged".to_owned()) })
        .after(["reserve-berlin", "reserve-porto"])
        .compensate(|_: StepCtx<Value>, _: Option<String>| async { Ok::<_, Failure>(()) })
        .step("book-carrier", |_: StepCtx<Value>| async move { Err::<(), _>(retryable("no capacity on Wednesday")) })
        .after("charge")
        .retry(Retry::times(2).first(Duration::from_millis(40)))
        .step("print-labels", |_: StepCtx<Value>| async move { Ok::<_, Failure>(()) })
        .after("charge")
        .step("notify", |_: StepCtx<Value>| async move { Ok::<_, Failure>(()) })
        .after(["book-carrier", "print-labels"])
}

async fn payout(ctx: Ctx, _: Value) -> std::result::Result<Value, Failure> {
    ctx.step("total", || async { Ok::<_, Failure>("318 sellers".to_owned()) }).await?;
    let signed: Vec<Signature> = ctx
        .wait::<Signature>("release")
        .typed()
        .quorum(2)
        .timeout(Duration::from_secs(8 * 3_600))
        .await?
        .unwrap_or_default();
    match signed.iter().all(|one| one.agreed) && !signed.is_empty() {
        true => Ok(json!({"released": true})),
        false => Err(permanent("the payout was not released")),
    }
}

async fn contract(ctx: Ctx, _: Value) -> std::result::Result<Value, Failure> {
    ctx.wait("signed-contract").await
}

/// The schema of the signal `answer`, to see how the dashboard draws it and what the server accepts.
async fn form(ctx: Ctx, schema: Value) -> std::result::Result<Value, Failure> {
    ctx.wait("answer").schema(schema).about("a form made from the schema in the input").await
}

async fn invoice(ctx: Ctx, input: Value) -> std::result::Result<Value, Failure> {
    ctx.step("render", || async { Ok::<_, Failure>("14 pages".to_owned()) }).await?;
    ctx.step("send", || async { Ok::<_, Failure>(input.clone()) }).await
}

/// Its step fails and is retried, minutes apart.
async fn sync(ctx: Ctx, _: Value) -> std::result::Result<(), Failure> {
    ctx.step("fetch", || async { Err::<(), _>(retryable("the warehouse answers 503")) })
        .retry(Retry::times(50).first(Duration::from_secs(90)))
        .await
}

async fn digest(ctx: Ctx, _: Value) -> std::result::Result<(), Failure> {
    ctx.sleep("until-morning", Duration::from_secs(9 * 3_600)).await
}

/// A fan-out: one task for each row.
async fn import(ctx: Ctx, rows: u32) -> std::result::Result<usize, Failure> {
    let joined = ctx.fan_out("rows", "demo-row", 0..rows).await?;
    Ok(joined.completed())
}

/// Size of a batch: its number of parts, and the time that each part takes.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Batch {
    parts: u32,
    #[serde(default)]
    part_ms: u64,
}

/// One step after the other, for runs with a long log.
async fn batch(ctx: Ctx, Batch { parts, part_ms }: Batch) -> std::result::Result<u32, Failure> {
    for part in 0..parts {
        let work = || async {
            System.sleep(Duration::from_millis(part_ms)).await;
            Ok::<_, Failure>(part)
        };
        ctx.step(&format!("part-{part:05}"), work).await?;
    }
    Ok(parts)
}

/// Starts the sample runs. Those that were started before stay as they are.
pub(crate) async fn start(client: &Client) -> Result<()> {
    let runs = [
        ("demo-refund", "refund-1", json!({"customer": "Ines Okafor", "reason": "third this month", "cents": 124_000})),
        ("demo-payout", "payout-1", json!({"batch": "Payout batch 0917", "sellers": 318})),
        ("demo-contract", "contract-1", json!({"party": "Meridian Freight", "months": 36})),
        ("demo-shipment", "shipment-1", json!({"order": "order-1", "parcels": 3})),
        ("demo-invoice", "invoice-1", json!({"customer": "Northwind"})),
        ("demo-invoice", "invoice-2", json!({"customer": "Bluefin Labs"})),
        ("demo-sync", "sync-1", json!({"from": "warehouse"})),
        ("demo-digest", "digest-1", json!({"for": "ada"})),
        ("demo-import", "import-1", json!(12)),
    ];
    for (of, id, input) in runs {
        match client.start(of, &input).id(id).await {
            Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Gone) => {}
            started => _ = started?,
        }
    }
    // The first of two signatures; once the payout has ended there is nothing to sign.
    let signature = json!({"agreed": true, "checked": "ledger"});
    match client.signal("payout-1", "release", &signature).by("grace").key("demo").await {
        Err(error) if matches!(error.kind(), ErrorKind::NotRunning | ErrorKind::Gone | ErrorKind::NotFound) => Ok(()),
        sent => sent.map(|_| ()),
    }
}
