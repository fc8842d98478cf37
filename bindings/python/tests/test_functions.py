"""Workflows as functions: steps, replay, races, failures, types."""

import asyncio
import dataclasses
import logging
from datetime import timedelta

import pytest

import wigwag
from wigwag import (
    Context,
    InvalidCall,
    PermanentError,
    Retry,
    RetryableError,
    RunFailed,
    StepFailed,
    Worker,
    WorkflowClient,
    current,
    step,
    task,
    workflow,
)
from wigwag.testing import Kit


@dataclasses.dataclass
class Order:
    item: str
    cents: int


@dataclasses.dataclass
class Receipt:
    id: str
    cents: int


calls: list[str] = []


@pytest.fixture(autouse=True)
def fresh():
    calls.clear()


@step(retries=5, timeout=30)
async def charge(order: Order) -> Receipt:
    calls.append("charge")
    return Receipt(f"r-{order.item}", order.cents)


@charge.on_compensate
async def refund(receipt: Receipt | None) -> None:
    calls.append(f"refund {receipt.id if receipt else None}")


@workflow("buy", version=1)
async def buy(ctx: Context, order: Order) -> Receipt:
    receipt = await charge(order)
    await ctx.sleep("cool-off", timedelta(days=1))
    if order.cents > 1_000:
        await ctx.step("check", refuse)
    return receipt


async def refuse() -> None:
    raise PermanentError("too much")


async def test_a_step_is_itself_outside_of_a_run():
    assert await charge(Order("tea", 5)) == Receipt("r-tea", 5)


async def test_a_typed_function_waits_a_day_and_its_step_runs_once():
    async with Kit(workflows=[buy]) as kit:
        run = await kit.client.start(buy, Order("tea", 5))
        await kit.settle()
        await kit.crash()
        await kit.run_until_idle()
        assert await run.result() == Receipt("r-tea", 5)
        assert calls == ["charge"]
        assert await kit.elapsed() >= timedelta(days=1)


async def test_a_failure_undoes_and_names_its_step():
    async with Kit(workflows=[buy]) as kit:
        run = await kit.client.start(buy, Order("piano", 5_000))
        await kit.run_until_idle()
        with pytest.raises(RunFailed, match="too much") as failed:
            await run.result()
    assert (failed.value.step, failed.value.fault.kind) == ("check", "Permanent")
    assert "in refuse" in failed.value.traceback
    assert "_runner.py" not in failed.value.traceback
    assert calls == ["charge", "refund r-piano"]


async def test_a_function_may_catch_what_failed():
    @workflow("catch")
    async def catch(ctx: Context) -> str:
        try:
            await ctx.step("no", refuse)
        except StepFailed as failed:
            return f"{failed.step}: {failed.fault.message}"
        return "?"

    async with Kit(workflows=[catch]) as kit:
        run = await kit.client.start(catch)
        await kit.run_until_idle()
        assert await run.result() == "no: too much"


async def test_failures_on_request_and_retry_after():
    @workflow("polite")
    async def polite(ctx: Context) -> int:
        return await ctx.step("ask", ask).retry(Retry(retries=2, first=1, jitter=0))

    async def ask() -> int:
        calls.append(str(current().attempt))
        if len(calls) == 1:
            raise RetryableError("429", after=timedelta(hours=2))
        return len(calls)

    async with Kit(workflows=[polite]) as kit:
        await kit.fail("ask", RetryableError("down"))
        run = await kit.client.start(polite)
        await kit.run_until_idle()
        assert await run.result() == 2
        assert calls == ["2", "3"]
        assert await kit.elapsed() >= timedelta(hours=2)


async def test_points_are_counted_at_the_call_and_gather_task_groups_and_map_work(store):
    async def one(n: int) -> int:
        await asyncio.sleep(0)
        return n

    @workflow("many")
    async def many(ctx: Context) -> list[int]:
        a, b = await asyncio.gather(ctx.step("a", one, 1), ctx.step("b", one, 2))
        tasks = [asyncio.create_task(ctx.step("c", one, n)) for n in (3, 4)]
        c, d = [await each for each in tasks]
        return [a, b, c, d, *await ctx.map("m", [5, 6, 7], one, concurrency=2)]

    async with Worker(store, workflows=[many]):
        client = WorkflowClient(store)
        run = await client.start(many)
        assert await run.result(timeout=30) == [1, 2, 3, 4, 5, 6, 7]
        assert set(await client.steps(run.id)) == {"a", "b", "c", "c#2", "m/0", "m/1", "m/2"}


