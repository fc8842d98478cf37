"""Generates `docs/reference/python.md` from the signatures and docstrings of the package.

`python bindings/python/reference.py` writes the page; `test_docs.py` fails if it is stale. The source is parsed and not
imported, so that the page is the same with every interpreter.
"""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs/reference/python.md"

#: Modules by heading; the names are those of `__all__`.
SECTIONS = [
    ("Workflows", "workflow", "wigwag"),
    ("Contexts", "context", "wigwag"),
    ("Clients", "client", "wigwag"),
    ("Clients without `await`", "sync", "wigwag.sync"),
    ("Workers", "worker", "wigwag"),
    ("Settings", "_options", "wigwag"),
    ("Errors", "errors", "wigwag"),
    ("Testing", "testing", "wigwag.testing"),
    ("pytest", "pytest_plugin", "wigwag.pytest_plugin"),
    ("Django", "contrib/django/__init__", "wigwag.contrib.django"),
]

#: Classes whose constructors users call; the others are made by decorators and calls.
MADE_BY_USERS = {"Kit", "PermanentError", "RetryableError", "Worker", "Workflow", "WorkflowClient"}

Definition = ast.FunctionDef | ast.AsyncFunctionDef


def page() -> str:
    """Returns the page."""
    parts = [
        "<!-- Made from the code: `python bindings/python/reference.py` writes it. -->",
        "# Python reference",
        "Signatures and docstrings of the package `wigwag`. [Getting started in Python](../python.md) explains how they fit together.",
    ]
    for heading, name, module in SECTIONS:
        path = HERE / "python/wigwag" / f"{name}.py"
        source = path.read_text()
        tree = ast.parse(source)
        parts += [f"## {heading}", f"Module `{module}`."]
        definitions = {node.name: node for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))}
        for public in exported(tree, definitions):
            found = definitions.get(public)
            if isinstance(found, ast.ClassDef):
                parts += class_parts(found, source)
            elif found is not None:
                parts += [f"### `{signature(found)}`", doc(found)]
            elif (meant := alias(tree, public)) is not None:
                parts += [f"### `{public}`", f"The class `{meant}` by a short name."]
    return "\n\n".join(part for part in parts if part) + "\n"


def exported(tree: ast.Module, definitions: dict[str, ast.AST]) -> list[str]:
    """Returns the public names of a module."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return sorted(ast.literal_eval(node.value), key=str.lower)
    return [name for name in definitions if not name.startswith("_")]


def alias(tree: ast.Module, name: str) -> str | None:
    """Returns the class that a module-level name stands for."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name and isinstance(node.value, ast.Name):
            return node.value.id
    return None


def class_parts(of: ast.ClassDef, source: str) -> list[str]:
    """Returns the heading, the docstring and the members of a class."""
    made = next((node for node in of.body if isinstance(node, Definition) and node.name == "__init__"), None)
    shown = signature(made, of.name) if made is not None and of.name in MADE_BY_USERS else of.name
    bases = [ast.unparse(base) for base in of.bases if "Generic" not in ast.unparse(base)]
    parts = [f"### `{shown}`", f"Subclass of {', '.join(f'`{base}`' for base in bases)}." if bases else "", doc(of)]
    members = [*fields(of, source), *(attributes(made, source) if made is not None else []), *methods(of)]
    return [*parts, "\n".join(members)]


def fields(of: ast.ClassDef, source: str) -> list[str]:
    """Returns the fields of a dataclass, with the comments before them."""
    if not of.decorator_list:
        return []
    found = [node for node in of.body if isinstance(node, ast.AnnAssign)]
    shown = []
    for node in found:
        default = ""
        if node.value is not None and not isinstance(node.value, ast.Call):
            default = f" = {ast.unparse(node.value)}"
        shown.append(item(f"{ast.unparse(node.target)}: {ast.unparse(node.annotation)}{default}", comment(node, source)))
    return shown


def attributes(made: Definition, source: str) -> list[str]:
    """Returns the attributes that a constructor documents with a comment."""
    shown = []
    for node in made.body:
        target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0] if isinstance(node, ast.Assign) else None
        if isinstance(target, ast.Attribute) and not target.attr.startswith("_") and (text := comment(node, source)):
            shown.append(item(target.attr, text))
    return shown


def comment(node: ast.stmt, source: str) -> str:
    """Returns the comment `#:` before a statement."""
    lines, found = source.splitlines(), []
    for line in reversed(lines[: node.lineno - 1]):
        if not line.strip().startswith("#:"):
            break
        found.insert(0, line.strip()[2:].strip())
    return " ".join(found)


def methods(of: ast.ClassDef) -> list[str]:
    """Returns the public methods of a class: of overloads, the implementation."""
    last = {node.name: node for node in of.body if isinstance(node, Definition) and not node.name.startswith("_")}
    shown = []
    for node in last.values():
        is_property = any(ast.unparse(decorator) == "property" for decorator in node.decorator_list)
        shown.append(item(node.name if is_property else signature(node), doc(node)))
    return shown


def item(code: str, text: str) -> str:
    """Returns a line of a list, with the paragraphs of its text indented."""
    if not text:
        return f"- `{code}`"
    return f"- `{code}`: " + text.replace("\n\n", "\n\n  ")


def signature(of: Definition, name: str | None = None) -> str:
    """Returns a signature without `self`."""
    arguments = ast.unparse(of.args)
    arguments = arguments.removeprefix("self, ").removeprefix("self")
    returns = f" -> {ast.unparse(of.returns)}" if of.returns is not None and name is None else ""
    prefix = "async " if isinstance(of, ast.AsyncFunctionDef) and not is_generator(of) else ""
    return f"{prefix}{name or of.name}({arguments}){returns}"


def is_generator(of: Definition) -> bool:
    """Whether a function is iterated and not awaited."""
    return any(isinstance(node, ast.Yield) for node in ast.walk(of))


def doc(of: Definition | ast.ClassDef) -> str:
    """Returns a docstring, one line for each paragraph."""
    text = inspect.cleandoc(ast.get_docstring(of) or "")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


if __name__ == "__main__":
    PAGE.write_text(page())
