"""The client on a server's HTTP API, beside the same calls on the store."""

import asyncio
import contextlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import wigwag
from wigwag import (
    AccessDenied,
    Client,
    Context,
    InvalidCall,
    InvalidPayload,
    NotRunning,
    NotWaiting,
    PermanentError,
    RunCancelled,
    RunFailed,
    RunNotFound,
    StoreUnavailable,
    WaitTimeout,
    Worker,
    connect,
    sync,
    task,
    workflow,
)

WIGWAG = str(Path(sys.executable).with_name("wigwag"))


@contextlib.contextmanager
def served(*args):
    """A server on a free port, and its URL."""
    server = subprocess.Popen(
        [WIGWAG, *args, "--bind", "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        said = []
        while not (found := re.search(r"http://127\.0\.0\.1:\d+", said[-1] if said else "")):
            said.append(server.stdout.readline())
            assert said[-1], said
        yield found.group()
    finally:
        server.terminate()
        server.wait(30)
        server.stdout.close()


@pytest.fixture
def server(tmp_path):
    with served("dev", "--s3-write", "--store", str(tmp_path / "data")) as url:
        yield url


@workflow("order")
async def order(ctx: Context, item: str) -> dict:
    await ctx.step("reserve", reserve, item)
    approval = await ctx.wait_for_signal("approval", schema={"type": "object", "required": ["by"]})
    return {"item": item, "by": approval["by"]}


async def reserve(item: str) -> str:
    return f"one {item}"


@workflow("fails")
async def fails(ctx: Context) -> None:
    raise PermanentError("sold out")


@task("double")
async def double(n: int) -> int:
    return n * 2


async def everything(items):
    return [item async for item in items]


async def test_every_call_gives_the_same_as_on_the_store(server):
    store = f"{server}/s3"
    async with Worker(store, workflows=[order, fails], tasks=[double]):
        here, there = Client(server), Client(store)
        run = await here.start(order, "piano", id="order-1")
        assert (await here.start("order", "piano", id="order-1")).id == run.id, "the same start is the same run"
        while (await there.get("order-1")).status != "waiting_signal":
            await asyncio.sleep(0.02)

        both = [await client.get("order-1") for client in (here, there)]
        for name in ("id", "type", "status", "current_steps", "input", "data", "definition_hash", "created_at", "error"):
            assert getattr(both[0], name) == getattr(both[1], name), name
        assert both[0].steps["reserve"].result == both[1].steps["reserve"].result == "one piano"
        assert (await here.steps("order-1")).keys() == (await there.steps("order-1")).keys() == {"reserve", "approval"}
        assert await here.history("order-1") == await there.history("order-1")
        assert await here.explain("order-1") == await there.explain("order-1")
        assert await here.definitions(order) == await there.definitions(order)
        assert await here.definitions("nothing") == await there.definitions("nothing") == []
        assert (await here.counts()) == (await there.counts())
        waiting = [await everything(client.waiting("approval")) for client in (here, there)]
        assert waiting[0] == waiting[1] and len(waiting[0]) == 1

        receipt = await here.signal("order-1", "approval", {"by": "ada"}, key="once", wait=30)
        assert (receipt.point, receipt.repeated) == ("approval", False)
        assert await run.result(timeout=30) == {"item": "piano", "by": "ada"}
        assert (await here.signal("order-1", "approval", {"by": "ada"}, key="once")).id == receipt.id
        assert await here.inbox("order-1") == await there.inbox("order-1")

        followed = [await everything(client.follow("order-1")) for client in (here, there)]
        assert followed[0] == followed[1] == await there.history("order-1")

        await here.start(fails, id="fails-1")
        with pytest.raises(RunFailed, match="sold out") as failed:
            await here.result("fails-1", timeout=30)
        assert failed.value.fault.kind == "Permanent"
        listed = [await everything(client.list(status="failed", page_size=1)) for client in (here, there)]
        assert [[run.id for run in some] for some in listed] == [["fails-1"], ["fails-1"]]

        queue = await connect(server)
        submitted = await queue.submit(double, 21, idempotency_key="d", retries=1)
        assert (await queue.submit(double, 21, idempotency_key="d", retries=1)).id == submitted.id
        assert (await submitted.wait(timeout=30)).output == 42


async def test_control_and_many_signals(server):
    async with Worker(f"{server}/s3", workflows=[order]):
        client = Client(server)
        for number in range(3):
            await client.start(order, "tea", id=f"order-{number}")
        sent = await client.signal_many(
            [{"id": f"order-{number}", "name": "approval", "payload": {"by": "ada"}} for number in range(4)]
        )
        assert [type(each).__name__ for each in sent] == ["Receipt"] * 3 + ["RunNotFound"]
        for number in range(3):
            await client.result(f"order-{number}", timeout=30)

        await client.start(order, "tea", id="held")
        assert await client.pause("held") == "now"
        while (await client.get("held")).status != "paused":
            await asyncio.sleep(0.02)
        assert await client.resume("held") == "now"
        assert await client.cancel("held", reason="enough") == "now"
        assert (await client.wait("held", timeout=30)).status == "cancelled"
        with pytest.raises(RunCancelled):
            await client.result("held")
        assert await client.restart("held") == "now"
        while (await client.get("held")).is_finished:
            await asyncio.sleep(0.02)
        await client.signal("held", "approval", {"by": "bob"})
        assert (await client.result("held", timeout=30))["by"] == "bob"
        with pytest.raises(NotRunning):
            await client.pause("held")
        with pytest.raises(NotRunning):
            await client.migrate("held", step_mapping={"reserve": "hold", "gone": None})


async def test_problem_documents_become_the_same_errors(server):
    async with Worker(f"{server}/s3", workflows=[order]):
        client = Client(server)
        await client.start(order, "tea", id="order-1")
        for call, error, message in [
            (client.get("nowhere"), RunNotFound, "nowhere"),
            (client.get("../order-1"), InvalidCall, r"\.\./order-1"),
            (client.signal("order-1", "..", 1), InvalidCall, r"`\.\.`"),
            (client.start("ordr", id="x"), InvalidCall, "did you mean `order`?"),
            (client.start(order, "coffee", id="order-1"), wigwag.Conflict, "order-1"),
            (client.signal("order-1", "other", only_if_waiting=True), NotWaiting, "other"),
            (client.wait("order-1", timeout=0.1), WaitTimeout, "did not finish within 100ms"),
        ]:
            with pytest.raises(error, match=message):
                await call
        with pytest.raises(RunNotFound):
            await client.get("x")
        while (await client.get("order-1")).status != "waiting_signal":
            await asyncio.sleep(0.02)
        with pytest.raises(InvalidPayload) as refused:
            await client.signal("order-1", "approval", {"who": "ada"})
        assert refused.value.fields and "by" in str(refused.value)


class Lossy:
    """A proxy in front of a server. Instead of the next `to_lose` answers, it closes the connection."""

    def __init__(self, server):
        self.port = int(server.rsplit(":", 1)[1])
        self.to_lose = self.lost = 0

    async def __aenter__(self):
        self.listener = await asyncio.start_server(self.connected, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self.listener.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_):
        self.listener.close()

    async def connected(self, reader, writer):
        to_server = await asyncio.open_connection("127.0.0.1", self.port)

        async def requests():
            while data := await reader.read(65536):
                to_server[1].write(data)

        passing = asyncio.ensure_future(requests())
        while data := await to_server[0].read(65536):
            if self.to_lose:
                self.to_lose, self.lost = self.to_lose - 1, self.lost + 1
                break
            writer.write(data)
        passing.cancel()
        writer.close()
        to_server[1].close()


async def test_a_lost_answer_is_requested_again_and_has_no_further_effect(server):
    async with Lossy(server) as proxy:
        client, queue = Client(proxy.url), await connect(proxy.url)
        proxy.to_lose = 1
        run = await client.start("order", "tea")
        assert [run.id for run in await everything(client.list())] == [run.id]
        proxy.to_lose = 2
        await client.signal(run.id, "approval", {"by": "ada"})
        assert len(await client.inbox(run.id)) == 1
        proxy.to_lose = 1
        task = await queue.submit("double", 1)
        assert (await task.get()).input == 1
        tasks = await client._asking.ask("list", tasks=True, limit=10)
        assert [each["id"] for each in tasks["runs"]] == [task.id]
        assert proxy.lost == 4
        # A pause has no key: whether it took effect is unknown.
        proxy.to_lose = 1
        with pytest.raises(StoreUnavailable, match="lost the connection") as lost:
            await client.pause(run.id)
        assert lost.value.hint == "the request may have succeeded; check before you repeat it"


def test_the_sync_client_and_tokens(tmp_path):
    made = subprocess.run([WIGWAG, "token", "ada", "--scope", "runs:read"], capture_output=True, text=True)
    token = made.stdout.strip()
    config = tmp_path / "wigwag.toml"
    config.write_text(made.stderr[made.stderr.index("[[token]]") :])
    with served("serve", "--config", str(config), "--store", str(tmp_path / "data")) as url:
        with pytest.raises(AccessDenied, match="requires a token") as missing:
            sync.WorkflowClient(url).get("x")
        assert missing.value.hint == "pass `token=`"
        with pytest.raises(AccessDenied, match="rejected the token") as wrong:
            sync.connect(url, token="ww_wrong")
        assert wrong.value.hint == "check the token in the argument `token`"
        client = sync.WorkflowClient(url, token=token)
        assert list(client.list()) == []
        with pytest.raises(AccessDenied) as refused:
            client.start("order", "tea")
        assert isinstance(refused.value, PermissionError) and "runs:write" in str(refused.value)
        assert token not in f"{refused.value} {client!r} {vars(client)}"


async def test_a_server_that_is_not_there():
    with pytest.raises(StoreUnavailable, match="cannot reach `http://127.0.0.1:9`") as error:
        await Client("http://127.0.0.1:9").get("x")
    assert "--" not in (error.value.hint or "")


def test_a_token_is_not_sent_in_the_open():
    for url in ("http://wigwag.example.com", "http://10.0.0.1:7070"):
        with pytest.raises(InvalidCall, match="would expose the token") as refused:
            Client(url, token="s3cret")
        assert "s3cret" not in str(refused.value) and "`allow_http`" in refused.value.hint
        Client(url, token="s3cret", allow_http=True)
    for url in ("https://wigwag.example.com", "http://127.0.0.1:7070", "http://localhost:7070"):
        Client(url, token="s3cret")
    with pytest.raises(InvalidCall, match="not for a store"):
        Client("./data", token="s3cret")
    with pytest.raises(InvalidCall, match="valid token"):
        Client("https://wigwag.example.com", token="two words")
    with pytest.raises(InvalidCall, match="give the token to `connect`"):
        Client(wigwag.Queue("./data"), token="s3cret")


def test_every_error_code_of_a_server_has_a_class():
    from wigwag import _native, errors

    codes = dict(_native.server_codes())
    assert set(codes.values()) <= set(errors._CLASSES)
    assert [code for code, kind in codes.items() if kind == "Internal"] == ["internal"]
