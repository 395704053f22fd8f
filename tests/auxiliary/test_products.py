"""Products of mixtures: blocks from Hessians, one distribution of all of them."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array

import involutive as inv

WELLS = 16
LOG_Z = WELLS * (np.log(11784.50927) + 0.5 * np.log(2 * np.pi))


def many_well() -> inv.Target:
    def log_density(x: Array) -> Array:
        a, b = x[::2], x[1::2]
        return jnp.sum(-(a**4) + 6 * a**2 + a / 2 - b**2 / 2)

    return inv.Target(log_density, 2 * WELLS, name="many wells")


def exact(count: int, seed: int) -> np.ndarray:
    rng, grid = np.random.default_rng(seed), np.linspace(-4, 4, 20_001)
    share = np.cumsum(np.exp(-(grid**4) + 6 * grid**2 + grid / 2))
    rows = rng.normal(size=(count, 2 * WELLS))
    rows[:, ::2] = np.interp(rng.uniform(size=(count, WELLS)), share / share[-1], grid)
    return rows


@pytest.mark.deep
def test_many_wells_are_sixteen_times_two_modes():
    """65 536 modes from one mixture per coordinate, as an independent proposal."""
    target, draws = many_well(), exact(3000, 0)
    blocks = inv.blocks_of(inv.interactions(target, draws))
    assert blocks == [[i] for i in range(2 * WELLS)]
    # the wells are alike, but each is fitted by itself
    law = inv.fit_product(
        draws, blocks, fit=lambda rows, omega: inv.fit_mixture(rows, omega, most=4)
    )
    y = jax.jit(jax.vmap(law.sample))(jr.split(jr.key(0), 10_000))
    log_w = np.asarray(jax.jit(jax.vmap(lambda x: target.log_density(x) - law.log_prob(x)))(y))
    weights = np.exp(log_w - log_w.max())
    assert weights.sum() ** 2 / (weights**2).sum() > 0.5 * len(y)
    assert abs(np.log(weights.mean()) + log_w.max() - LOG_Z) < 0.05


def test_blocks_are_what_interacts():
    def log_density(x: Array) -> Array:
        ring = (x[0] ** 2 + x[3] ** 2 - 4) ** 2
        return -ring - jnp.sum(x**2) + 0.8 * x[1] * x[4] + 1e-3 * x[2] * x[5]

    target = inv.Target(log_density, 6)
    points = np.random.default_rng(0).normal(size=(40, 6))
    assert inv.blocks_of(inv.interactions(target, points)) == [[0, 3], [1, 4], [2], [5]]
    assert inv.blocks_of(inv.interactions(target, points), least=1e-5)[2] == [2, 5]


def test_density_and_draws_are_those_of_the_parts():
    rng = np.random.default_rng(0)
    one = inv.GaussianMixture(np.ones(1), np.array([[2.0]]), np.array([[[0.5]]]))
    two = inv.GaussianMixture(np.array([0.2, 0.8]), np.array([[-3.0], [3.0]]), np.ones((2, 1, 1)))
    plane = inv.StudentTMixture(np.ones(1), np.ones((1, 2)), np.eye(2)[None], 3.0)
    law = inv.ProductMixture([[3], [0], [4, 1], [2]], [one, two, plane, two])
    x = jnp.asarray(rng.normal(size=5))

    @jax.jit
    def densities(x: Array) -> tuple[Array, Array, Array]:
        parts = one.log_prob(x[3:4]) + two.log_prob(x[:1]) + two.log_prob(x[2:3])
        return *jax.value_and_grad(law.log_prob)(x), parts + plane.log_prob(x[jnp.array([4, 1])])

    whole, slope, expected = densities(x)
    np.testing.assert_allclose(whole, expected)
    assert np.isfinite(slope).all()
    rows = np.asarray(jax.jit(jax.vmap(law.sample))(jr.split(jr.key(0), 8000)))
    np.testing.assert_allclose(rows[:, 3].mean(), 2.0, atol=0.05)
    assert abs((rows[:, 0] > 0).mean() - 0.8) < 0.02
    assert abs(((rows[:, 0] > 0) & (rows[:, 2] > 0)).mean() - 0.64) < 0.03


def test_saved_in_a_kernel(tmp_path):
    target = inv.targets.mog2()
    part = inv.GaussianMixture(np.ones(2), np.array([[-5.0], [5.0]]), np.ones((2, 1, 1)))
    law = inv.ProductMixture([[0], [1]], [part, part])
    kernel = inv.Kernel(target, inv.PermutationBlock.swap(4), law)
    inv.save(tmp_path / "k.inv", kernel)
    loaded = inv.load(tmp_path / "k.inv", target)
    assert loaded.auxiliary.log_prob(jnp.ones(2)) == law.log_prob(jnp.ones(2))


@pytest.mark.parametrize("blocks", [[[0], [0]], [[0], [2]], [[0, 1], [2]]])
def test_blocks_must_hold_every_coordinate_once(blocks, as_users_run):
    part = inv.GaussianMixture(np.ones(1), np.zeros((1, 1)), np.ones((1, 1, 1)))
    with pytest.raises(inv.InputError, match=r"blocks must hold|of a block"):
        inv.ProductMixture(blocks, [part, part])
