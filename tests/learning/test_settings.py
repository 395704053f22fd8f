"""One settings object: what steers learning lies in it, is documented, and is read."""

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import jax.random as jr
import numpy as np
import pytest

import involutive as inv
from involutive.diagnostics import findings, search
from involutive.learning.budget import Budget
from involutive.learning.checkpoint import SavedStages
from involutive.learning.find.search import find_modes
from involutive.learning.problem import initial_distribution, pose_problem
from involutive.learning.stages import Found

FOLDER = Path(inspect.getfile(inv.LearnSettings)).parents[1]
# Bounds of floating point and sizes of blocks in memory, which decide no behaviour.
GUARDS = {
    "fit/responsibilities.py": {"FEW", "ROOM", "ROWS", "FAR", "FAINT"},
}
# Inline numbers of formulas and of floating point; what else steers learning is a setting.
INLINE = {
    "bootstrap.py": {0.1},  # seconds, so that a budget that is spent still divides
    "find/annealing.py": {40},  # halvings of an interval
    "find/climbs.py": {0.25, 0.5},  # d^(-1/4) and d^(-1/2), standard for HMC and random walks
    "fit/mixture.py": {8},  # Bhattacharyya's distance
    "fit/responsibilities.py": {0.5},  # a normal's quadratic form
    "fit/trained.py": {0.01},  # seconds, as for bootstrap.py
    "frugal/refit.py": {30},  # halvings
    "frugal/state.py": {0.16, 0.5, 0.84},  # a normal's quantiles at -1, 0 and 1 sd
    "judge/final_search.py": {700.0},  # largest exponent of `exp`
    "judge/independence.py": {50.0, 100.0},  # nats: `exp` of more changes nothing
    "judge/measure.py": {1e-3},  # so that no effective draw still divides
    "outcome.py": {0.9},  # the definition of a metric that is reported
    "refine/local.py": {0.25},  # d^(-1/4)
    "refine/replicas.py": {0.25},  # d^(-1/4)
}
NAMELESS = {0, 1, 2, 3}  # indices, halves and squares; a gradient counts as three evaluations
NUMBERED = {"split", "fold_in", "begin", "stage", "_with_keys", "warn"}  # calls that take numbers
GROUPS = {
    item.name: getattr(inv.LearnSettings(), item.name)
    for item in fields(inv.LearnSettings)
    if is_dataclass(getattr(inv.LearnSettings(), item.name))
}


def has_number(value: ast.AST | None) -> bool:
    found = ast.walk(value) if value is not None else ()
    return any(
        isinstance(node, ast.Constant) and isinstance(node.value, int | float) for node in found
    )


def constants(text: str) -> Iterator[str]:
    """Upper-case names that a module gives a number to, one by one or several at once."""
    for statement in ast.parse(text).body:
        if isinstance(statement, ast.Assign):
            names, value = statement.targets, statement.value
        elif isinstance(statement, ast.AnnAssign):
            names, value = [statement.target], statement.value
        else:
            continue
        if not has_number(value):
            continue
        for node in (part for name in names for part in ast.walk(name)):
            if isinstance(node, ast.Name) and node.id.isupper():
                yield node.id


def test_no_number_steers_learning_outside_its_settings():
    found = {
        path.relative_to(FOLDER).as_posix(): set(constants(path.read_text()))
        for path in FOLDER.rglob("*.py")
    }
    assert {name: names for name, names in found.items() if names} == GUARDS


def test_a_constant_is_seen():
    text = 'A = 3\nB, C = 0.5, (1, 2)\nD: int = 4\nE = np.log(8.0)\nKIND = "name"\nlower = 1\n'
    assert list(constants(text)) == ["A", "B", "C", "D", "E"]


