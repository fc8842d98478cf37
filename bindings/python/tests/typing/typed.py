"""What type checkers make of the API. Checked by `test_typing.py`; never run."""

import dataclasses
import sys
from typing import Awaitable

import wigwag
from wigwag import Context, Run, RunHandle, StepState, Workflow, WorkflowClient, WorkflowFunction, step, sync, workflow

if sys.version_info >= (3, 11):
    from typing import assert_type
else:
    from typing_extensions import assert_type


@dataclasses.dataclass
class Order:
    item: str


@dataclasses.dataclass
class Receipt:
    id: str


@step(retries=3)
async def charge(order: Order) -> Receipt:
    return Receipt(order.item)


assert_type(charge(Order("tea")), Awaitable[Receipt])


async def plain(item: str) -> int:
    return len(item)


@workflow("buy")
async def buy(ctx: Context, order: Order) -> Receipt:
    receipt = await charge(order)
    assert_type(receipt, Receipt)
    assert_type(await ctx.step("plain", plain, "a").retries(2), int)
    assert_type(await ctx.map("many", ["a"], plain), list[int])
    assert_type(await ctx.wait_for_signal("reply", Receipt), Receipt)
    assert_type(await ctx.wait_for_signal("reply", Receipt, timeout=5), Receipt | None)
    assert_type(await ctx.patched("x"), bool)
    return receipt


@workflow("bare")
async def bare(ctx: Context) -> int:
    return 1


assert_type(buy, WorkflowFunction[Order, Receipt])
assert_type(bare, WorkflowFunction[None, int])

wf = Workflow("graph", input=Order)


@wf.step("validate", retries=2)
async def validate(ctx: Context) -> bool:
    return True


async def use(client: WorkflowClient) -> None:
    run = await client.start(buy, Order("tea"))
    assert_type(run, RunHandle[Receipt])
    assert_type(await run.result(), Receipt)
    assert_type(await run.get(), Run[Receipt])
    assert_type(await client.start(bare), RunHandle[int])


def use_sync(client: sync.WorkflowClient) -> None:
    run = client.start(buy, Order("tea"), id="buy-1")
    assert_type(run, sync.RunHandle[Receipt])
    assert_type(run.result(timeout=5), Receipt)
    assert_type(run.get(), Run[Receipt])
    assert_type(run.get().output, Receipt | None)
    assert_type(client.start(bare), sync.RunHandle[int])
    assert_type(client.signal("buy-1", "reply", {}, wait=5), wigwag.Receipt)
    assert_type([summary.id for summary in client.list(type=buy)], list[str])
    assert_type(client.cancel("buy-1"), str)
    assert_type(sync.connect("./data").submit("double", 2), sync.TaskHandle)
    assert_type(sync.Client("https://wigwag.example.com", token="secret").steps("buy-1"), dict[str, StepState])
