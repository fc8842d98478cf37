"""Kills, forks, signals, the command, and the newcomer's way."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

from wigwag import sync

WIGWAG = str(Path(sys.executable).with_name("wigwag"))

PROGRAM = """
import asyncio, sys
from wigwag import Context, Worker, workflow

@workflow("order")
async def order(ctx: Context, item: str) -> str:
    hold = await ctx.step("reserve", reserve, item)
    approval = await ctx.wait_for_signal("approval")
    return f"{hold}, approved by {approval['by']}"

async def reserve(item: str) -> str:
    with open(sys.argv[2], "a") as log:
        print("reserved", file=log)
    return f"{item} is reserved"

async def main() -> None:
    async with Worker(sys.argv[1], workflows=[order]) as worker:
        run = await worker.client.start(order, "grand piano", id="order-17")
        print("started", flush=True)
        print(await run.result(), flush=True)

asyncio.run(main())
"""


def begin(program, *args):
    return subprocess.Popen([sys.executable, "-c", program, *args], stdout=subprocess.PIPE, text=True)


class Claim(NamedTuple):
    owner: str
    at: datetime
    until: datetime


def claims(client, id):
    """The claims of a run, and the renewals of their leases, in order."""

    def moment(text):
        return datetime.fromisoformat(text.replace("Z", "+00:00"))

    return [
        Claim(event["owner"], moment(entry["at"]), moment(event["until"]))
        for entry in client.history(id)
        for event in entry["events"]
        if event["type"] == "run.claimed"
    ]


def eventually(condition, what):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def test_a_newcomer_kills_a_worker_and_approves_from_the_command_line(tmp_path):
    store, log = str(tmp_path / "data"), str(tmp_path / "log")
    first = begin(PROGRAM, store, log)
    client = sync.WorkflowClient(store)
    assert first.stdout.readline() == "started\n"
    eventually(lambda: client.get("order-17").status == "waiting_signal", "it waits")
    first.send_signal(signal.SIGKILL)
    first.wait()
    second = begin(PROGRAM, store, log)
    assert second.stdout.readline() == "started\n"
    told = subprocess.run(
        [WIGWAG, "signal", "order-17", "approval", json.dumps({"by": "ada"}), "--store", store], capture_output=True, text=True
    )
    assert told.returncode == 0, told.stderr
    assert second.stdout.read() == "grand piano is reserved, approved by ada\n"
    assert second.wait() == 0
    assert Path(log).read_text() == "reserved\n"


def test_the_command_is_in_the_wheel():
    shown = subprocess.run([WIGWAG, "--version"], capture_output=True, text=True)
    assert shown.stdout.startswith("wigwag ")
    refused = subprocess.run([WIGWAG, "status", "x", "--store", "/nowhere"], capture_output=True, text=True)
    assert refused.returncode != 0
    assert refused.stderr.startswith("error: ")


def test_nothing_happens_at_import():
    program = """
        import sys, threading, signal, logging
        before = signal.getsignal(signal.SIGINT)
        import wigwag
        assert threading.active_count() == 1
        assert signal.getsignal(signal.SIGINT) is before
        assert not logging.getLogger("wigwag").handlers
        assert "pydantic" not in sys.modules and "msgspec" not in sys.modules
        assert "wigwag.testing" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)