@workflow("race")
async def race(ctx: Context) -> list:
    waits = {name: asyncio.ensure_future(ctx.wait_for_signal(name)) for name in ("left", "right")}
    done, late = await asyncio.wait(waits.values(), return_when=asyncio.FIRST_COMPLETED)
    for each in late:
        each.cancel()
    winner = next(name for name, each in waits.items() if each in done)
    loser = "right" if winner == "left" else "left"
    second = await ctx.wait_for_signal(loser)
    return [waits[winner].result(), second]


@pytest.mark.limit(120)
async def test_two_waits_that_race_take_one_signal_each(store):
    async with Worker(store, workflows=[race]):
        client = WorkflowClient(store)

        async def one(number):
            run = await client.start(race, id=f"race-{number}")
            await asyncio.gather(run.signal("left", "l"), run.signal("right", "r"))
            return sorted(await run.result(timeout=90))

        for _ in range(4):
            raced = await asyncio.gather(*(one(f"{_}-{number}") for number in range(50)))
            assert raced == [["l", "r"]] * 50


async def test_wait_any_timeouts_and_details():
    @workflow("waits")
    async def waits(ctx: Context) -> list:
        first = await ctx.wait_any(["a", "b"], timeout=timedelta(days=1))
        none = await ctx.wait_any(["c", "d"], timeout=timedelta(days=1))
        late = await ctx.wait_for_signal("e", timeout=5)
        heard = await ctx.wait_for_signal("f", details=True)
        return [first, none, late, heard.by, heard.payload]

    async with Kit(workflows=[waits]) as kit:
        run = await kit.client.start(waits)
        await run.signal("b", 1)
        await run.signal("f", {"x": 1}, by="ada")
        await kit.run_until_idle()
        assert await run.result() == [["b", 1], None, None, "ada", {"x": 1}]


async def test_inboxes_show_what_a_wait_is_about():
    @workflow("buy")
    async def buy(ctx: Context, item: str) -> bool:
        return await ctx.wait_for_signal("approval", bool, about=f"{item} for 20 €")

    wf = wigwag.Workflow("rent")
    wf.signal("approval", about="a flat in Bonn")

    async with Kit(workflows=[buy, wf]) as kit:
        for of, input in [(buy, "tea"), (wf, {})]:
            await kit.client.start(of, input)
        await kit.run_until_idle()
        shown = [run["about"] async for run in kit.client.waiting("approval")]
        assert sorted(shown) == ["a flat in Bonn", "tea for 20 €"]


async def test_a_typed_signal_is_refused_to_its_sender():
    @workflow("approve")
    async def approve(ctx: Context) -> str:
        order = await ctx.wait_for_signal("order", Order)
        return order.item

    async with Kit(workflows=[approve]) as kit:
        run = await kit.client.start(approve)
        await kit.settle()
        with pytest.raises(wigwag.InvalidPayload) as refused:
            await run.signal("order", {"item": "tea"})
        assert "cents" in str(refused.value)
        await run.signal("order", Order("tea", 3))
        await kit.settle()
        assert await run.result() == "tea"


async def test_tasks_of_a_function_and_of_its_steps(store):
    @task("double")
    async def double(n: int) -> int:
        return n * 2

    @workflow("tasks")
    async def tasks(ctx: Context) -> list:
        async def submit() -> list[str]:
            return [await current().submit(double, n, idempotency_key=f"{ctx.workflow_id}-{n}") for n in (1, 2)]

        ids = await ctx.step("submit", submit)
        ids.append(await ctx.submit(double, 3))
        ends = await ctx.wait_for_tasks(ids, timeout=30)
        more = await ctx.fan_out("more", double, [4, 5])
        return [end.result for end in (*ends, *more)]

    async with Worker(store, workflows=[tasks], tasks=[double]):
        run = await WorkflowClient(store).start(tasks)
        assert await run.result(timeout=30) == [2, 4, 6, 8, 10]


async def test_plain_functions_run_in_threads_and_see_the_context(store):
    import contextvars
    import threading

    who = contextvars.ContextVar("who")
    who.set("ada")

    def work() -> list:
        return [threading.current_thread().name.split("_")[0], who.get(), current().step_name]

    @workflow("threads")
    async def threads(ctx: Context) -> list:
        return await ctx.step("work", work)

    async with Worker(store, workflows=[threads]):
        run = await WorkflowClient(store).start(threads)
        assert await run.result(timeout=30) == ["wigwag", "ada", "work"]


async def test_cancel_is_seen_and_thrown(store):
    seen = asyncio.Event()

    @workflow("long")
    async def long(ctx: Context) -> None:
        async def body() -> None:
            await current().wait_cancelled()
            seen.set()

        await ctx.step("body", body)

    async with Worker(store, workflows=[long]):
        client = WorkflowClient(store)
        run = await client.start(long)
        while not (await client.get(run.id)).current_steps:
            await asyncio.sleep(0.01)
        assert await run.cancel(reason="enough") == "now"
        assert (await run.wait(timeout=30)).status == "cancelled"
    assert seen.is_set()


