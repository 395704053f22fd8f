"""Hierarchies: the conditional of the children, and which coordinates are the parents."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from flowjax.distributions import Normal

import involutive as inv
from involutive._xla.batched import BatchedDensity
from involutive.auxiliary.hierarchical import lower_factor, solve_lower, solve_upper
from involutive.learning.fit.hierarchy import parents_of


def regression(x):
    """y_i ~ N(a + b t_i, 1), a and b ~ N(0, s²), log s ~ N(0, 1): normal given log s."""
    times = jnp.arange(4.0)
    residuals = jnp.array([1.0, 0.5, 2.0, 1.5]) - x[1] - x[2] * times
    scale = jnp.exp(x[0])
    prior = -0.5 * x[0] ** 2 - 0.5 * jnp.sum((x[1:] / scale) ** 2) - 2 * x[0]
    return prior - 0.5 * jnp.sum(residuals**2)


def test_factor_and_solutions_are_lapacks():
    root = jr.normal(jr.key(0), (5, 5))
    matrix, right = root @ root.T + jnp.eye(5), jr.normal(jr.key(1), (5,))
    factor = lower_factor(matrix)
    np.testing.assert_allclose(factor, jnp.linalg.cholesky(matrix), rtol=1e-5, atol=1e-6)
    solved = solve_upper(factor, solve_lower(factor, right))
    np.testing.assert_allclose(matrix @ solved, right, rtol=1e-4, atol=1e-5)


def test_a_normal_conditional_is_exact():
    """log p - log q must be a function of the parents alone."""
    target = inv.Target(regression, 3)
    q = inv.Hierarchical(target, Normal(jnp.zeros(1), jnp.ones(1)), [0], jnp.array([0.0, 5.0, -3]))
    children = jr.normal(jr.key(0), (20, 2)) * 3
    rows = jnp.concatenate([jnp.full((20, 1), 0.7), children], axis=1)
    gaps = jax.jit(jax.vmap(lambda x: target.log_density(x) - q.log_prob(x)))(rows)
    assert float(jnp.ptp(gaps)) < 1e-3
    marginal = q.log_marginal(jnp.array([0.7])) - q.base.log_prob(jnp.array([0.7]))
    np.testing.assert_allclose(gaps, marginal, rtol=1e-4)


def test_draws_have_the_density_it_states():
    """The mean of exp(log r - log q) over draws of q is one, for a normalised r."""
    target = inv.Target(regression, 3)
    q = inv.Hierarchical(target, Normal(jnp.zeros(1), 0.5 * jnp.ones(1)), [0], jnp.zeros(3))
    draws = jax.jit(jax.vmap(q.sample))(jr.split(jr.key(0), 20_000))
    mean, spread = jnp.mean(draws, axis=0), jnp.cov(draws.T)
    wide = jax.scipy.stats.multivariate_normal.logpdf
    log_r = jax.vmap(lambda x: wide(x, mean, 0.3 * spread))(draws)
    weights = jnp.exp(log_r - jax.jit(jax.vmap(q.log_prob))(draws))
    error = float(jnp.std(weights)) / np.sqrt(len(draws))
    assert abs(float(jnp.mean(weights)) - 1) < 4 * error


@pytest.mark.parametrize(
    ("target", "parents"),
    [(inv.targets.funnel(6), [0]), (inv.Target(regression, 3), [0]), (inv.targets.gaussian(4), [])],
)
def test_parents_are_found(target, parents):
    points = np.random.default_rng(0).normal(size=(200, target.dim))
    density = BatchedDensity(target.log_density, target.dim, 64)
    assert parents_of(density, points, inv.StructureSettings()) == parents


def test_a_density_without_hierarchy_has_no_parents():
    target = inv.Target(lambda x: -jnp.sum((x**2 - 1) ** 2) - jnp.prod(jnp.cosh(0.1 * x)), 10)
    points = np.random.default_rng(0).normal(size=(200, 10))
    density = BatchedDensity(target.log_density, 10, 64)
    assert parents_of(density, points, inv.StructureSettings()) == []


def test_it_is_saved_without_its_target(tmp_path):
    target = inv.targets.funnel(4)
    q = inv.Hierarchical(target, Normal(jnp.zeros(1), jnp.ones(1)), [0], jnp.zeros(4))
    from flowjax.bijections import Identity

    kernel = inv.Kernel(target, inv.FunctionBlock(Identity((4,))), q)
    inv.save(tmp_path / "q.inv", kernel)
    loaded = inv.load(tmp_path / "q.inv", target, inv.Kernel)
    x = jnp.array([0.5, 1.0, -1.0, 0.2])
    assert float(loaded.auxiliary.log_prob(x)) == float(q.log_prob(x))


@pytest.mark.parametrize("parents", [[], [0, 0], [4], [0, 1, 2, 3]])
def test_parents_that_do_not_fit_are_named(parents):
    with pytest.raises(inv.InputError, match="parents must be some of 4 coordinates"):
        inv.Hierarchical(inv.targets.funnel(4), inv.standard_normal(1), parents, jnp.zeros(4))
