"""Which experiments there are, read from their files without importing them: that takes seconds."""

import ast
from pathlib import Path

# the order of the paper; whatever else is found follows by name
ORDER = (
    "proposals", "mixing", "convergence", "chains", "bootstrapped", "estimator", "capacity",
    "universality", "families",
)  # fmt: skip
# an hour or more of their own in full: `all` leaves them out, except in their quick form
BY_NAME = ("recipe", "mixing")


def list_experiments() -> dict[str, str]:
    """Return the title of every experiment by name, in the order of the paper."""
    titles = {path.stem: _title(path) for path in Path(__file__).parent.glob("*.py")}
    found = {name: title for name, title in titles.items() if title is not None}
    places = {name: place for place, name in enumerate(ORDER)}
    order = sorted(found, key=lambda name: (places.get(name, len(ORDER)), name))
    return {name: found[name] for name in order}


def everything(quick: bool) -> list[str]:
    """What `all` stands for."""
    return [name for name in list_experiments() if quick or name not in BY_NAME]


def _title(path: Path) -> str | None:
    """The first line of the docstring of a module that defines `Config`; None for other modules."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if not any(isinstance(node, ast.ClassDef) and node.name == "Config" for node in tree.body):
        return None
    return (ast.get_docstring(tree) or "").strip().splitlines()[0].rstrip(".")
