"""Every public name is documented: each argument by name, real types, and an example that runs."""

import doctest
import functools
import inspect
import re
import textwrap
from typing import Any

import jax
import pytest
from test_cli import learned

import involutive as inv

NAMES = [
    name
    for name in inv.__all__
    if not inspect.ismodule(getattr(inv, name)) and name != "__version__"
]
# Values that pass through untouched, so that nothing can be said of their type.
UNTOUCHED = {
    "State": {"carried"},  # whatever a kernel carries beside the position
    "Target": {"like", "executor"},  # any pytree; any pool with submit, apply_async or map
    "sample_many": {"executor"},  # any pool with submit, apply_async or map
}
SLOW = ("FamilyKernel", "Hierarchical", "amortise", "sample_many")  # examples that train
FENCED = re.compile(r"```python\n(.*?)```", re.DOTALL)

documented = pytest.mark.parametrize("name", NAMES)


def parameters(item: Any) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(item).parameters)
    except ValueError:  # an exception
        return {}


def undocumented(item: Any) -> list[str]:
    """The arguments that no line `name: …` (or `name, other: …`) of the docstring explains."""
    text = inspect.getdoc(item) or ""
    lines = re.findall(r"^ +\*{0,2}([\w, *]+):", text, re.MULTILINE)
    named = {part.strip(" *") for line in lines for part in line.split(",")}
    return [name for name in parameters(item) if name not in named]


@documented
def test_every_argument_is_explained(name):
    item = getattr(inv, name)
    first = (inspect.getdoc(item) or "").split("\n\n")[0].strip()
    assert first.endswith((".", ":")), "one sentence says what it is"
    assert undocumented(item) == []


@documented
def test_no_argument_is_a_bare_any(name):
    found = {p for p, value in parameters(getattr(inv, name)).items() if value.annotation is Any}
    assert found <= UNTOUCHED.get(name, set())


@documented
def test_functions_say_what_they_return(name):
    item = getattr(inv, name)
    if inspect.isfunction(item) and inspect.signature(item).return_annotation is not None:
        assert "Returns:" in (item.__doc__ or "")


@pytest.fixture
def as_a_user(monkeypatch, tmp_path):
    """An empty folder, a session's checks, and a plain kernel in the place of a learned one."""
    monkeypatch.chdir(tmp_path)
    plain = functools.wraps(inv.learn)(lambda target, **_: learned(target))
    monkeypatch.setattr(inv, "learn", plain)
    with jax.debug_key_reuse(False), jax.numpy_rank_promotion("allow"):
        yield


# Fenced examples that need a proposal with a density, which takes learning; their functions are
# run in tests/diagnostics.
LEARNING = {"evidence", "compare"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.deep] * (name in SLOW)) for name in NAMES]
)
@pytest.mark.usefixtures("as_a_user", "as_users_run")
def test_every_example_runs(name):
    text = inspect.getdoc(getattr(inv, name)) or ""
    assert re.search(r"^Example:", text, re.MULTILINE), "a public name has an Example"
    example = text.split("Example:\n", 1)[1]
    fenced = FENCED.findall(example)
    if fenced:
        code = compile(textwrap.dedent(fenced[0]), name, "exec")
        if name not in LEARNING:
            exec(code, {})
        return
    parsed = doctest.DocTestParser().get_doctest(textwrap.dedent(example), {}, name, None, 0)
    assert parsed.examples, "an Example is lines that begin with >>>, or a fenced block"
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert runner.run(parsed, out=said.append).failed == 0, "".join(said)


def test_an_argument_left_out_of_a_docstring_is_seen():
    def half(a: int, b: int) -> None:
        """Half documented.

        Args:
            a: the first.
        """

    assert undocumented(half) == ["b"]


def test_tab_completion_shows_public_names_alone():
    assert dir(inv) == sorted(inv.__all__)
    private = [name for name in dir(inv) if name.startswith("_") and name != "__version__"]
    assert private == []


def test_tab_completion_in_the_rooms_that_users_enter():
    assert dir(inv.targets) == sorted(inv.targets.__all__)
    assert dir(inv.interop.numpyro) == ["InvolutiveKernel", "InvolutiveState", "target"]
    assert dir(inv.interop.pymc) == ["target"]
