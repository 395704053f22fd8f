"""Rows 1, 2, 10 and 20 of the reliability table at full size: exact draws in, the same law out."""

from collections.abc import Callable

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array, Key

import involutive as inv
from involutive.kernel.kernel import Kernel
from involutive.learning.fit.trained import train_proposal
from test_invariance import BUGS, RIGHT, Case, faults, judge, judge_all, lopsided
from zoo import hostile

deep = pytest.mark.deep
MILLION = 1_000_000
FRESH = 5  # exact draws to compare with, in millions: the gap that is seen is then below 0.006
SHORT = inv.LearnSettings(
    components=(8,), tune_steps=100, couplings_below=0.0, training_draws=4000, batch=256
)

# ── Row 1: exact starts, five steps, the same law ───────────────────────────────────────────────

TARGETS: dict[str, Callable[[], inv.Target]] = {
    "mog2_1d": inv.targets.mog2_1d, "mog2": inv.targets.mog2, "mog6": inv.targets.mog6,
    "ring": inv.targets.ring, "ring5": inv.targets.ring5,
    "funnel": lambda: inv.targets.funnel(3),
    "correlated": lambda: inv.targets.correlated_gaussian(3, 30.0),
    "two_modes": lambda: inv.targets.two_modes(3, 3.0),
}  # fmt: skip


def untrained(target: inv.Target, sd: float) -> Kernel:
    aux = 6 - target.dim
    network = inv.paper_network(4, target.dim, aux, last_scale=0.3, scale=sd)
    return Kernel(target, network, inv.standard_normal(aux))


def spoilt(target: inv.Target, sd: float) -> Kernel:
    """Weights three times too large; what then does not return is rejected by the guard."""
    aux = 6 - target.dim
    network = hostile(lambda key: inv.paper_network(key, target.dim, aux, scale=sd), 3.0)
    return Kernel(target, network(jr.key(4)), inv.standard_normal(aux), guard=1e-6)


def trained(target: inv.Target, sd: float) -> Kernel:
    """By the default recipe, briefly: far from perfect, so that acceptance matters."""
    assert target.sample is not None
    draws = np.asarray(target.sample(jr.key(8), 4000))
    return train_proposal(target, draws, jr.key(9), settings=SHORT, progress=False)[0].kernel


def gap_seen(n: int, m: int, error: float = 1e-6) -> float:
    """The gap between laws that n against m draws miss, or report wrongly, with chance `error`."""
    return 2 * float(np.sqrt(np.log(2 / error) / 2 * (1 / n + 1 / m)))


@deep
@pytest.mark.row(1)
@pytest.mark.parametrize("name", TARGETS)
def test_stationary_from_a_million_starts(name, record):
    target = TARGETS[name]()
    assert target.sample is not None
    sd = float(np.std(target.sample(jr.key(0), 10_000)))
    walk, gap = inv.random_walk(target, 0.5 * sd), gap_seen(MILLION, FRESH * MILLION)
    kernels = [weights(target, sd) for weights in (untrained, trained, spoilt)]
    cases = [Case(inv.Mixture([walk, kernel], [0.5, 0.5])) for kernel in kernels]
    for found in judge_all(cases, MILLION, 5, seed=2, fresh=FRESH, turns=20):
        record(1, cases=1, least_p=found.least_p, most_gap=gap)
        assert found.faults == [] and gap < 0.006


@deep
@pytest.mark.row(1)
@pytest.mark.parametrize("make", RIGHT.values(), ids=RIGHT)
def test_every_kind_of_kernel_at_a_million(make, record):
    found = judge(make(), MILLION, 5, seed=1)
    record(1, cases=1, least_p=found.least_p)
    assert found.faults == []


# ── Row 2: planted bugs, with the compiler's full optimisation ──────────────────────────────────


@deep
@pytest.mark.row(2)
@pytest.mark.parametrize("make", BUGS.values(), ids=BUGS)
def test_planted_bug_is_caught_as_users_compile_it(make, record):
    caught = faults(make(), seed=3) != []
    record(2, planted=1, caught=int(caught))
    assert caught


# ── Row 10: densities that break on part of the space ───────────────────────────────────────────


def broken(value: float, share: float) -> Case:
    """`lopsided` with another value beyond a line that cuts off `share` of its mass."""
    base = lopsided()
    assert base.sample is not None
    many = np.asarray(base.sample(jr.key(6), 400_000))[:, 0]
    line = float(np.quantile(many, 1 - share))
    target = inv.Target(lambda x: jnp.where(x[0] > line, value, base.log_density(x)), 2)

    def draw(key: Key[Array, ""], n: int) -> Array:
        x = base.sample(key, 4 * n)  # type: ignore[misc]
        return x[jnp.argsort(x[:, 0] > line, stable=True)][:n]

    return Case(inv.random_walk(target, 1.5), draw=draw)


@deep
@pytest.mark.row(10)
@pytest.mark.parametrize("share", [0.01, 0.5])
@pytest.mark.parametrize("value", [np.nan, -np.inf, np.inf])
def test_a_density_that_breaks(value, share, record):
    case = broken(value, share)
    start = np.asarray(case.exact(jr.key(7), 64))
    draws = inv.sample(case.kernel, key=8, num_chains=64, num_samples=1000, initial=start)
    bad = int((~np.isfinite(draws.positions)).sum())
    record(10, nonfinite_draws=bad, counted=int(draws.nonfinite.sum()))
    assert bad == 0
    assert (draws.nonfinite.sum() > 0) == (value != -np.inf)
    assert draws.stopped.any() == (value == np.inf)
    if value != np.inf:
        found = judge(case, MILLION, 5, seed=4)
        record(10, least_p=found.least_p)
        assert found.faults == []


# ── Row 20: fresh seeds ─────────────────────────────────────────────────────────────────────────

SEEDS = 50


@deep
@pytest.mark.row(20)
@pytest.mark.parametrize("name", RIGHT)
def test_fresh_seeds_find_no_fault(name, record):
    case = RIGHT[name]()
    flakes = sum(faults(case, chains=20_000, seed=1000 + i) != [] for i in range(SEEDS))
    record(20, runs=SEEDS, flakes=flakes)
    assert flakes == 0
