"""Row 3 of the reliability table: Gandy and Scott's exact rank test, in rounds.

A. Gandy and J. Scott, Unit testing for MCMC and other Monte Carlo methods, 2020.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.stats
from jaxtyping import Array, Key

from test_invariance import BUGS, LEVEL, RIGHT, Case

deep = pytest.mark.deep
LENGTH, RANKS, ROUNDS = 20, 10_000, 3


@eqx.filter_jit
def paths(case: Case, starts: Array, key: Key[Array, ""]) -> Array:
    """Positions after 1 to `LENGTH` steps from each start, `(steps, n, dim)`."""

    def move(state: Any, t: Array) -> Any:
        keys = jr.split(jr.fold_in(key, t), len(starts))
        state, _ = jax.vmap(lambda k, s: case.step(case.kernel, k, s))(keys, state)
        return state, state.position

    return jax.lax.scan(move, jax.vmap(case.kernel.init)(starts), jnp.arange(LENGTH))[1]


def ranks(case: Case, n: int, seed: int) -> np.ndarray:
    """Ranks of an exact draw among a path through it: `(n, statistics)`, uniform on 0 to L.

    The draw is the M-th state of the path, M uniform; the states before it are made by the same
    kernel, so that the ranks are uniform only if the kernel is reversible.
    """
    keys = jr.split(jr.key(seed), 3)
    starts = jax.vmap(case.kernel.init)(case.exact(keys[0], n)).position  # on its lattice
    ahead, behind = (np.asarray(paths(case, starts, key)) for key in keys[1:])
    rng = np.random.default_rng(seed)
    before = rng.integers(0, LENGTH + 1, n)  # M
    step = np.arange(1, LENGTH + 1)[:, None]
    found = []
    for values in (lambda x: x[..., 0], lambda x: x[..., 1], lambda x: (x**2).sum(-1)):
        own = values(np.asarray(starts))[None]
        below, equal = np.zeros(n), np.zeros(n, int)
        for path, count in ((behind, before), (ahead, LENGTH - before)):
            inside = step <= count[None]
            below += ((values(path) < own) & inside).sum(0)
            equal += ((values(path) == own) & inside).sum(0)
        # a rejected move stays where it was: any place among its equals is as likely
        found.append(below + rng.integers(0, equal + 1))
    return np.stack(found, axis=1)


def fairness(below: np.ndarray) -> float:
    """The smallest χ² p-value over the statistics, times how many there are."""
    size = LENGTH + 1
    p = [scipy.stats.chisquare(np.bincount(b.astype(int), minlength=size)).pvalue for b in below.T]
    return float(min(min(p) * len(p), 1.0))


def rank_test(case: Case, level: float = LEVEL) -> tuple[bool, float, int]:
    """Sequentially, in at most three rounds, with false rejections below `level` in all.

    Returns:
        Whether the kernel passed, the last p-value, and how many ranks were drawn.
    """
    reject = level / ROUNDS
    unsure = reject ** (1 / ROUNDS)
    n, total, p = RANKS, 0, 1.0
    for round_ in range(ROUNDS):
        p, total = fairness(ranks(case, n, 10 + round_)), total + n
        if p <= reject:
            return False, p, total
        if p > reject + unsure:
            break
        reject, n = reject / unsure, 4 * RANKS
    return True, p, total


@pytest.mark.deep
def test_ranks_tell_right_from_wrong():
    """A slice of the tests below: the ranks of a random walk, and of one that cannot go back."""
    assert fairness(ranks(RIGHT["random walk"](), 3000, 0)) > LEVEL
    assert fairness(ranks(BUGS["direction not flipped"](), 3000, 0)) < LEVEL


REVERSIBLE = [name for name in RIGHT if name not in ("cycle of kernels", "NaN beyond a line")]


@deep
@pytest.mark.row(3)
@pytest.mark.parametrize("name", REVERSIBLE)
def test_ranks_along_a_path_are_uniform(name, record):
    passed, p, total = rank_test(RIGHT[name]())
    record(3, kernels=1, ranks=total, least_p=p)
    assert passed


@deep
@pytest.mark.row(3)
def test_a_kernel_that_is_not_reversible_fails_the_ranks(record):
    passed, _, _ = rank_test(BUGS["way back forgotten"]())
    record(3, wrong_kernels_refused=int(not passed))
    assert not passed
