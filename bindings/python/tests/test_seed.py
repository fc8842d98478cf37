"""The Python of the design that the API comes from runs as it stands there, but for the name of the package.

The twelve blocks of users' code lie in `seed/`; the others are listed below with the reason. Where the whole text is at hand
beside the checkout, both are compared with it.
"""

import ast
import asyncio
import inspect
import re
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

import wigwag
from wigwag import NotRunning, PermanentError, RetryableError, Worker, Workflow, WorkflowClient, connect, task
from wigwag.testing import Kit

SEED = Path(__file__).parent / "seed"
TEXT = Path(__file__).parents[4] / "shared" / "seeds" / "3-orchestration-layer.md"

RUN = (2, 8, 9, 10, 11, 13, 14, 15, 16, 17, 18, 19)
NOT_RUN = {
    0: ('@worker.task("workflow.orchestrate")', "the orchestrator of that design: the engine does this"),
    1: ("# Hash is computed from step names, dependencies, and structural metadata", "how that design hashes a definition"),
    3: ("# Sweeper runs every N minutes (configurable, default: 5)", "the sweeper of that design: every worker has one"),
    4: ("async def recover_workflow(wf_id):", "the recovery of that design: every worker does it"),
    5: ("# Run as part of qo monitor or standalone", "a shell command: here it is `wigwag sweep`"),
    6: ("async def wait_for_signal(wf_id, name, timeout):", "how waits poll there: users call `ctx.wait_for_signal`"),
    7: ("async def send_signal(wf_id, name, data):", "how signals are stored there: users call `client.signal`"),
    12: ("await queue.submit(", "how that design submits a step's own task; its input `{...}` is a set, and no JSON"),
}


def block(number):
    return (SEED / f"block_{number:02}.py").read_text()


