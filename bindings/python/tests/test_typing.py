"""mypy --strict and pyright on the package, on typed calls, and on calls that they must refuse."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "typing"
CONFIG = Path(__file__).parents[1] / "pyproject.toml"


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, cwd=HERE)


def wrong_lines():
    text = (HERE / "wrong.py").read_text().splitlines()
    return {number for number, line in enumerate(text, 1) if line.endswith("# wrong")}


def test_mypy():
    pytest.importorskip("mypy")
    mypy = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(CONFIG), "--python-version", "3.11"]
    done = run(*mypy, "-p", "wigwag")
    assert done.returncode == 0, done.stdout
    done = run(*mypy, "typed.py")
    assert done.returncode == 0, done.stdout
    done = run(*mypy, "wrong.py")
    assert {int(number) for number in re.findall(r"^wrong.py:(\d+): error", done.stdout, re.MULTILINE)} == wrong_lines(), done.stdout


@pytest.mark.skipif(shutil.which("pyright", path=str(Path(sys.executable).parent)) is None, reason="no pyright")
def test_pyright():
    pyright = str(Path(sys.executable).with_name("pyright"))
    done = run(pyright, "--pythonpath", sys.executable, "typed.py")
    if "npm" in done.stderr or "node" in done.stderr.lower():
        pytest.skip(f"pyright cannot get Node here: {done.stderr[-200:]}")
    assert done.returncode == 0, done.stdout
    done = run(pyright, "--pythonpath", sys.executable, "wrong.py")
    found = {int(number) for number in re.findall(r"wrong.py:(\d+):\d+ - error", done.stdout)}
    assert found == wrong_lines(), done.stdout
