"""Graphs: signals, conditions, groups, data, failures."""

from datetime import timedelta
from typing import TypedDict

import pytest

from wigwag import PermanentError, RetryableError, Workflow
from wigwag.testing import Kit


class Approval(TypedDict):
    by: str
    approved: bool


async def finished(kit, workflow, input=None):
    run = await kit.client.start(workflow, input)
    await kit.run_until_idle()
    return await run.get()


async def test_signals_conditions_and_data():
    wf = Workflow("order")

    @wf.step("passed-over", when=lambda data: data.get("vip", False))
    async def passed_over(ctx):
        return "never"

    @wf.signal("approval", type=Approval)
    def approval(data, payload):
        data["by"] = payload["by"]

    @wf.signal("never", depends_on=["approval"], timeout=timedelta(days=2))
    async def never(data, payload): ...

    @never.on_timeout
    def late(data):
        return {**data, "late": True}

    @wf.step("ship", depends_on=[never])
    async def ship(ctx):
        ctx.data["shipped"] = ctx.data["by"]
        return await ctx.output("approval")

    async with Kit(workflows=[wf]) as kit:
        run = await kit.client.start(wf, {"item": "tea"})
        await run.signal("approval", {"by": "ada", "approved": True})
        await kit.run_until_idle()
        view = await run.get()
    assert view.status == "completed", view.error
    assert view.data == {"item": "tea", "by": "ada", "late": True, "shipped": "ada"}
    assert view.output["ship"] == {"by": "ada", "approved": True}
    assert view.steps["passed-over"].status == "skipped"


async def test_groups_and_threads_and_points_below_a_step():
    wf, order = Workflow("parcel"), []

    @wf.step("pay")
    def pay(ctx):
        order.append("pay")

    with wf.group("shipping", depends_on="pay"):

        @wf.step("pack")
        async def pack(ctx):
            order.append("pack")

        @wf.step("send")
        async def send(ctx):
            await ctx.sleep("wait", timedelta(hours=1))
            order.append("send")

    @wf.step("tell", depends_on=["shipping"])
    async def tell(ctx):
        order.append("tell")

    async with Kit(workflows=[wf]) as kit:
        view = await finished(kit, wf)
        assert await kit.elapsed() >= timedelta(hours=1)
    assert view.status == "completed", view.error
    assert order == ["pay", "pack", "send", "tell"]
    assert "shipping/send/wait" in view.steps


@pytest.mark.parametrize(("on_failure", "status"), [("fail", "failed"), ("continue", "completed"), ("pause", "paused")])
async def test_what_a_failure_does(on_failure, status):
    wf = Workflow("shaky")

    @wf.step("shaky", retries=1, on_failure=on_failure)
    async def shaky(ctx):
        raise RetryableError("no")

    async with Kit(workflows=[wf]) as kit:
        view = await finished(kit, wf)
    assert view.status == status
    assert view.steps["shaky"].attempt == 2


async def test_undo_runs_in_reverse_order_and_gets_results():
    wf, undone = Workflow("saga"), []

    @wf.step("a")
    async def a(ctx) -> int:
        return 1

    @a.on_compensate
    def undo_a(ctx, result):
        undone.append(("a", result))

    @wf.step("b", depends_on=[a])
    async def b(ctx) -> int:
        raise PermanentError("b")

    @b.on_compensate
    async def undo_b(ctx, result):
        undone.append(("b", result))

    async with Kit(workflows=[wf]) as kit:
        view = await finished(kit, wf)
    assert view.status == "failed"
    assert undone == [("b", None), ("a", 1)]
