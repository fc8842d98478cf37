"""Mistakes in users' code: refused at once, with the place and the fix."""

from datetime import timedelta

import pytest

from wigwag import Context, InvalidCall, PermanentError, RetryableError, RunFailed, Worker, Workflow, WorkflowClient, current, workflow
from wigwag.testing import Kit


async def double(n: int) -> int:
    return n * 2


def shout(text: str) -> str:
    return text.upper()


async def test_a_wrong_call_in_a_function_fails_at_once():
    calls = {
        "too many": lambda ctx: ctx.step("a", double, 1, 2),
        "too few": lambda ctx: ctx.step("a", double),
        "wrong name": lambda ctx: ctx.step("a", shout, txt="x"),
        "a coroutine": lambda ctx: ctx.step("a", double(1)),
        "no function": lambda ctx: ctx.step("a", 5),
        "no code": lambda ctx: ctx.step("a"),
        "map": lambda ctx: ctx.map("a", [1], lambda: 1),
        "undo": lambda ctx: ctx.step("a", double, 1).compensate(lambda: None),
        "built in": lambda ctx: ctx.step("a", int, "5", 10, 10),
    }
    wanted = {
        "too many": r"step `a` cannot be called so: too many positional arguments \(.*test_mistakes.py:\d+\)",
        "too few": r"step `a` cannot be called so: missing a required argument: 'n' \(.*test_mistakes.py:\d+\)",
        "wrong name": r"step `a` cannot be called so: missing a required argument: 'text'",
        "a coroutine": r"step `a` got a coroutine, want a function",
        "no function": r"step `a` got 5, want a function",
        "no code": r"step\(\) missing 1 required positional argument: 'code'",
        "map": r"step `a` cannot be called so: too many positional arguments",
        "undo": r"the compensation of step `a` cannot be called so: too many positional arguments",
        "built in": r"at most 2 arguments|too many positional arguments",
    }

    @workflow("wrong")
    async def wrong(ctx: Context, which: str) -> None:
        await calls[which](ctx)

    async with Kit(workflows=[wrong]) as kit:
        for which in calls:
            run = await kit.client.start(wrong, which)
            await kit.run_until_idle()
            with pytest.raises(RunFailed, match=wanted[which]):
                await run.result()
            assert await kit.elapsed() == timedelta(), which


async def test_a_type_error_of_the_code_itself_is_retried():
    attempts = []

    @workflow("sums")
    async def sums(ctx: Context) -> int:
        return await ctx.step("add", add)

    async def add() -> int:
        attempts.append(current().attempt)
        return 1 + (None if len(attempts) == 1 else 1)

    async with Kit(workflows=[sums]) as kit:
        run = await kit.client.start(sums)
        await kit.run_until_idle()
        assert await run.result() == 2
    assert attempts == [1, 2]


async def test_code_of_a_graph_that_does_not_take_its_arguments_is_refused_where_it_is_defined():
    wf = Workflow("wrong")
    with pytest.raises(InvalidCall, match=r"step `bare` cannot be called so: too many positional arguments \(.*test_mistakes.py:\d+\)"):

        @wf.step("bare")
        async def bare(): ...

    @wf.step("good")
    async def good(ctx): ...

    with pytest.raises(InvalidCall, match=r"the compensation of step `good` cannot be called so"):
        good.on_compensate(lambda ctx: None)
    with pytest.raises(InvalidCall, match=r"the receiver of signal `go` cannot be called so"):
        wf.signal("go")(lambda data: None)


async def test_each_compensation_gets_the_key_of_its_step_and_counts_its_attempts():
    seen = []

    @workflow("saga")
    async def saga(ctx: Context) -> None:
        for _ in range(2):
            await ctx.step("c", double, 1).compensate(undo)
        await ctx.step("no", fail)

    async def undo(result: int) -> None:
        inside = current()
        seen.append((inside.idempotency_key, inside.attempt, result))
        if len(seen) == 1:
            raise RetryableError("busy")

    async def fail() -> None:
        raise PermanentError("no")

    async with Kit(workflows=[saga]) as kit:
        await kit.client.start(saga, id="saga-1")
        await kit.run_until_idle()
    assert seen == [("saga-1:c#2", 1, 2), ("saga-1:c#2", 2, 2), ("saga-1:c", 1, 2)]


@workflow("order")
async def order(ctx: Context) -> None: ...


@workflow("ordr")
async def misspelt(ctx: Context) -> None: ...


async def test_a_workflow_that_no_worker_has_is_refused_and_its_closest_name_is_told(store):
    client = WorkflowClient(store)
    assert (await client.start("ordr", id="early")).warnings, "before the first worker, any name may be right"
    async with Worker(store, workflows=[order]):
        with pytest.raises(InvalidCall, match="no worker has registered workflow `ordr`; did you mean `order`?") as refused:
            await client.start("ordr", id="late")
        assert "start a worker with that workflow" in refused.value.hint
        with pytest.raises(InvalidCall, match=r"`ordr`.*\(defined at .*test_mistakes.py:\d+\)"):
            await client.start(misspelt, id="late")
        with pytest.raises(LookupError):
            await client.get("late")
        assert (await client.start("ordr", id="late", allow_unregistered=True)).warnings
