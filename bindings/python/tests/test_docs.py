"""Every Python block of the documentation compiles, and every block that is a whole program runs."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "bindings/python/README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = [
    pytest.param(text, id=f"{page.relative_to(ROOT)}:{number}")
    for page in PAGES
    for number, text in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
]


def test_the_reference_is_current():
    maker = ROOT / "bindings/python/reference.py"
    code = "import sys; sys.dont_write_bytecode = True; sys.path.insert(0, sys.argv[1]); import reference; print(reference.page(), end='')"
    made = subprocess.run([sys.executable, "-c", code, str(maker.parent)], capture_output=True, text=True, check=True)
    page = ROOT / "docs/reference/python.md"
    assert made.stdout == page.read_text(), f"{page} is stale: run `python {maker.relative_to(ROOT)}`"


def test_there_are_blocks():
    assert len(BLOCKS) >= 12


@pytest.mark.parametrize("text", BLOCKS)
def test_a_block(text, tmp_path):
    code = compile(text, "block", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    assert code is not None
    names = [line.split()[1].split(".")[0] for line in text.splitlines() if line.startswith(("from ", "import "))]
    if "asyncio.run(main())" in text and set(names) <= {"asyncio", "datetime", "typing", "wigwag"}:
        done = subprocess.run([sys.executable, "-c", text], cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
    for module, imported in re.findall(r"^from (wigwag[\w.]*) import (.*)$", text, re.MULTILINE):
        found = __import__(module, fromlist=["x"]) if "django" not in module else None
        for name in imported.split(", "):
            assert found is None or hasattr(found, name), f"{module} has no {name}"