@pytest.mark.parametrize("interrupts", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_a_worker(tmp_path, interrupts):
    program = """
        import sys
        from wigwag import Context, Worker, workflow

        @workflow("idle")
        async def idle(ctx: Context) -> None:
            print("began", flush=True)
            await ctx.wait_for_signal("never")

        Worker(sys.argv[1], workflows=[idle]).run_forever()
        print("stopped", flush=True)
    """
    store = str(tmp_path / "data")
    worker = begin(textwrap.dedent(program), store)
    sync.WorkflowClient(store).start("idle", id="idle-1")
    assert worker.stdout.readline() == "began\n"
    worker.send_signal(interrupts)
    assert worker.stdout.read() == "stopped\n"
    assert worker.wait() == 0


def test_sys_exit_in_a_step_ends_the_worker_and_another_runs_it_again(tmp_path):
    program = """
        import asyncio, os, sys
        from wigwag import Context, Worker, workflow

        @workflow("exits")
        async def exits(ctx: Context) -> str:
            return await ctx.step("exit", leave)

        async def leave() -> str:
            if not os.path.exists(sys.argv[2]):
                open(sys.argv[2], "w").close()
                sys.exit(7)
            return "done"

        async def main() -> None:
            async with Worker(sys.argv[1], workflows=[exits]) as worker:
                run = await worker.client.start(exits, id="exits-1")
                print(await run.result(), flush=True)

        asyncio.run(main())
    """
    args = (str(tmp_path / "data"), str(tmp_path / "mark"))
    first = begin(textwrap.dedent(program), *args)
    assert first.wait(60) == 7
    second = begin(textwrap.dedent(program), *args)
    assert second.stdout.read() == "done\n"


def test_a_fork_leaves_the_locks_with_its_parent(tmp_path):
    """A child that lives on does not hide that its parent was killed."""
    program = """
        import asyncio, os, sys, time
        from wigwag import Context, Settings, Worker, WorkflowClient, errors, workflow

        @workflow("forks")
        async def forks(ctx: Context) -> str:
            await ctx.step("block", block)
            return "?"

        async def block() -> None:
            print("running", flush=True)
            await asyncio.Event().wait()

        async def main() -> None:
            worker = Worker(sys.argv[1], workflows=[forks], settings=Settings(lease=600))
            async with worker:
                client = WorkflowClient(sys.argv[1])
                await client.start(forks, id="forks-1")
                await asyncio.sleep(0.2)
                if os.fork() == 0:
                    # The loop belongs to the parent: the child starts another in a thread.
                    import threading
                    def child():
                        try:
                            asyncio.run(worker.start())
                        except errors.Forked as error:
                            print("forked", flush=True)
                        status = asyncio.run(client.get("forks-1")).status
                        print(status, flush=True)
                    thread = threading.Thread(target=child)
                    thread.start()
                    thread.join()
                    print("child", os.getpid(), flush=True)
                    time.sleep(600)
                    os._exit(0)
                await asyncio.Event().wait()

        asyncio.run(main())
    """
    store = str(tmp_path / "data")
    parent = begin(textwrap.dedent(program), store)
    said = [parent.stdout.readline().split() for _ in range(4)]
    assert ["running"] in said and ["forked"] in said and ["running"] in said, said
    [child] = [int(words[1]) for words in said if words[0] == "child"]
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    client = sync.WorkflowClient(store)
    [first] = claims(client, "forks-1")
    assert first.until - first.at > timedelta(minutes=5), "the lease outlasts this test"
    other = """
        import asyncio, sys
        from wigwag import Context, Settings, Worker, workflow

        @workflow("forks")
        async def forks(ctx: Context) -> str:
            await ctx.step("block", block)
            return "taken over"

        async def block() -> None: ...

        async def main() -> None:
            async with Worker(sys.argv[1], workflows=[forks], settings=Settings(lease=600)) as worker:
                print(await worker.client.result("forks-1"), flush=True)

        asyncio.run(main())
    """
    worker = begin(textwrap.dedent(other), store)
    try:
        eventually(lambda: client.get("forks-1").is_finished, "the run is taken over while the child lives")
        os.kill(child, 0)
        assert worker.stdout.read() == "taken over\n"
    finally:
        os.kill(child, signal.SIGKILL)
        worker.kill()
        worker.wait()
    before, after = claims(client, "forks-1")
    assert before.owner == first.owner != after.owner
    assert after.at < before.until, "the death of the owner was noticed, not the end of its lease"


def test_a_blocked_loop_keeps_its_runs_while_another_worker_looks_for_work(tmp_path):
    program = """
        import asyncio, logging, os, sys, time
        from wigwag import Context, Settings, Worker, workflow

        logging.basicConfig(level=logging.WARNING, stream=sys.stdout, format="%(message)s")
        calls = []

        @workflow("blocks")
        async def blocks(ctx: Context) -> int:
            return await ctx.step("block", block)

        async def block() -> int:
            calls.append(1)
            await asyncio.sleep(0)
            while not os.path.exists(sys.argv[2]):
                time.sleep(0.02)
            return len(calls)

        async def main() -> None:
            async with Worker(sys.argv[1], workflows=[blocks], settings=Settings(lease=3)) as worker:
                run = await worker.client.start(blocks, id="blocks-1")
                print(await run.result(), flush=True)

        asyncio.run(main())
    """
    other = """
        import asyncio, sys
        from wigwag import Context, Settings, Worker, workflow

        @workflow("blocks")
        async def blocks(ctx: Context) -> int:
            return await ctx.step("block", block)

        async def block() -> int:
            return 99

        @workflow("probe")
        async def probe(ctx: Context) -> str:
            return "alive"

        Worker(sys.argv[1], workflows=[blocks, probe], settings=Settings(lease=3)).run_forever()
    """
    store, end = str(tmp_path / "data"), str(tmp_path / "end")
    client = sync.WorkflowClient(store)
    blocked = begin(textwrap.dedent(program), store, end)
    thief = begin(textwrap.dedent(other), store)
    try:
        eventually(lambda: client.run("blocks-1").id in {run.id for run in client.list()}, "the run is there")
        eventually(lambda: claims(client, "blocks-1"), "it is claimed")
        first = claims(client, "blocks-1")[0]
        # The worker has renewed its lease several times since, on a loop that has not moved.
        eventually(lambda: claims(client, "blocks-1")[-1].at > first.until + timedelta(seconds=1), "leases are renewed")
        client.start("probe", id="probe-1", allow_unregistered=True)
        eventually(lambda: client.get("probe-1").is_finished, "the other worker runs other runs")
        assert client.get("blocks-1").current_steps == ["block"]
        Path(end).touch()
        said = blocked.stdout.read()
        assert blocked.wait() == 0
    finally:
        for worker in (blocked, thief):
            worker.kill()
            worker.wait()
    assert said.splitlines()[-1] == "1", said
    assert said.count("the event loop has been blocked") == 1 and "in block" in said, said
    assert {claim.owner for claim in claims(client, "blocks-1")} == {first.owner}


def test_many_kills_lose_nothing(tmp_path):
    store, log = str(tmp_path / "data"), str(tmp_path / "log")
    client = sync.WorkflowClient(store)
    for _ in range(int(os.environ.get("WIGWAG_KILLS", "5"))):
        worker = begin(PROGRAM, store, log)
        assert worker.stdout.readline() == "started\n"
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    worker = begin(PROGRAM, store, log)
    client.signal("order-17", "approval", {"by": "bob"}, start_if_absent=("order", "grand piano"))
    assert worker.stdout.read().splitlines()[-1] == "grand piano is reserved, approved by bob"