async def test_logs_carry_the_run_and_are_silent_on_replay(caplog):
    @workflow("loud")
    async def loud(ctx: Context) -> None:
        ctx.log.warning("before")
        await ctx.sleep("a", 60)
        ctx.log.warning("after")

    caplog.set_level(logging.INFO, "wigwag.run")
    async with Kit(workflows=[loud]) as kit:
        run = await kit.client.start(loud, id="loud-1")
        await kit.run_until_idle()
        await run.result()
    said = [(record.message, record.run_id) for record in caplog.records if record.name == "wigwag.run"]
    assert said == [("before", "loud-1"), ("after", "loud-1")]


async def test_time_and_chance_are_the_same_when_a_function_is_run_again():
    seen = []

    @workflow("same")
    async def same(ctx: Context) -> None:
        seen.append((ctx.random().random(), ctx.uuid()))
        await ctx.sleep("a", 60)
        seen.append(ctx.now())
        await ctx.sleep("b", 60)

    async with Kit(workflows=[same]) as kit:
        run = await kit.client.start(same)
        await kit.run_until_idle()
        await run.result()
    assert seen[0] == seen[1] == seen[3]
    assert seen[2] == seen[4]


async def test_three_steps_take_four_entries(store):
    async def one() -> int:
        return 1

    @workflow("three")
    async def three(ctx: Context) -> int:
        return sum([await ctx.step(name, one) for name in ("a", "b", "c")])

    graph = wigwag.Workflow("graph")
    for name, after in (("a", []), ("b", ["a"]), ("c", ["b"])):

        @graph.step(name, depends_on=after)
        async def each(ctx):
            return 1

    async with Worker(store, workflows=[three, graph]):
        client = WorkflowClient(store)
        for of in (three, graph):
            counts = []
            for _ in range(8):
                run = await client.start(of)
                await run.result(timeout=30)
                counts.append(len(await client.history(run.id)))
            # A machine that is busy may be later than the engine waits, but not every time.
            assert min(counts) == 4, (of.name, counts)


async def test_wrong_calls_say_what_is_wrong_and_where():
    with pytest.raises(InvalidCall, match=r"workflow `no` must be an `async def` \(.*test_functions.py:\d+\)"):
        workflow("no")(lambda ctx: None)
    with pytest.raises(InvalidCall, match="no run is under way here"):
        current()
    with pytest.raises(InvalidCall, match="workflow `buy` is there twice: .*test_functions.py"):
        Worker("memory:", workflows=[buy, workflow("buy")(race._function)])
    with pytest.raises(InvalidCall, match="is no workflow"):
        Worker("memory:", workflows=[charge])
    cyclic = wigwag.Workflow("cyclic")

    @cyclic.step("a", depends_on=["b"])
    async def a(ctx): ...

    with pytest.raises(InvalidCall, match=r"`b`(.|\n)*defined at .*test_functions.py:\d+"):
        async with Worker("memory:", workflows=[cyclic]):
            pass
    async with Kit(workflows=[buy]) as kit:
        with pytest.raises(wigwag.InvalidPayload, match=r"input of `buy` does not fit.*cents.*test_functions.py"):
            await kit.client.start(buy, Order("tea", "many"))
        with pytest.raises(wigwag.RunNotFound) as absent:
            await kit.client.get("nowhere")
        assert absent.value.hint and "hint:" in str(absent.value)


async def test_a_result_that_is_not_json_is_refused_by_path():
    import datetime

    @workflow("dates")
    async def dates(ctx: Context) -> None:
        await ctx.step("when", when)

    async def when():
        return {"at": [datetime.datetime(2026, 1, 1)]}

    async with Kit(workflows=[dates]) as kit:
        run = await kit.client.start(dates)
        await kit.run_until_idle()
        with pytest.raises(RunFailed, match=r'result\["at"\]\[0\]: datetime is not JSON.*step `when`, .*test_functions.py'):
            await run.result()


async def test_a_step_called_with_wrong_arguments_fails_at_once():
    @workflow("wrong")
    async def wrong(ctx: Context) -> None:
        await charge()

    async with Kit(workflows=[wrong]) as kit:
        run = await kit.client.start(wrong)
        await kit.run_until_idle()
        with pytest.raises(RunFailed, match=r"step `charge` cannot be called so: missing a required argument: 'order'"):
            await run.result()
        assert await kit.elapsed() < timedelta(seconds=1)


def test_every_kind_of_error_has_a_class():
    from wigwag import _native, errors

    kinds = _native.error_kinds()
    assert len(kinds) == len(set(kinds)) >= 16
    assert set(kinds) <= set(errors._CLASSES)
