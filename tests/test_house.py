"""The house rules of the design: who may import whom, and no circles."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MAY_IMPORT = {
    "codecs": set(),
    "sessions": {"codecs"},
    "engines": {"codecs"},
    "robot": {"codecs", "sessions", "engines"},
    "gateway": {"codecs", "sessions", "engines", "robot"},
    "clients": {"codecs"},
    "scenarios": {"clients", "codecs", "robot.sim"},
}
"""A folder, or one part of it."""


def modules() -> dict[str, Path]:
    """Dotted name below `antiphon` -> file, of everything but the tests."""
    found = {}
    for folder in MAY_IMPORT:
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = list(path.relative_to(ROOT).with_suffix("").parts)
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(name: str, path: Path) -> Iterator[tuple[str, int, bool]]:
    """(module below `antiphon`, line, at import time) of each import of our own."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    tree = ast.parse(path.read_text())
    inside_functions = {
        id(node) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef) for node in ast.walk(f) if node is not f
    }
    for node in ast.walk(tree):
        eager = id(node) not in inside_functions
        if isinstance(node, ast.ImportFrom):
            if node.level:
                base = package[: len(package) - (node.level - 1)]
            elif (node.module or "").split(".")[0] == "antiphon":
                base = []
            else:
                continue
            module = [part for part in (node.module or "").split(".") if part and part != "antiphon"]
            for alias in node.names:
                yield ".".join([*base, *module, alias.name]), node.lineno, eager
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("antiphon."):
                    yield alias.name.removeprefix("antiphon."), node.lineno, eager


def test_the_import_table_holds() -> None:
    wrong = []
    for name, path in modules().items():
        room = name.split(".")[0]
        for target, line, _ in imports(name, path):
            other = target.split(".")[0]
            allowed = any(f"{target}.".startswith(f"{part}.") for part in MAY_IMPORT[room])
            if other in MAY_IMPORT and other != room and not allowed:
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {target}")
    assert not wrong, "\n".join(wrong)


def test_no_module_imports_itself_in_a_circle() -> None:
    known = modules()
    graph: dict[str, set[str]] = {}
    for name, path in known.items():
        targets = set()
        for target, _, eager in imports(name, path):
            while target and target not in known:
                target = target.rpartition(".")[0]
            # A package's own __init__ names its parts; that is no circle between ideas.
            if eager and target and target != name and known[target].name != "__init__.py":
                targets.add(target)
        graph[name] = targets
    done: set[str] = set()

    def visit(name: str, trail: list[str]) -> None:
        if name in trail:
            pytest.fail("circle: " + " -> ".join([*trail[trail.index(name) :], name]))
        if name not in done:
            for other in sorted(graph[name]):
                visit(other, [*trail, name])
            done.add(name)

    for name in sorted(graph):
        visit(name, [])


def test_codecs_is_never_importable_at_top_level() -> None:
    """It would shadow the standard library's."""
    import codecs

    assert "antiphon" not in (codecs.__file__ or "")
    assert hasattr(codecs, "lookup")
