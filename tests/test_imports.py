"""The arrows of the design: a room imports only rooms to its left, inside functions too.

    core, _xla → targets, bijections → involutions, auxiliary → kernel → storage → sampling
    → diagnostics → training → learning → amortised → interop, plotting → report
    → bench → experiments → cli

Only `_xla` imports `jax.extend` or looks into a jaxpr.

`involutive/_public.py` names what is public, `__init__.py` hands it on, and `_wiring.py` says where
views of results are made; they see everything, and nothing imports them.
"""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "involutive"
ORDER: tuple[tuple[str, ...], ...] = (
    ("_version", "core"),
    ("_xla",),
    ("targets", "bijections"),
    ("involutions", "auxiliary"),
    ("kernel",),
    ("storage",),
    ("sampling",),
    ("diagnostics",),
    ("training", "universality"),
    ("learning",),
    ("amortised",),
    ("interop", "plotting"),
    ("report",),
    ("bench",),
    ("experiments",),
    ("cli",),
)
RANK = {room: rank for rank, rooms in enumerate(ORDER) for room in rooms}
ROOTS = {"__init__", "_public", "_wiring"}
FILES = sorted(SOURCE.rglob("*.py"))


def imported(tree: ast.AST) -> list[tuple[int, str]]:
    """The rooms of this package that a file imports, with lines; those for types alone left out."""
    typed = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    found = []
    for node in ast.walk(tree):
        if id(node) in typed:
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            parts = node.module.split(".")
            if parts[0] == "involutive":
                rooms = [parts[1]] if len(parts) > 1 else [alias.name for alias in node.names]
                found += [(node.lineno, room) for room in rooms]
        elif isinstance(node, ast.Import):
            for alias in node.names:
                parts = alias.name.split(".")
                if parts[0] == "involutive":
                    found.append((node.lineno, parts[1] if len(parts) > 1 else "__init__"))
    return found


def against(room: str, tree: ast.AST) -> list[str]:
    """The imports of a file that go against the arrows."""
    wrong = []
    for line, other in imported(tree):
        if other == room:
            continue
        if (
            other not in RANK
            or RANK[other] > RANK[room]
            or (RANK[other] == RANK[room] and other != "_version")
        ):
            wrong.append(f"line {line}: {room} imports {other}")
    return wrong


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_left(path: Path) -> None:
    room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if room in ROOTS:
        return
    assert room in RANK, f"{room} has no place in the order"
    assert not against(room, ast.parse(path.read_text()))


def test_an_import_inside_a_function_is_seen() -> None:
    tree = ast.parse("def f():\n    from involutive.learning.learn import learn\n")
    assert against("sampling", tree) == ["line 2: sampling imports learning"]


def jaxprs(tree: ast.AST) -> list[int]:
    """The lines on which a file imports `jax.extend`, or names a jaxpr."""
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                words = [alias.name for alias in names]
            case ast.ImportFrom(module=module, names=names):
                words = [f"{module}.{alias.name}" for alias in names]
            case ast.Attribute(attr=word) | ast.Name(id=word):
                words = [word, ast.unparse(node)]
            case _:
                continue
        if any(word.startswith("jax.extend") or "jaxpr" in word.lower() for word in words):
            found.append(node.lineno)
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_only_one_room_looks_into_programs(path: Path) -> None:
    if path.relative_to(SOURCE).parts[0] != "_xla":
        assert not jaxprs(ast.parse(path.read_text()))


@pytest.mark.parametrize(
    "line",
    [
        "from jax.extend.core import Literal",
        "import jax.extend as more",
        "from jax import extend; jax.extend.random",
        "jax.make_jaxpr(f)(x)",
        "program.jaxpr.eqns",
    ],
)
def test_a_look_into_a_program_is_seen(line: str) -> None:
    assert jaxprs(ast.parse(f"def f():\n    {line}\n"))
