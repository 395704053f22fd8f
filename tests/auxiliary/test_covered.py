"""A wide distribution beside another: its density, its draws, and chains that start far out."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from flowjax import bijections as fb

import involutive as inv
from involutive.auxiliary.covered import Covered


def wide(dim, sd):
    return inv.GaussianMixture(jnp.ones(1), jnp.zeros((1, dim)), sd**2 * jnp.eye(dim)[None])


def test_draws_have_the_density_it_states(getkey):
    """E[r/q] over draws of q is one for a normalised r; a wrong share would make it another."""
    q, r = Covered(inv.standard_normal(2), wide(2, 5.0), 0.3), wide(2, 3.0)
    draws = jax.jit(jax.vmap(q.sample))(jr.split(getkey(), 20_000))
    ratios = jnp.exp(jax.jit(jax.vmap(lambda x: r.log_prob(x) - q.log_prob(x)))(draws))
    error = float(jnp.std(ratios)) / len(draws) ** 0.5
    assert error < 0.02 and abs(float(jnp.mean(ratios)) - 1) < 4.5 * error


def test_a_chain_that_starts_far_out_comes_back(getkey):
    means = []
    for law in (inv.standard_normal(4), Covered(inv.standard_normal(4), wide(4, 9.0), 0.02)):
        # a target with heavier tails than q, as most have
        heavy = inv.Target(lambda x: -2.0 * jnp.log1p(jnp.sum(x**2)), 4)
        kernel = inv.Kernel(heavy, inv.FunctionBlock(fb.Identity((4,))), law)
        starts = jnp.full((16, 4), 12.0)
        draws = inv.sample(
            kernel, key=0, num_chains=16, num_samples=200, initial=starts, num_warmup=0,
            progress=False,
        )  # fmt: skip
        means.append(float(np.mean(np.abs(draws.positions[:, -50:]))))
    assert means[0] == 12.0 and means[1] < 6


@pytest.mark.parametrize(
    ("base", "share", "words"),
    [(2, 0.0, "share must be above 0"), (2, 1.0, "below 1"), (3, 0.1, "must have one shape")],
)
def test_mistakes_are_named(base, share, words):
    with pytest.raises(inv.InputError, match=words):
        Covered(inv.standard_normal(base), wide(2, 3.0), share)


def test_it_is_saved_and_loaded(tmp_path):
    target = inv.targets.gaussian(2)
    law = Covered(inv.standard_normal(2), wide(2, 5.0), 0.1)
    kernel = inv.Kernel(target, inv.FunctionBlock(fb.Identity((2,))), law)
    inv.save(tmp_path / "k.inv", kernel)
    again = inv.load(tmp_path / "k.inv", target)
    x = jnp.array([2.0, -1.0])
    assert float(again.auxiliary.log_prob(x)) == float(law.log_prob(x))
