"""The exact answers that the experiment compares with, and its quick version."""

import jax
import jax.random as jr
import numpy as np
import pytest

from involutive.experiments import amortised
from involutive.experiments.amortised_exact import event, exact_hierarchy, exact_light_curve
from involutive.experiments.amortised_families import hierarchy, light_curves
from involutive.experiments.framework import run_experiment

DRAWS = 200_000


@pytest.mark.deep
@pytest.mark.parametrize(
    ("make", "exact", "seed"),
    [(light_curves, exact_light_curve, 3), (hierarchy, exact_hierarchy, 0)],
)
def test_exact_answers_agree_with_draws_of_the_prior(make, exact, seed):
    family = make()
    _, data = jax.tree.map(lambda leaf: leaf[0], family.pairs(jr.key(seed), 1))
    prior = family.template.initial
    x = prior.sample(jr.key(7), (DRAWS,))
    log_p = jax.jit(jax.vmap(lambda v: family.density(data)(v) - prior.log_prob(v)))(x)
    log_w = np.asarray(log_p, np.float64)
    top = log_w.max()
    w = np.exp(log_w - top)
    answer = exact(jax.tree.map(np.asarray, data))
    error = w.std() / w.mean() / DRAWS**0.5
    assert error < 0.25
    assert abs(np.log(w.mean()) + top - answer.log_z) < 5 * error
    values = jax.vmap(family.parameters.constrain)(x)
    inside = np.asarray(event(family.name, values))
    share = w[inside].sum() / w.sum()
    spread = np.sqrt(np.sum((w * (inside - share)) ** 2)) / w.sum()
    assert abs(share - answer.chance) < 5 * spread


def test_ranks_that_are_not_uniform_are_seen():
    rng = np.random.default_rng(0)
    ranks = rng.integers(0, 100, size=(1000, 4))
    assert amortised.uniform_p(ranks) > 1e-3
    ranks[:, 2] = np.clip(ranks[:, 2] * 0.85, 0, 99).astype(int)  # a posterior that is too far up
    assert amortised.uniform_p(ranks) < 1e-6


@pytest.mark.deep
def test_the_quick_experiment_runs_and_is_well_calibrated(tmp_path):
    done = run_experiment("amortised", quick=True, out=tmp_path, progress=False)
    assert {row["family"] for row in done.rows} == {"light curves", "hierarchy"}
    assert all(row["SBC p"] > 1e-4 for row in done.rows)
    assert all(row["wrong and trusted"] == 0 for row in done.rows)
