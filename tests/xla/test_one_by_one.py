"""Densities that factorise matrices are evaluated one point at a time, and are the same."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import involutive as inv
from involutive._xla.lapack import OneByOne
from involutive._xla.program import factorises_many, program_of

POINTS = jnp.linspace(-1.0, 1.0, 6).reshape(3, 2)


class Evidence(eqx.Module):
    """The evidence of a Gaussian process with a learned scale and noise."""

    inputs: Array
    outputs: Array

    def __call__(self, x):
        size = self.inputs.size
        apart = (self.inputs[:, None] - self.inputs[None, :]) ** 2
        covariance = jnp.exp(x[0] - apart) + jnp.exp(x[1]) * jnp.eye(size)
        low = jnp.linalg.cholesky(covariance)
        white = jax.scipy.linalg.solve_triangular(low, self.outputs, lower=True)
        return -0.5 * white @ white - jnp.sum(jnp.log(jnp.diagonal(low))) - 0.5 * x @ x


def _evidence(size=5):
    inputs = jnp.linspace(0.0, 3.0, size)
    return Evidence(inputs, jnp.sin(inputs))


DATA = _evidence()


def _each(function):
    """Values of one point and of many, also not compiled; slopes and curvatures."""

    @jax.jit
    def more(points):
        branch = lambda x: jax.lax.cond(x[0] > 0, lambda y: function(y), lambda y: y[0], x)  # noqa: E731
        return [
            jax.vmap(jax.vmap(function))(jnp.stack([points, 2 * points])),
            jax.vmap(jax.grad(function))(points),
            jax.vmap(jax.hessian(function))(points),
            jax.vmap(jax.jacrev(jax.grad(function)))(points),
            jax.grad(lambda points: jnp.sum(jax.vmap(function)(points) ** 2))(points),
            jax.vmap(branch)(points),
        ]

    return [function(POINTS[0]), jax.vmap(function)(POINTS), *more(POINTS)]


@pytest.mark.parametrize(
    "plain",
    [
        pytest.param(_evidence(), id="module", marks=pytest.mark.deep),
        pytest.param(lambda x: DATA(x), id="closure"),
    ],
)
def test_it_is_the_same_function_with_the_same_derivatives(plain):
    for mine, theirs in zip(_each(OneByOne(plain)), _each(plain), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-10, atol=1e-12)


def test_it_is_differentiated_in_its_own_arrays_too():
    def along(function):
        return eqx.filter_grad(lambda f: jnp.sum(jax.vmap(f)(POINTS)))(function)

    mine, theirs = along(OneByOne(_evidence())).function, along(_evidence())
    np.testing.assert_allclose(mine.outputs, theirs.outputs, rtol=1e-10)


def test_it_may_close_over_what_is_mapped_or_differentiated():
    def at(scale, wrap):
        return wrap(lambda x: scale * DATA(x))(POINTS[0])

    for change in (jax.vmap, lambda f: jax.vmap(jax.grad(f))):
        mine, theirs = (change(lambda s, w=w: at(s, w))(POINTS[0]) for w in (OneByOne, lambda f: f))
        np.testing.assert_allclose(mine, theirs, rtol=1e-10)


def test_a_value_of_another_precision_keeps_it():
    target = inv.Target(lambda x: DATA(x).astype(jnp.float32), dim=2)
    assert isinstance(target.log_density, OneByOne)
    assert jax.jvp(target.log_density, (POINTS[0],), (POINTS[1],))[1].dtype == jnp.float32
    assert jax.grad(target.log_density)(POINTS[0]).dtype == POINTS.dtype


def test_mapped_it_factorises_one_matrix_at_a_time():
    slopes = jax.vmap(jax.value_and_grad(_evidence()))
    assert factorises_many(program_of(slopes, 3, 2))
    slopes = jax.vmap(jax.value_and_grad(inv.Target(_evidence(), dim=2).log_density))
    assert not factorises_many(program_of(slopes, 3, 2))


def test_a_banded_system_counts_too():
    def log_density(x):
        side = jnp.full(4, 0.1)
        return jnp.sum(jax.lax.linalg.tridiagonal_solve(side, 1 + x**2, side, x[:, None]))

    assert isinstance(inv.Target(log_density, dim=4).log_density, OneByOne)


@pytest.mark.parametrize("target", [inv.targets.mog6(), inv.targets.correlated_gaussian(5)])
def test_other_densities_stay_as_they_are(target):
    assert not isinstance(target.log_density, OneByOne)


def test_one_matrix_of_all_points_is_no_reason():
    low = jnp.linalg.cholesky(jnp.eye(3) + 0.5)

    def log_density(x):
        return -0.5 * jnp.sum(jax.scipy.linalg.solve_triangular(low, x, lower=True) ** 2)

    assert not isinstance(inv.Target(log_density, dim=3).log_density, OneByOne)


def test_a_density_that_cannot_be_mapped_is_left_to_whoever_maps_it():
    def log_density(x):
        scalar = jax.ShapeDtypeStruct((), x.dtype)
        return jax.pure_callback(lambda y: -0.5 * np.sum(y**2), scalar, x)

    assert not isinstance(inv.Target(log_density, dim=2).log_density, OneByOne)


@pytest.mark.deep
def test_chains_of_such_a_density_run_side_by_side():
    """Batched LAPACK calls at once would wait for each other where cores are few."""
    target = inv.Target(_evidence(40), dim=2)
    draws = inv.sample(
        inv.hmc(target, 0.2, 3), key=0, num_chains=64, num_samples=10,
        initial=np.zeros((64, 2)), progress=False,
    )  # fmt: skip
    assert np.isfinite(draws.positions).all()


def test_proposals_solve_for_one_matrix_at_a_time():
    """Two blocks of chains that solved for many at once have waited for each other for ever."""
    rng = np.random.default_rng(0)
    spread = np.stack([np.eye(3) + 0.1 * np.cov(rng.normal(size=(3, 9))) for _ in range(4)])
    mixture = inv.GaussianMixture(np.full(4, 0.25), rng.normal(size=(4, 3)), spread)
    student = inv.StudentTMixture(
        np.full(4, 0.25), rng.normal(size=(4, 3)), spread, np.full(4, 5.0)
    )
    for law in (mixture, student):
        draw = jax.make_jaxpr(jax.vmap(lambda key, law=law: law.sample(key)))
        assert not factorises_many(draw(jax.random.split(jax.random.key(0), 5)).jaxpr)
        assert not factorises_many(program_of(jax.vmap(law.log_prob), 5, 3))