def statements(number):
    """The code of a block, one statement each: they may await at the top level."""
    path = str(SEED / f"block_{number:02}.py")
    for statement in ast.parse(block(number), path).body:
        module = ast.Module([statement], [])
        yield ast.unparse(statement), compile(module, path, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


async def execute(number, names):
    for _, code in statements(number):
        result = eval(code, names)
        if inspect.iscoroutine(result):
            await result
    return SimpleNamespace(**names)


async def ran(workflow, input, *, tasks=(), names=None):
    """Runs a workflow on the kit to its end."""
    async with Kit(workflows=[workflow], tasks=tasks) as kit:
        run = await kit.client.start(workflow.name, input)
        await kit.run_until_idle()
        return await run.get(), await kit.elapsed()


def test_every_block_is_run_or_listed():
    assert sorted([*RUN, *NOT_RUN]) == list(range(20))
    assert sorted(path.name for path in SEED.glob("block_*.py")) == [f"block_{number:02}.py" for number in RUN]
    own = Path(__file__).read_text()
    for number in RUN:
        assert f"execute({number}," in own or f"statements({number})" in own, f"block {number} is run by no test"


@pytest.mark.skipif(not TEXT.exists(), reason="the text is not beside the checkout")
def test_the_blocks_are_those_of_the_text():
    blocks = re.findall(r"```python\n(.*?)```", TEXT.read_text(), re.DOTALL)
    assert len(blocks) == len(RUN) + len(NOT_RUN), "a block is neither run nor listed"
    for number in RUN:
        assert block(number) == blocks[number].replace("from qow import", "from wigwag import"), number
    for number, (first, _) in NOT_RUN.items():
        assert blocks[number].startswith(first), number


async def test_02_migrate(store):
    before = Workflow("moving")

    @before.step("old_step_name")
    async def old(ctx):
        return "kept"

    @before.step("removed_step", depends_on=["old_step_name"])
    async def removed(ctx):
        await ctx.wait_for_signal("never")

    after = Workflow("moving")

    @after.step("new_step_name")
    async def new(ctx):
        return "run again"

    @after.step("last", depends_on=["new_step_name"])
    async def last(ctx):
        return await ctx.output("new_step_name")

    client = WorkflowClient(store)
    async with Worker(store, workflows=[before]):
        run = await client.start("moving", {}, id="moving-1")
        async for entry in client.follow(run.id):
            if any(event["type"] == "signal.waiting" for event in entry["events"]):
                break
    async with Worker(store, workflows=[after]):
        await client.signal(run.id, "never")
        async for entry in client.follow(run.id):
            if (await client.get(run.id)).status == "paused":
                break
        status = await client.get(run.id)
        assert status.error.kind == "VersionMismatch", status.error
        [*_, target] = await client.definitions("moving")

        class Client:
            """The text has a hash that stands for any."""

            async def migrate(self, run, *, target_definition_hash, step_mapping):
                assert target_definition_hash == "sha256:newdef..."
                return await client.migrate(run, target_definition_hash=target["hash"], step_mapping=step_mapping)

        await execute(2, {"client": Client(), "wf_id": run.id})
        ended = await client.wait(run.id, timeout=30)
        assert (ended.status, ended.output) == ("completed", "kept")


async def test_08_dag():
    found = await execute(8, {})
    run, _ = await ran(found.wf, {"order_id": "ORD-1"})
    assert run.status == "completed"
    assert run.output == {"shipped": True}
    steps = run.steps
    assert set(steps) == {"validate_order", "reserve_inventory", "charge_card", "ship"}
    assert steps["validate_order"].ended_at <= steps["charge_card"].started_at
    assert max(steps["charge_card"].ended_at, steps["reserve_inventory"].ended_at) <= steps["ship"].started_at


async def test_09_delay():
    sent, wf = [], Workflow("reminders")

    async def send_reminder_email(user):
        sent.append(user)

    names = {"wf": wf, "timedelta": timedelta, "send_reminder_email": send_reminder_email}
    await execute(9, names)
    run, elapsed = await ran(wf, {"user_id": "user-789"})
    assert (run.status, sent) == ("completed", ["user-789"])
    assert timedelta(hours=24) <= elapsed < timedelta(hours=25)


async def test_10_retries_and_timeout():
    charges, wf = [], Workflow("charging")

    async def charge(amount):
        charges.append(amount)
        if len(charges) < 4:
            raise RetryableError("the gateway is busy")
        return {"charged": amount}

    await execute(10, {"wf": wf, "payment_gateway": SimpleNamespace(charge=charge)})
    run, _ = await ran(wf, {"amount": 12})
    assert (run.output, charges) == ({"charged": 12}, [12, 12, 12, 12])
    assert run.steps["charge_card"].attempt == 4


async def test_11_idempotency():
    charged, mails, wf = [], [], Workflow("effects")

    async def charge(amount, idempotency_key):
        charged.append((amount, idempotency_key))
        return SimpleNamespace(id="tx-1")

    async def sent(order):
        return bool(mails)

    async def mark(order):
        mails.append(order)

    async def send(address):
        mails.append(address)

    db = SimpleNamespace(email_already_sent=sent, mark_email_sent=mark)
    names = {"wf": wf, "payment_gateway": SimpleNamespace(charge=charge), "db": db}
    await execute(11, {**names, "email_service": SimpleNamespace(send=send)})
    run, _ = await ran(wf, {"amount": 5, "order_id": "7", "email": "ada@example.com"})
    assert run.output == {"charge_card": {"transaction_id": "tx-1"}, "send_email": {"sent": True}}
    assert charged == [(5, "order-7-charge")]
    assert mails == ["ada@example.com", "7"]


async def test_13_cancellation(store):
    import asyncio

    queue = await connect(store)
    client, wf = WorkflowClient(queue), Workflow("long")
    processed, began = [], asyncio.Event()

    async def process_item(item):
        processed.append(item)
        began.set()
        await asyncio.sleep(0.01)

    waiting = await client.start("nobody-runs-this", {})
    names = {"wf": wf, "workflow": client, "wf_id": waiting.id, "processed": processed, "process_item": process_item}
    await execute(13, {**names, "items": range(10_000)})
    assert (await client.explain(waiting.id)) is not None
    async with Worker(queue, workflows=[wf]):
        run = await client.start("long", {})
        await began.wait()
        await client.cancel(run.id, reason="User requested refund")
        ended = await client.wait(run.id, timeout=30)
    assert ended.status == "cancelled"
    assert 0 < len(processed) < 10_000


async def test_14_signal(store):
    client, wf = WorkflowClient(store), Workflow("approvals")
    await client.start("approvals", {}, id="order-17")
    names = {"wf": wf, "workflow": client, "wf_id": "order-17", "timedelta": timedelta, "PermanentError": PermanentError}
    await execute(14, names)
    async with Worker(store, workflows=[wf]):
        run = await client.wait("order-17", timeout=30)
    assert run.output == {"approved_by": "manager@example.com"}


async def test_14_signal_that_never_comes():
    wf = Workflow("approvals")

    class Nobody:
        async def signal(self, *_):
            pass

    names = {"wf": wf, "workflow": Nobody(), "wf_id": "x", "timedelta": timedelta, "PermanentError": PermanentError}
    await execute(14, names)
    run, elapsed = await ran(wf, {})
    assert (run.status, run.error.message) == ("failed", "Approval timed out")
    assert elapsed >= timedelta(days=7)


async def test_15_fan_out(store):
    queue, wf, done = await connect(store), Workflow("batch"), []

    @task("process_single_item")
    async def process_single_item(input):
        done.append(input["item"]["id"])
        return input["item"]["id"] * 2

    await execute(15, {"wf": wf, "queue": queue, "timedelta": timedelta})
    client = WorkflowClient(queue)
    async with Worker(queue, workflows=[wf], tasks=[process_single_item]):
        run = await client.start("batch", {"items": [{"id": 1}, {"id": 2}, {"id": 3}]})
        ended = await client.wait(run.id, timeout=30)
    assert ended.output == {"processed": 3}, ended.error
    assert sorted(done) == [1, 2, 3]


async def test_16_saga():
    class InsufficientFundsError(Exception):
        pass

    moves, is_full = [], False

    async def debit(account, amount):
        moves.append((account, -amount))
        return {"debited": amount}

    async def credit(account, amount):
        if is_full and account == "b":
            raise InsufficientFundsError
        moves.append((account, amount))
        return {"credited": amount}

    accounts = SimpleNamespace(debit=debit, credit=credit)
    names = {"accounts": accounts, "InsufficientFundsError": InsufficientFundsError, "Workflow": Workflow}
    names["PermanentError"] = PermanentError
    for is_full, status, expected in (
        (False, "completed", [("a", -9), ("b", 9)]),
        (True, "failed", [("a", -9), ("a", 9)]),
    ):
        moves.clear()
        found = await execute(16, dict(names))
        run, _ = await ran(found.wf, {"source": "a", "destination": "b", "amount": 9})
        assert (run.status, moves) == (status, expected)


async def test_17_compensation():
    released, wf = [], Workflow("orders")

    async def reserve(items):
        return {"reservation_id": "r-1"}

    async def release(reservation):
        released.append(reservation)

    await execute(17, {"wf": wf, "inventory": SimpleNamespace(reserve=reserve, release=release)})

    @wf.step("charge", depends_on=["reserve_inventory"])
    async def charge(ctx):
        raise PermanentError("no money")

    run, _ = await ran(wf, {"items": []})
    assert (run.status, run.error.message, released) == ("failed", "no money", ["r-1"])


async def test_18_two_workflows_under_one_name():
    keys = []

    async def charge(amount, idempotency_key=None):
        keys.append(idempotency_key)
        return amount

    class Each:
        """Good and bad are two workflows: one name twice in one is refused."""

        def __init__(self):
            self.made = []

        def step(self, name):
            self.made.append(Workflow(f"charge-{len(self.made)}"))
            return self.made[-1].step(name)

    wf = Each()
    await execute(18, {"wf": wf, "payment_api": SimpleNamespace(charge=charge)})
    for workflow in wf.made:
        run, _ = await ran(workflow, {"amount": 3, "order_id": "9"})
        assert run.output == 3
    assert keys == ["order-9-charge", None]
    with pytest.raises(wigwag.InvalidCall, match=r"`charge_card` of workflow `one` is defined twice: .*block_18.py:\d+ and .*"):
        await execute(18, {"wf": Workflow("one"), "payment_api": None})


async def test_19_client(store, capsys):
    queue = await connect(store)
    names = {"queue": queue, "timedelta": timedelta}
    worker, refused = None, []
    try:
        for text, code in statements(19):
            if text.startswith("client = "):
                worker = await Worker(queue, workflows=[names["wf"]]).start()
            try:
                result = eval(code, names)
                if inspect.iscoroutine(result):
                    await result
            except NotRunning:
                # The text cancels and signals the run that it has waited for: that has ended.
                refused.append(text.split("(")[0])
    finally:
        await worker.stop()
    assert refused == ["await client.cancel", "await client.signal"]
    assert names["result"].data == {"order_id": "ORD-123"}
    assert names["result"].output == {"processed": True}
    said = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in said] == ["Started workflow", "Status", "Workflow completed"]
