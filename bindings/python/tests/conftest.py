"""Async tests each run on a new loop, for a minute at most."""

import asyncio
import inspect

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in wanted}

    async def limited():
        limit = pyfuncitem.get_closest_marker("limit")
        await asyncio.wait_for(pyfuncitem.obj(**arguments), limit.args[0] if limit else 60)

    asyncio.run(limited())
    return True


def pytest_configure(config):
    config.addinivalue_line("markers", "limit(seconds): how long an async test may take; 60 s unless said otherwise")


@pytest.fixture
def store(tmp_path):
    return str(tmp_path / "data")
