"""The programs of the guides for FastAPI and Django."""

import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from wigwag import sync

GUIDES = Path(__file__).parents[3] / "docs/guides"


def blocks(page):
    return re.findall(r"```python\n(.*?)```", (GUIDES / page).read_text(), re.DOTALL)


def test_fastapi(tmp_path, monkeypatch):
    pytest.importorskip("fastapi")
    from fastapi.testclient import TestClient

    monkeypatch.chdir(tmp_path)
    names = {"__name__": "guide"}
    [program] = blocks("python-fastapi.md")
    exec(compile(program, "python-fastapi.md", "exec"), names)
    with TestClient(names["app"]) as web:
        assert web.post("/orders/17", params={"item": "piano"}).json() == {"id": "17"}
        assert web.post("/orders/18/approval", params={"by": "ada"}).status_code == 404
        assert names["worker"].active_runs >= 0
        answer = web.post("/orders/17/approval", params={"by": "ada"})
        assert answer.json()["state"] in ("waiting", "buffered")
        client = sync.WorkflowClient("./data")
        assert client.result("17", timeout=30) == "piano, approved by ada"
        ended = web.post("/orders/17/approval", params={"by": "bob"})
        assert ended.status_code == 409, ended.text
    # The application has ended, and the worker with it: it starts again with the application.
    with TestClient(names["app"]) as web:
        web.post("/orders/19", params={"item": "tea"})
        web.post("/orders/19/approval", params={"by": "ada"})
        assert client.result("19", timeout=30) == "tea, approved by ada"


def test_django(tmp_path):
    pytest.importorskip("django")
    settings, view = blocks("python-django.md")
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/__init__.py").touch()
    (tmp_path / "shop/views.py").write_text(view)
    (tmp_path / "shop/workflows.py").write_text(
        textwrap.dedent("""
            from wigwag import Context, workflow

            @workflow("order")
            async def order(ctx: Context, item: str) -> str:
                approval = await ctx.wait_for_signal("approval")
                return f"{item}, approved by {approval['by']}"
        """)
    )
    store = str(tmp_path / "data")
    (tmp_path / "site_settings.py").write_text(settings.replace("s3://my-bucket/orders", store))
    (tmp_path / "manage.py").write_text(
        textwrap.dedent("""
            import os, sys
            os.environ["DJANGO_SETTINGS_MODULE"] = "site_settings"
            from django.core.management import execute_from_command_line
            execute_from_command_line(sys.argv)
        """)
    )
    manage = [sys.executable, "-u", "manage.py"]
    worker = subprocess.Popen([*manage, "wigwag_worker"], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        assert worker.stdout.readline() == f"wigwag: 1 workflows, 0 tasks on {store}\n"
        client = sync.WorkflowClient(store)
        client.start("order", "piano", id="order-17", allow_unregistered=True)
        program = """
            import os
            os.environ["DJANGO_SETTINGS_MODULE"] = "site_settings"
            import django
            django.setup()
            from types import SimpleNamespace
            from django.test import RequestFactory
            from shop.views import approve
            request = RequestFactory().post("/", {"form": "f-1"})
            request.user = SimpleNamespace(username="ada")
            print(approve(request, "order-17").content.decode())
        """
        told = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program)], cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
        assert '"state"' in told.stdout, told.stderr
        assert client.result("order-17", timeout=30) == "piano, approved by ada"
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 0
    finally:
        worker.kill()
        worker.wait()
        worker.stdout.close()
