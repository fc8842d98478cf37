"""The client without `await`, and two loops at once."""

import asyncio
import threading

import pytest

from wigwag import Context, NotWaiting, Worker, WorkflowClient, sync, workflow


@workflow("echo")
async def echo(ctx: Context, text: str) -> str:
    signal = await ctx.wait_for_signal("go", timeout=60)
    return f"{text} {signal}"


async def test_the_sync_client_and_clients_of_other_loops(store):
    client = WorkflowClient(store)

    def in_a_thread():
        plain = sync.WorkflowClient(store)
        run = plain.start(echo, "hello", id="echo-1")
        receipt = run.signal("go", "there", key="once")
        assert plain.signal("echo-1", "go", "there", key="once").id == receipt.id
        assert run.result(timeout=30) == "hello there"
        assert [summary.id for summary in plain.list(type=echo)] == ["echo-1"]
        with pytest.raises(NotWaiting):
            plain.start(echo, "x", id="echo-2")
            plain.signal("echo-2", "other", 1, only_if_waiting=True)

    def on_a_loop_of_its_own():
        assert asyncio.run(client.get("echo-1")).output == "hello there"

    async with Worker(store, workflows=[echo]):
        for work in (in_a_thread, on_a_loop_of_its_own):
            failures = []

            def guarded(work=work, failures=failures):
                try:
                    work()
                except BaseException as failure:
                    failures.append(failure)

            thread = threading.Thread(target=guarded)
            thread.start()
            await asyncio.get_running_loop().run_in_executor(None, thread.join)
            assert not failures, failures
