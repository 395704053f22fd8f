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


@pytest.mark.parametrize("kind", [inv.LearnSettings, *map(type, GROUPS.values())])
def test_every_field_has_an_origin(kind):
    """In brackets at the end of its entry; `components` and `tails` list what is tried."""
    text = inspect.cleandoc(kind.__doc__ or "").split("Args:")[1].split("Raises:")[0]
    entries = re.split(r"\n {4}(?=\w+: )", text)
    missing = {entry.split(":")[0].strip() for entry in entries if entry.strip()[-1:] != "]"}
    assert missing - {"", *GROUPS, "components", "tails"} == set()


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
