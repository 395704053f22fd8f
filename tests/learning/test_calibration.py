"""Rows 4, 6 and 19 of the reliability table: what is learned, saved and sampled is right."""

from collections.abc import Callable
from functools import cache
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from flowjax.distributions import Normal
from jaxtyping import Array

import involutive as inv
from involutive.sampling.sample import parameter_hash
from test_invariance import LEVEL

deep = pytest.mark.deep
SETS, REFERENCE = 120, 63
TINY: dict[str, Any] = {
    "settings": inv.LearnSettings(
        components=(4,),
        tune_steps=50,
        couplings_below=0.0,
        training_draws=1000,
        batch=128,
        climbers=64,
        search_draws=512,
        particles=256,
        round_chains=64,
        round_steps=20,
        most_rounds=1,
    ),
    "progress": False,
}


class Posterior(eqx.Module):
    """`θ ~ N(0, I)`, `y_i ~ N((|θ₁|, θ₂), I/4)`: two modes: θ₁ and -θ₁ explain the data alike.

    The data are arrays of the density, so that every data set runs the same compiled code.
    """

    y: Array

    def __call__(self, x: Array) -> Array:
        mean = jnp.stack([jnp.abs(x[0]), x[1]])
        return -0.5 * jnp.sum(x**2) - 2 * jnp.sum((self.y - mean[None]) ** 2)


def learned(target: inv.Target, prior: Normal, number: int) -> Any:
    return inv.learn(target, key=number, initial=prior, **TINY)


def plain(target: inv.Target, prior: Normal, number: int) -> Any:
    """What needs no learning, for the fast slice."""
    return inv.random_walk(target, 0.8, initial=prior)


def calibrated_rank(number: int, path: Any, make: Callable[..., Any] = learned) -> np.ndarray:
    """Learn, save, load and sample for one data set; the ranks of what it was made from."""
    rng = np.random.default_rng(number)
    theta = rng.normal(size=2)
    y = np.stack([np.abs(theta[0]), theta[1]]) + 0.5 * rng.normal(size=(2, 2))
    target = inv.Target(Posterior(jnp.asarray(y)), dim=2, name="posterior")
    prior = Normal(jnp.zeros(2), jnp.ones(2))
    inv.save(path, make(target, prior, number))
    kernel = inv.load(path, target)
    draws = inv.sample(
        kernel, key=1000 + number, num_chains=REFERENCE, num_samples=5, num_warmup=100,
        progress=False,
    )  # fmt: skip
    last = draws.positions[:, -1]
    product = last[:, 0] * last[:, 1]
    return np.append((last < theta).sum(0), (product < theta[0] * theta[1]).sum())


def fairness(found: np.ndarray) -> float:
    """The smallest χ² p-value over the quantities, ranks in eight bins, times how many."""
    bins = [np.bincount(r * 8 // (REFERENCE + 1), minlength=8) for r in found.T.astype(int)]
    return float(min(min(scipy.stats.chisquare(b).pvalue for b in bins) * len(bins), 1.0))


@deep
@pytest.mark.row(4)
def test_simulation_based_calibration(tmp_path, record):
    found = np.stack([calibrated_rank(i, tmp_path / "k.inv") for i in range(SETS)])
    p = fairness(found)
    record(4, data_sets=SETS, least_p=p)
    assert p > LEVEL


@deep
@pytest.mark.row(4)
def test_a_plain_kernel_is_calibrated(tmp_path):
    """A slice of the test above, through save, load and sample."""
    found = np.stack([calibrated_rank(i, tmp_path / "k.inv", plain) for i in range(40)])
    assert fairness(found) > LEVEL
    assert fairness(np.minimum(found + 16, REFERENCE)) < LEVEL  # and a shift is seen


# ── Rows 6 and 19: a learned kernel ─────────────────────────────────────────────────────────────


@cache
def two_modes() -> Any:
    return inv.learn(inv.targets.mog2(), key=3, **TINY)


@deep
@pytest.mark.row(6)
def test_both_modes_from_one_of_them(record):
    start = np.full((256, 2), [-5.0, 0.0])
    draws = inv.sample(two_modes(), key=4, num_chains=256, num_samples=2000, initial=start)
    share = float((draws.positions[..., 0] > 0).mean())
    record(6, weight=share)
    assert abs(share - 0.5) < 0.01


@deep
@pytest.mark.row(19)
def test_sampling_changes_nothing_and_moves(record):
    kernel = two_modes()
    before = parameter_hash(kernel)
    draws = inv.sample(kernel, key=5, num_chains=64, num_samples=500)
    moved = (np.abs(np.diff(draws.positions, axis=1)).max(2) > 0).mean(1)
    back = np.abs(draws.positions[:, 2:] - draws.positions[:, :-2]).max(2) == 0
    record(19, hashes_changed=int(parameter_hash(kernel) != before), least_share_moved=moved.min())
    assert parameter_hash(kernel) == before
    assert moved.min() > 0.1
    # a period of two would return where it was two steps before, though it moves
    stayed = np.abs(np.diff(draws.positions, axis=1)).max(2) == 0
    assert (back & ~stayed[:, 1:] & ~stayed[:, :-1]).mean() == 0
