"""Count what a reader meets: annotations that are a bare `Any`, and long functions.

Usage: python tools/annotations.py [src/involutive]
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

LONG = 40  # lines of a function, its signature included and its docstring not


def annotations(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Every annotation of an argument, a return or a field, with the name of where it stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            a = node.args
            for argument in [*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg]:
                if argument is not None and argument.annotation is not None:
                    yield node.name, argument.annotation
            if node.returns is not None:
                yield node.name, node.returns
        elif isinstance(node, ast.AnnAssign):
            yield "", node.annotation


def is_bare(annotation: ast.expr) -> bool:
    """Whether the annotation is `Any` itself, not `Any` inside something."""
    return isinstance(annotation, ast.Name) and annotation.id == "Any"


def main(root: Path) -> None:
    """Print the counts of all files below `root`."""
    bare: dict[str, int] = {}
    total, long = 0, []
    for path in sorted(root.rglob("*.py")):
        tree, name = ast.parse(path.read_text()), path.relative_to(root)
        found = [annotation for _, annotation in annotations(tree)]
        total += len(found)
        room = name.parts[0]
        bare[room] = bare.get(room, 0) + sum(map(is_bare, found))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                first, text = node.body[0], ast.get_docstring(node)
                lines = (node.end_lineno or 0) - node.lineno + 1
                lines -= 0 if text is None else (first.end_lineno or 0) - first.lineno + 1
                if lines > LONG:
                    long.append(f"{name}:{node.name} ({lines} lines)")
    print(f"annotations: {total}, bare Any: {sum(bare.values())}")
    print({room: count for room, count in sorted(bare.items()) if count})
    print(f"functions over {LONG} lines: {len(long)}")
    print("\n".join(long))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "src/involutive"))
