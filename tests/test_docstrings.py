"""Every public name is documented: each argument by name, real types, and an example that runs."""

import ast
import doctest
import functools
import inspect
import re
import textwrap
from collections.abc import Callable
from typing import Any

import jax
import pytest
from test_cli import learned

import involutive as inv
from involutive.core.errors import check, check_count

NAMES = [
    name
    for name in inv.__all__
    if not inspect.ismodule(getattr(inv, name)) and name != "__version__"
]
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
    assert found == set()


@documented
def test_functions_say_what_they_return(name):
    item = getattr(inv, name)
    if inspect.isfunction(item) and inspect.signature(item).return_annotation is not None:
        assert "Returns:" in (item.__doc__ or "")


def checks(node: ast.AST) -> bool:
    """Whether code refuses an input: it calls `check` or a function like it, or raises."""
    called = (ast.unparse(n.func).split(".")[-1] for n in ast.walk(node) if isinstance(n, ast.Call))
    raised = (ast.unparse(n) for n in ast.walk(node) if isinstance(n, ast.Raise))
    return any(name.lstrip("_").startswith("check") for name in called) or any(
        "InputError" in statement for statement in raised
    )


def silent(item: Any) -> list[str]:
    """What refuses an input without a word of it: the item's docstring, or that of a method.

    A constructor's checks, and those of private methods, belong in the class's docstring.
    """
    said = "Raises:" in (inspect.getdoc(item) or "")
    if not inspect.getmodule(item).__name__.startswith(("involutive", __name__)):  # type: ignore[union-attr]
        return []
    tree = ast.parse(textwrap.dedent(inspect.getsource(item))).body[0]
    if not isinstance(tree, ast.ClassDef):
        return [item.__name__] if checks(tree) and not said else []
    inside = ("__init__", "__post_init__", "__check_init__")
    methods = [part for part in tree.body if isinstance(part, ast.FunctionDef) and checks(part)]
    return [
        f"{item.__name__}.{method.name}"
        for method in methods
        if "Raises:" not in (ast.get_docstring(method) or "")
        and not (said and (method.name in inside or re.match("_[^_]", method.name)))
    ]


@documented
def test_what_is_refused_is_said(name):
    assert silent(getattr(inv, name)) == []


def test_a_refusal_without_a_word_is_seen():
    class Strict:
        """Raises, but does not say so."""

        def __init__(self, size: int):
            check_count("size", size)

        def half(self, n: int) -> int:
            """Half of an even n.

            Raises:
                InputError: if n is odd.
            """
            check(n % 2 == 0, "n must be even")
            return n // 2

    def loose(n: int) -> None:
        """Take anything but 3."""
        if n == 3:
            raise inv.InputError("n must not be 3")

    assert silent(Strict) == ["Strict.__init__"] and silent(loose) == ["loose"]


@pytest.fixture
def in_a_folder(monkeypatch, tmp_path):
    """An empty folder, and a session's checks."""
    monkeypatch.chdir(tmp_path)
    with jax.debug_key_reuse(False), jax.numpy_rank_promotion("allow"):
        yield


def stub_of(real: Callable) -> Callable:
    """`learn` without learning, which takes the arguments of the real one alone."""

    @functools.wraps(real)
    def stub(*arguments: Any, **named: Any) -> Any:
        return learned(inspect.signature(real).bind(*arguments, **named).arguments["target"])

    return stub


@pytest.fixture
def without_learning(monkeypatch):
    """A plain kernel in the place of a learned one."""
    monkeypatch.setattr(inv, "learn", stub_of(inv.learn))


def bind_calls(code: ast.AST) -> None:
    """Bind the arguments of every call of a public name to its signature.

    Raises:
        TypeError: if they do not fit.
    """
    for node in ast.walk(code):
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("inv."):
            function = functools.reduce(getattr, ast.unparse(node.func).split(".")[1:], inv)
            named = {word.arg: word.value for word in node.keywords if word.arg}
            inspect.signature(function).bind(*node.args, **named)


# Fenced examples that need a proposal with a density, which takes learning: without it, only the
# arguments of their calls are looked at.
LEARNING = {"evidence", "compare"}


def run_example(name: str, learning: bool) -> None:
    """Run a public name's example; one that has to learn only if `learning`."""
    text = inspect.getdoc(getattr(inv, name)) or ""
    assert re.search(r"^Example:", text, re.MULTILINE), "a public name has an Example"
    example = text.split("Example:\n", 1)[1]
    fenced = FENCED.findall(example)
    if fenced:
        code = ast.parse(textwrap.dedent(fenced[0]))
        bind_calls(code)
        if learning or name not in LEARNING:
            exec(compile(code, name, "exec"), {})
        return
    parsed = doctest.DocTestParser().get_doctest(textwrap.dedent(example), {}, name, None, 0)
    assert parsed.examples, "an Example is lines that begin with >>>, or a fenced block"
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert runner.run(parsed, out=said.append).failed == 0, "".join(said)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in SLOW])
@pytest.mark.usefixtures("in_a_folder", "without_learning", "as_users_run")
def test_every_example_runs(name):
    run_example(name, learning=False)


@pytest.mark.deep
@documented
@pytest.mark.usefixtures("in_a_folder", "as_users_run")
def test_every_example_runs_with_what_it_learns(name):
    run_example(name, learning=True)


def test_arguments_that_learn_does_not_take_are_seen():
    stub, target = stub_of(inv.learn), inv.targets.mog2_1d()
    assert stub(target, key=0).target is target
    with pytest.raises(TypeError, match="budgt"):
        stub(target, key=0, budgt=3)
    with pytest.raises(TypeError, match="num_sampels"):
        bind_calls(ast.parse("inv.evidence(inv.learn(x, key=0), key=1, num_sampels=3)"))


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