def inline(text: str) -> set[float]:
    """The numbers in a module's code that neither a setting nor a constant names.

    Halves count where they stand alone, not as a factor or a power: `0.5 * x`, `x**0.5`.
    """
    tree, left = ast.parse(text), set[int]()
    for node in ast.walk(tree):
        name = ast.unparse(node.func).split(".")[-1] if isinstance(node, ast.Call) else ""
        if name in NUMBERED or isinstance(node, ast.Slice):
            left |= {id(part) for part in ast.walk(node)}
        if isinstance(node, ast.BinOp):
            left |= {id(side) for side in (node.left, node.right) if is_half(side)}
        if isinstance(node, ast.Assign) and all(name.isupper() for name in named(node)):
            left |= {id(part) for part in ast.walk(node)}
    found = {
        abs(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and type(node.value) in (int, float)
        and id(node) not in left
    }
    return {number for number in found - NAMELESS if 1e-6 < number < 1e6}


def is_half(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value == 0.5


def named(statement: ast.Assign) -> list[str]:
    """The names that a statement assigns to."""
    parts = (part for target in statement.targets for part in ast.walk(target))
    return [part.id for part in parts if isinstance(part, ast.Name)]


def test_no_inline_number_steers_learning():
    found = {
        path.relative_to(FOLDER).as_posix(): inline(path.read_text())
        for path in FOLDER.rglob("*.py")
        if path.parent.name != "settings"
    }
    assert {name: numbers for name, numbers in found.items() if numbers} == INLINE


def test_an_inline_number_is_seen():
    text = """
A = 7
def f(x, key):
    key, other = split(fold_in(key, 4), 5)
    return 0.5 * x**0.5 + 2 * x[:6] - (0.5, 0.25)[0] * max(x, 1e-12) + min(x, 2000) - 1e-3
"""
    assert inline(text) == {0.5, 0.25, 2000, 1e-3}


def origins(kind: type) -> dict[str, str]:
    """The text in brackets at the end of each field's entry, empty where there is none."""
    text = inspect.cleandoc(kind.__doc__ or "").split("Args:")[1].split("Raises:")[0]
    entries = (entry.strip() for entry in re.split(r"\n {4}(?=\w+: )", text))
    found = {
        entry.split(":")[0]: re.search(r"\[([^\[\]]+)\]$", entry) for entry in entries if entry
    }
    return {name: "" if match is None else match[1] for name, match in found.items()}


@pytest.mark.parametrize("kind", [inv.LearnSettings, *map(type, GROUPS.values())])
def test_every_field_has_an_origin(kind):
    """In brackets at the end of its entry; a group is a field of the main settings without one."""
    found = origins(kind)
    assert set(found) == {item.name for item in fields(kind)}
    missing = {name for name, origin in found.items() if not origin}
    assert missing == (set(GROUPS) if kind is inv.LearnSettings else set())


def test_an_entry_without_an_origin_is_seen():
    class Some:
        """Settings.

        Args:
            one: a number, in
                seconds. [a guess]
            two: a number [of two].
        """

    assert origins(Some) == {"one": "a guess", "two": ""}


def test_learning_and_the_verdict_on_draws_judge_by_the_same_numbers():
    """`outcome.converged` and the verdict may differ by an allowance for noise alone."""
    settings = inv.LearnSettings()
    assert settings.judge.largest_rhat == findings.LARGEST_RHAT["r_hat"]
    assert settings.judge.largest_groups == findings.LARGEST_RHAT["nested_r_hat"]
    assert settings.judge.least_ess == settings.frugal.trusted == findings.LEAST_ESS
    assert settings.look.largest == search.MISSED


@pytest.mark.parametrize("name", GROUPS)
def test_every_field_is_read(name):
    """A field that nothing reads would be a dial that turns nothing."""
    code = (
        "\n".join(
            path.read_text() for path in FOLDER.rglob("*.py") if path.parent.name != "settings"
        )
        + (FOLDER / "settings" / "learn_settings.py").read_text()
    )
    unread = [item.name for item in fields(GROUPS[name]) if f".{item.name}" not in code]
    assert unread == []


def test_numbers_are_not_negative_and_groups_are_groups():
    with pytest.raises(inv.InputError, match="climbers of LearnSettings must not be negative"):
        inv.LearnSettings(climbers=-1)
    with pytest.raises(inv.InputError, match="warmup of JudgeSettings must not be negative"):
        inv.JudgeSettings(warmup=(20, -1))
    settings = inv.LearnSettings()
    object.__setattr__(settings, "search", inv.FitSettings())  # past the checks of this suite
    with pytest.raises(inv.InputError, match="search of LearnSettings must be SearchSettings"):
        settings.__post_init__()


def problem_of(settings):
    target = inv.targets.mog6()
    law = initial_distribution(None, target, 3.0)
    return pose_problem(target, law, settings, Budget(evaluations=60_000), jr.key(0), False, None)


def test_a_group_steers_its_stage():
    usual = find_modes(problem_of(inv.LearnSettings()), None)
    few = inv.LearnSettings(search=inv.SearchSettings(dispersed=10, first_share=0.1))
    found = find_modes(problem_of(few), None)
    assert len(usual.starts) == 256 and len(found.starts) == 10


BEFORE = (  # of a checkpoint that was saved before there were groups
    "LearnSettings(initial_sd=3.0, climbers=1024, search_draws=16384, particles=2000, "
    "widths=(0.05, 0.3, 1.0, 2.0, 4.0), growth=(1.4, 1.1, 1.1, 1.1, 1.1), screen_steps=12, "
    "climb_steps=200, spread_steps=60, temperatures=100, anneal_ess=0.7, anneal_moves=5, "
    "resample_ess=500.0, spike_nats=20.0, second_search=0.125, em_operations=200000000.0, "
    "components=None, fit_draws=32768, defensive=(0.85, 0.12, 0.03), wide_share=0.003, "
    "em_steps=6, most_batches=12, good_enough=0.97, suffices=0.75, trusts_weights=0.3, poor=0.5, "
    "missed=0.05, tails=(0.0, 0.02, 0.06, 0.15), tail_stretch=3.0, couplings_below=0.6, "
    "tune_steps=1500, coupling_steps=2000, coupling_layers=8, coupling_width=32, batch=512, "
    "training_draws=20000, learning_rate=0.01, coupling_rate=0.01, round_chains=512, "
    "round_steps=80, most_rounds=6, round_shorter=3.0, replicas_below=0.1, pilot_chains=64, "
    "pilot_draws=1000, pilot_least=200)"
)


def test_checkpoints_of_before_are_of_the_same_settings():
    assert repr(inv.LearnSettings()) == BEFORE


def test_a_checkpoint_is_refused_for_another_group(tmp_path):
    settings = inv.LearnSettings(climbers=64)
    problem, path = problem_of(settings), tmp_path / "learning.inv"
    found = SavedStages(path, problem).write(find_modes(problem, None))
    again = SavedStages(path, problem_of(replace(settings))).read()
    assert isinstance(again, Found)
    np.testing.assert_array_equal(again.points, found.points)
    other = replace(settings, fit=inv.FitSettings(searches=1))
    with pytest.raises(inv.InputError, match="saved by a run with settings="):
        SavedStages(path, problem_of(other)).read()
